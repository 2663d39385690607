#include "heed/translation/loaded_model.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <system_error>
#include <thread>

#include "heed/base/check.h"

namespace heed {

std::shared_ptr<const LoadedModel> LoadedModel::open(const std::filesystem::path& folder) {
  return open(folder, {});
}

std::shared_ptr<const LoadedModel> LoadedModel::open(const std::filesystem::path& folder,
                                                     const Options& o) {
  const std::shared_ptr<LoadedModel> made(new LoadedModel);
  made->device_ = o.device.value_or(current_arena().device());
  made->context_ = Context::make({.device = made->device_,
                                  .index = o.index,
                                  .threads = o.threads > 0 ? o.threads : threads()});
  const UseContext here(*made->context_);
  made->own_ = std::make_unique<const ModelFolder>(load_model(folder, o.compute));
  made->folder_ = made->own_.get();
  made->packed_ = std::make_shared<PackedWeights>();
  made->engine_ = std::make_unique<Engine>(*made->folder_->model, made->context_,
                                           Engine::Steps::by_device, made->packed_, o.drives);
  return made;
}

std::shared_ptr<const LoadedModel> LoadedModel::borrow(const ModelFolder& folder) {
  const std::shared_ptr<LoadedModel> made(new LoadedModel);
  made->folder_ = &folder;
  made->context_ = Context::current().shared_from_this();
  made->device_ = current_arena().device();
  made->engine_ = std::make_unique<Engine>(*folder.model);
  return made;
}

Engine& LoadedModel::lane(size_t number) const {
  const std::lock_guard lock(mutex_);
  while (lanes_.size() <= number)
    lanes_.push_back(std::make_unique<Engine>(*folder_->model,
                                              Context::make({.device = device_, .threads = 1}),
                                              Engine::Steps::by_device, packed_));
  return *lanes_[number];
}

int64_t LoadedModel::lanes(std::span<const Engine::Request> requests) const {
  constexpr int64_t kEach = 4;  // sentences that are worth a thread of their own
  // Where one thread takes all steps, sentences of all callers are together in them.
  const bool apart =
      own_ && device_ == Device::cpu && engine_->drives() == Engine::Drives::callers &&
      std::ranges::none_of(requests, [](const auto& r) { return static_cast<bool>(r.progress); });
  const int64_t most = apart ? context_->pool().threads() : 1;
  return std::clamp<int64_t>(std::ssize(requests) / kEach, 1, most);
}

namespace {

// A thread's part of the requests, and what became of it.
struct Part {
  std::vector<size_t> numbers = {};
  std::vector<Engine::Request> requests = {};
  std::vector<Engine::Result> results = {};
  std::exception_ptr error = nullptr;
};

// What is done, told on the thread that asked.
class Told {
 public:
  Told(const std::function<void(size_t)>& done, size_t parts) : done_(done), left_(parts) {}

  void note(size_t number) {
    const std::lock_guard lock(mutex_);
    ready_.push_back(number);
    changed_.notify_one();
  }
  void part_is_over() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_one();
  }
  void tell() {
    std::vector<size_t> ready;
    {
      const std::lock_guard lock(mutex_);
      ready.swap(ready_);
    }
    for (const size_t i : ready) done_(i);
  }
  // Until something is ready, or all parts are over: false.
  bool wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ == 0 || !ready_.empty(); });
    return !ready_.empty();
  }

 private:
  const std::function<void(size_t)>& done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> ready_;
  size_t left_;
};

}  // namespace

std::vector<Engine::Result> LoadedModel::decode(std::vector<Engine::Request> requests,
                                                const std::function<void(size_t)>& done) const {
  const auto count = static_cast<size_t>(lanes(requests));
  if (count == 1) return engine_->decode(std::move(requests), done);
  std::vector<Part> parts(count);
  for (size_t i = 0; i < requests.size(); ++i) {  // by turns: they come sorted by length
    parts[i % count].numbers.push_back(i);
    parts[i % count].requests.push_back(std::move(requests[i]));
  }
  Told told(done, count);
  const auto work = [&](size_t number, const std::function<void()>& tell) {
    Part& part = parts[number];
    std::function<void(size_t)> each;
    if (done)
      each = [&](size_t i) {
        told.note(part.numbers[i]);
        if (tell) tell();
      };
    try {
      part.results = lane(number).decode(std::move(part.requests), each);
    } catch (...) {
      part.error = std::current_exception();
    }
    told.part_is_over();
  };
  std::vector<std::thread> others;
  std::vector<size_t> here;  // where the system starts no more threads (ulimit -u)
  for (size_t i = 1; i < count; ++i) try {
      others.emplace_back(work, i, nullptr);
    } catch (const std::system_error&) {
      here.push_back(i);
    }
  work(0, [&] { told.tell(); });
  for (const size_t i : here) work(i, nullptr);
  std::exception_ptr in_done = parts[0].error;
  while (told.wait()) try {
      if (in_done) break;
      told.tell();
    } catch (...) {
      in_done = std::current_exception();
    }
  for (std::thread& thread : others) thread.join();
  std::vector<Engine::Result> out(requests.size());
  for (Part& part : parts) {
    if (part.error) std::rethrow_exception(part.error);
    for (size_t i = 0; i < part.numbers.size(); ++i)
      out[part.numbers[i]] = std::move(part.results[i]);
  }
  if (in_done) std::rethrow_exception(in_done);
  return out;
}

Engine::Load LoadedModel::load() const {
  Engine::Load sum = engine_->load();
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) {
    const Engine::Load own = lane->load();
    sum.steps += own.steps, sum.sentences += own.sentences, sum.waiting += own.waiting;
  }
  return sum;
}

LoadedModel::Turn::Turn(const LoadedModel& model)
    : turn_(model.engine().turns()),
      context_(*model.context_),
      device_(model.device_),
      packed_(model.packed_ ? model.packed_ : std::make_shared<PackedWeights>()) {}

}  // namespace heed
