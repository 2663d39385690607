// NCCL moves bytes and does nothing else. Its communicators are made not to block: every call comes
// back at once, what is under way is asked for until it is there, and it can be told to give up.
#include "heed/ranks/nccl.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "heed/base/check.h"
#include "heed/ranks/nccl_library.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

namespace heed {
namespace {

using nccl::kBytes, nccl::kInProgress, nccl::kSuccess, nccl::Result;

void want(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail("ranks: ", call, " failed: ", cudaGetErrorString(error));
}

cudaStream_t stream() { return static_cast<cudaStream_t>(cuda_stream()); }

void copy_own(std::span<const Ranks::Sent> to, std::span<const Ranks::Received> from, int rank) {
  const auto own = static_cast<size_t>(rank);
  if (!to[own].empty())
    want(cudaMemcpyAsync(from[own].data(), to[own].data(), to[own].size(), cudaMemcpyDeviceToDevice,
                         stream()),
         "cudaMemcpyAsync");
}

// ---- by NCCL

class Nccl : public GpuExchange {
 public:
  explicit Nccl(Ranks& ranks) : ranks_(ranks), nccl_(nccl::library()) {
    nccl::Id id;
    if (ranks.first()) {
      const Result code = nccl_.get_unique_id(&id);
      require(code == kSuccess, "ranks: NCCL cannot begin: ", nccl_.error_string(code));
    }
    ranks.broadcast("NCCL's id", std::as_writable_bytes(std::span(&id, 1)));
    nccl::Config config;
    launched("the beginning of NCCL",
             nccl_.init_rank(&comm_, ranks.count(), id, ranks.rank(), &config));
  }

  ~Nccl() override {
    // What is under way when something fails would never end, and with it the stream.
    try {
      if (comm_ && std::uncaught_exceptions() == exceptions_) {
        wait(put_);
        launched("the end of NCCL", nccl_.finalize(comm_));
        nccl_.destroy(std::exchange(comm_, nullptr));
      }
    } catch (const Error&) {  // who fails at the end has trained all the same
    }
    if (comm_) nccl_.abort(comm_);
    for (const Pending& p : pending_) forget(p);
  }

  void exchange(const std::string& what, std::span<const Ranks::Sent> to,
                std::span<const Ranks::Received> from) override {
    Pending& p = pending_.emplace_back(Pending{.what = what});
    want(cudaEventCreate(&p.begin), "cudaEventCreate");
    want(cudaEventCreate(&p.end), "cudaEventCreate");
    want(cudaEventRecord(p.begin, stream()), "cudaEventRecord");
    copy_own(to, from, ranks_.rank());
    started(what, nccl_.group_start());
    for (int r = 0; r < ranks_.count(); ++r) {
      const auto i = static_cast<size_t>(r);
      if (r == ranks_.rank()) continue;
      if (!to[i].empty())
        started(what, nccl_.send(to[i].data(), to[i].size(), kBytes, r, comm_, stream()));
      if (!from[i].empty())
        started(what, nccl_.receive(from[i].data(), from[i].size(), kBytes, r, comm_, stream()));
    }
    launched(what, nccl_.group_end());
    want(cudaEventRecord(p.end, stream()), "cudaEventRecord");
    ++put_;
  }

  void wait(int64_t count) override {
    while (put_ - std::ssize(pending_) < count) {
      const Pending p = pending_.front();
      until(p.what, [&] {
        const cudaError_t now = cudaEventQuery(p.end);
        if (now == cudaSuccess) return true;
        if (now != cudaErrorNotReady) want(now, "a kernel");
        Result state = kSuccess;
        started(p.what, nccl_.get_async_error(comm_, &state));
        started(p.what, state);
        return false;
      });
      float milliseconds = 0;
      want(cudaEventElapsedTime(&milliseconds, p.begin, p.end), "cudaEventElapsedTime");
      waited_ += double(milliseconds) / 1e3;
      forget(p);
      pending_.pop_front();
    }
  }

 private:
  struct Pending {
    std::string what;
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  static void forget(const Pending& p) {
    if (p.begin) cudaEventDestroy(p.begin);
    if (p.end) cudaEventDestroy(p.end);
  }

  // A call that comes back at once, whether it is through or not.
  void started(const std::string& what, Result code) {
    if (code != kSuccess && code != kInProgress)
      give_up(what, std::string("NCCL says: ") + nccl_.error_string(code) +
                        " (NCCL_DEBUG=INFO tells more)");
  }
  // Until what was started is in the stream, or has come to its end.
  void launched(const std::string& what, Result code) {
    started(what, code);
    if (code == kInProgress)
      until(what, [&] {
        Result state = kSuccess;
        started(what, nccl_.get_async_error(comm_, &state));
        started(what, state);
        return state == kSuccess;
      });
  }

  void until(const std::string& what, const std::function<bool()>& done) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const WaitOptions& waiting = ranks_.waiting();
    double warned = 0;
    while (!done()) {
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      if (waited < 0.001)
        ::sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(waited < 1 ? 50 : 2000));
      const std::string words = std::to_string(static_cast<int64_t>(waited)) + " s";
      if (waited >= waiting.deadline)
        give_up(what, "NCCL did not come to an end for " + words + " (--deadline)");
      if (waited < warned + waiting.warn_after) continue;
      warned = waited;
      // Nobody knows here who waits: of the first two, one does.
      if (waiting.warn && ranks_.rank() <= 1)
        waiting.warn(what + ": waiting for NCCL for " + words);
    }
  }

  // NCCL does not say who is missing. MPI does: all are asked, and given a moment to answer.
  [[noreturn]] void give_up(const std::string& what, const std::string& words) {
    if (comm_) nccl_.abort(std::exchange(comm_, nullptr));
    WaitOptions brief = ranks_.waiting();
    brief.deadline = std::min(brief.deadline, 5.0);
    ranks_.set_waiting(brief);
    try {
      ranks_.meet(what);
    } catch (const Error& missing) {
      fail(missing.what(), "; before that, ", words);
    }
    fail("ranks: ", what, ": ", words, ", and all ranks are there");
  }

  Ranks& ranks_;
  const nccl::Library& nccl_;
  nccl::Comm* comm_ = nullptr;
  std::deque<Pending> pending_;
  const int exceptions_ = std::uncaught_exceptions();
};

// ---- by way of the host

class ThroughHost : public GpuExchange {
 public:
  explicit ThroughHost(Ranks& ranks) : ranks_(ranks) {}

  void exchange(const std::string& what, std::span<const Ranks::Sent> to,
                std::span<const Ranks::Received> from) override {
    const auto begin = std::chrono::steady_clock::now();
    const auto n = static_cast<size_t>(ranks_.count()), own = static_cast<size_t>(ranks_.rank());
    std::vector<std::vector<std::byte>> out(n), in(n);
    std::vector<Ranks::Sent> sent(n);
    std::vector<Ranks::Received> received(n);
    for (size_t r = 0; r < n; ++r) {
      if (r == own) continue;
      out[r].resize(to[r].size()), in[r].resize(from[r].size());
      copy_from_cuda(to[r].data(), out[r].data(), out[r].size());
      sent[r] = out[r], received[r] = in[r];
    }
    ranks_.exchange(what, sent, received);
    for (size_t r = 0; r < n; ++r) copy_to_cuda(in[r].data(), from[r].data(), in[r].size());
    cuda_synchronize();  // before the host's memory goes
    copy_own(to, from, ranks_.rank());
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++put_;
  }
  void wait(int64_t) override {}

 private:
  Ranks& ranks_;
};

// What tells one GPU from any other, on any machine; a part of one (MIG) is one.
std::string identity_of(int index) {
  cudaDeviceProp about{};
  want(cudaGetDeviceProperties(&about, index), "cudaGetDeviceProperties");
  return std::string(about.uuid.bytes, sizeof about.uuid.bytes);
}

}  // namespace

int gpu_of(const Ranks& ranks) {
  if (ranks.on_this_machine() == 1) return 0;
  // A launcher may show each rank a GPU of its own, or all of them to all.
  const auto found = std::ssize(cuda_devices().names);
  return found == 0 ? 0 : static_cast<int>(ranks.order_on_machine() % found);
}

std::unique_ptr<GpuExchange> join_gpus(Ranks& ranks) {
  const char* const share = std::getenv("HEED_SHARE_GPU");
  const std::string shared = share ? share : "";
  require(shared.empty() || shared == "nccl" || shared == "host",
          "ranks: HEED_SHARE_GPU is nccl or host, given ", shared);
  ranks.want_same("HEED_SHARE_GPU", shared);
  const auto all = ranks.gather("their GPUs", identity_of(Context::current().index()));
  for (size_t r = 1; r < all.size() && shared.empty(); ++r)
    for (size_t before = 0; before < r; ++before)
      require(all[r] != all[before], "ranks: ", ranks.name(static_cast<int>(r)),
              " has the same GPU as ", ranks.name(static_cast<int>(before)),
              "; start at most as many ranks on a machine as it has GPUs, or give --device cpu");
  if (shared == "host") return std::make_unique<ThroughHost>(ranks);
  return std::make_unique<Nccl>(ranks);
}

}  // namespace heed
