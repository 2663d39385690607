// The benchmark's rows computed by libtorch, as someone who knows it well would write them: kernels
// called directly where that spares autograd's bookkeeping, results written into tensors made
// beforehand where libtorch offers it. A row that makes its results anew each time does so because
// libtorch has no other form of it.
#include "bench/peer_torch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/version.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

namespace heed::bench {
namespace {

constexpr int64_t kTokens = 1024;
constexpr int64_t kVocabulary = 8000;
constexpr int64_t kModelSize = 256;
constexpr int64_t kNormRows = 4096;
constexpr int64_t kElements = 4'000'000;
constexpr double kSmoothing = 0.1;
constexpr double kDropout = 0.1;

// Counts the bytes asked for, on top of libtorch's own allocator. The size is kept in front of the
// block, since a deleter is given nothing but the address; 64 bytes keep the data as aligned as
// libtorch wants it.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    auto* block = static_cast<char*>(inner()->raw_allocate(bytes + kHeader));
    *reinterpret_cast<size_t*>(block) = bytes;
    const int64_t now = held.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
    for (int64_t seen = peak; seen < now && !peak.compare_exchange_weak(seen, now);) {
    }
    char* data = block + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  static inline std::atomic<int64_t> held = 0;
  static inline std::atomic<int64_t> peak = 0;

 private:
  static constexpr size_t kHeader = 64;

  static c10::Allocator* inner() { return c10::GetDefaultCPUAllocator(); }

  static void release(void* data) {
    if (data == nullptr) return;  // oneDNN frees null as one may with free()
    char* block = static_cast<char*>(data) - kHeader;
    held -= static_cast<int64_t>(*reinterpret_cast<size_t*>(block));
    inner()->raw_deallocate(block);
  }
};

// To be called before libtorch is used at all: a tensor made earlier would not be counted, and the
// choice of kernels is made at the first of them.
void set_up() {
  static CountingAllocator allocator;
  static const bool done = [] {
    c10::SetCPUAllocator(&allocator, /*priority=*/255);
    // libtorch has kernels for AVX-512 but must be asked; here they are the faster ones.
    const bool avx512 = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
    if (avx512) setenv("ATEN_CPU_CAPABILITY", "avx512", /*overwrite=*/0);
    // Freed memory stays with the process. By default libtorch's large tensors go back to the
    // system and are mapped anew at each step, up to a tenth of its time.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    at::manual_seed(1);
    return true;
  }();
  (void)done;
}

// Whose sgemm libtorch calls: the linker's lookup is repeated, so this is what runs and not merely
// what was installed.
std::string blas_name() {
  void* gemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info found{};
  if (gemm == nullptr || dladdr(gemm, &found) == 0) return "BLAS unknown";
  const std::string path = std::filesystem::canonical(found.dli_fname).string();
  // openblas_get_parallel() of openblas_config.h: 0 serial, 1 its own threads, 2 OpenMP.
  auto* parallel = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  if (path.find("openblas") == std::string::npos || parallel == nullptr) return path;
  const int kind = parallel();
  return kind == 2 ? "OpenBLAS OpenMP" : kind == 1 ? "OpenBLAS pthread" : "OpenBLAS serial";
}

// "AVX2", the vector instructions of libtorch's own kernels. Only its description tells.
std::string vector_name() {
  static constexpr std::string_view kBefore = "CPU capability usage: ";
  const std::string config = at::show_config();
  const size_t at = config.find(kBefore);
  if (at == std::string::npos) return "unknown";
  const size_t begin = at + kBefore.size();
  return config.substr(begin, config.find('\n', begin) - begin);
}

using Sizes = std::vector<int64_t>;
using at::Tensor;

// "960x256x1024"; empty unless it is all numbers.
Sizes parse_sizes(std::string_view text) {
  Sizes sizes;
  while (true) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc{}) return {};
    sizes.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return sizes;
    if (text.front() != 'x') return {};
    text.remove_prefix(1);
  }
}

Tensor random_ids(int64_t count) { return at::randint(kVocabulary, {count}, at::kLong); }

Work softmax_of(const Tensor& x) {
  return [x, dy = at::randn_like(x), y = at::empty_like(x), dx = at::empty_like(x)]() mutable {
    at::_softmax_out(y, x, -1, false);
    at::_softmax_backward_data_out(dx, dy, y, -1, at::kFloat);
  };
}

Work softmax(const Sizes&) { return softmax_of(at::randn({4096, 32})); }
Work softmax_128(const Sizes&) { return softmax_of(at::randn({4096, 128})); }
Work vocabulary_softmax(const Sizes&) { return softmax_of(at::randn({kTokens, kVocabulary})); }

Work log_softmax(const Sizes&) {
  const Tensor x = at::randn({kTokens, kVocabulary}), dy = at::randn_like(x);
  return [x, dy, y = at::empty_like(x), dx = at::empty_like(x)]() mutable {
    at::_log_softmax_out(y, x, -1, false);
    at::_log_softmax_backward_data_out(dx, dy, y, -1, at::kFloat);
  };
}

Work layer_norm(const Sizes&) {
  const Tensor x = at::randn({kNormRows, kModelSize}), dy = at::randn_like(x);
  const Tensor gamma = at::randn({kModelSize}), beta = at::randn({kModelSize});
  return [=] {
    const auto [y, mean, rstd] = at::native_layer_norm(x, {kModelSize}, gamma, beta, 1e-5);
    at::native_layer_norm_backward(dy, x, {kModelSize}, mean, rstd, gamma, beta,
                                   {true, true, true});
  };
}

Work rms_norm(const Sizes&) {
  Tensor x = at::randn({kNormRows, kModelSize}).requires_grad_();
  Tensor gamma = at::randn({kModelSize}).requires_grad_();
  const Tensor dy = at::randn({kNormRows, kModelSize});
  return [=] {
    const Tensor rstd = x.square().mean(-1, /*keepdim=*/true).add_(1e-6).rsqrt_();
    (x * rstd * gamma).backward(dy);
    x.mutable_grad().reset();
    gamma.mutable_grad().reset();
  };
}

Work cross_entropy(const Sizes&) {
  Tensor logits = at::randn({kTokens, kVocabulary}).requires_grad_();
  const Tensor targets = random_ids(kTokens);
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(kSmoothing);
  return [=] {
    torch::nn::functional::cross_entropy(logits, targets, options).backward();
    logits.mutable_grad().reset();
  };
}

Work adam(const Sizes&) {
  Tensor w = at::randn({kElements}).requires_grad_();
  w.mutable_grad() = at::randn({kElements});
  // Shared, since a std::function must be copyable and an optimizer is not.
  auto optimizer = std::make_shared<torch::optim::Adam>(
      std::vector<Tensor>{w}, torch::optim::AdamOptions(1e-4).betas({0.9, 0.98}));
  return [optimizer] { optimizer->step(); };
}

// With the error function: libtorch does its approximation by tanh at half the speed.
Work gelu(const Sizes&) {
  const Tensor x = at::randn({kElements}), dy = at::randn_like(x);
  return [x, dy, y = at::empty_like(x), dx = at::empty_like(x)]() mutable {
    at::gelu_out(y, x);
    at::gelu_backward_out(dx, dy, x);
  };
}

Work tanh(const Sizes&) {
  const Tensor x = at::randn({kElements}), dy = at::randn_like(x);
  return [x, dy, y = at::empty_like(x), dx = at::empty_like(x)]() mutable {
    at::tanh_out(y, x);
    at::tanh_backward_out(dx, dy, y);
  };
}

Work sigmoid(const Sizes&) {
  const Tensor x = at::randn({kElements}), dy = at::randn_like(x);
  return [x, dy, y = at::empty_like(x), dx = at::empty_like(x)]() mutable {
    at::sigmoid_out(y, x);
    at::sigmoid_backward_out(dx, dy, y);
  };
}

Work dropout(const Sizes&) {
  const Tensor x = at::randn({kElements}), dy = at::randn_like(x);
  return [=] {
    const auto [y, mask] = at::native_dropout(x, kDropout, /*train=*/true);
    at::native_dropout_backward(dy, mask, 1 / (1 - kDropout));
  };
}

Work embedding(const Sizes&) {
  const Tensor table = at::randn({kVocabulary, kModelSize}), ids = random_ids(kTokens);
  const Tensor dy = at::randn({kTokens, kModelSize});
  return [=] {
    at::embedding(table, ids);
    at::embedding_dense_backward(dy, ids, kVocabulary, /*padding_idx=*/-1,
                                 /*scale_grad_by_freq=*/false);
  };
}

Work top_k(const Sizes&) {
  const Tensor x = at::randn({kTokens, kVocabulary});
  return [x, values = at::empty({kTokens, 5}), ids = at::empty({kTokens, 5}, at::kLong)]() mutable {
    at::topk_out(values, ids, x, 5);
  };
}

Work product(const Tensor& a, const Tensor& b) {
  return [a, b, y = at::empty({a.size(0), b.size(1)})]() mutable { at::mm_out(y, a, b); };
}

Work matmul(const Sizes& s) { return product(at::randn({s[0], s[1]}), at::randn({s[1], s[2]})); }

Work matmul_nt(const Sizes& s) {
  return product(at::randn({s[0], s[1]}), at::randn({s[2], s[1]}).t());
}

Work matmul_tn(const Sizes& s) {
  return product(at::randn({s[1], s[0]}).t(), at::randn({s[1], s[2]}));
}

Work bmm(const Sizes& s) {
  const Tensor a = at::randn({s[0], s[1], s[2]}), b = at::randn({s[0], s[2], s[3]});
  return [a, b, y = at::empty({s[0], s[1], s[3]})]() mutable { at::bmm_out(y, a, b); };
}

Work linear_gelu(const Sizes& s) {
  const Tensor x = at::randn({s[0], s[1]}), w = at::randn({s[2], s[1]}), bias = at::randn({s[2]});
  return [x, wt = w.t(), bias, y = at::empty({s[0], s[2]})]() mutable {
    at::addmm_out(y, bias, x, wt);
    at::gelu_(y);
  };
}

struct Op {
  size_t sizes;  // how many follow the name, as in "op/bmm/8x32x64x32"
  Work (*set_up)(const Sizes&);
};

const std::map<std::string, Op, std::less<>> kOps = {
    {"adam", {0, adam}},
    {"bmm", {4, bmm}},
    {"cross_entropy", {0, cross_entropy}},
    {"dropout", {0, dropout}},
    {"embedding", {0, embedding}},
    {"gelu", {0, gelu}},
    {"layer_norm", {0, layer_norm}},
    {"linear_gelu", {3, linear_gelu}},
    {"log_softmax", {0, log_softmax}},
    {"matmul", {3, matmul}},
    {"matmul_nt", {3, matmul_nt}},
    {"matmul_tn", {3, matmul_tn}},
    {"rms_norm", {0, rms_norm}},
    {"sigmoid", {0, sigmoid}},
    {"softmax", {0, softmax}},
    {"softmax_128", {0, softmax_128}},
    {"tanh", {0, tanh}},
    {"top_k", {0, top_k}},
    {"vocabulary_softmax", {0, vocabulary_softmax}},
};

Work op_work(std::string_view row) {
  static constexpr std::string_view kPrefix = "op/";
  if (row.substr(0, kPrefix.size()) != kPrefix) return {};
  row.remove_prefix(kPrefix.size());
  const size_t slash = row.find('/');
  const auto op = kOps.find(row.substr(0, slash));
  const Sizes sizes = slash == row.npos ? Sizes{} : parse_sizes(row.substr(slash + 1));
  if (op == kOps.end() || sizes.size() != op->second.sizes) return {};
  return op->second.set_up(sizes);
}

}  // namespace

std::string peer_name() {
  set_up();
  // No patch number: Debian's 1.13.1 calls itself 1.13.0.
  return "libtorch " + std::to_string(TORCH_VERSION_MAJOR) + "." +
         std::to_string(TORCH_VERSION_MINOR) + " (" + blas_name() + ", kernels " + vector_name() +
         ")";
}

void peer_threads(int threads) {
  set_up();
  // OpenMP's number, which OpenBLAS's OpenMP build asks for at every product.
  at::set_num_threads(threads);
}

Work peer_work(const std::string& row) {
  set_up();
  if (Work work = op_work(row)) return work;
  if (Work work = torch_attention_work(row)) return work;
  return torch_train_work(row);
}

int64_t peer_peak_bytes(const Work& work) {
  set_up();
  const int64_t before = CountingAllocator::held;
  CountingAllocator::peak = before;
  work();
  return CountingAllocator::peak - before;
}

}  // namespace heed::bench
