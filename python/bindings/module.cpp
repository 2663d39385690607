// The extension module heed._core: errors, signals, what the build is.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "bindings.h"
#include "heed/base/check.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/dispatch.h"
#include "heed/version.h"

namespace heed::python {
namespace {

bool on_main_thread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  return main.attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
}

// Helpers that were left to themselves: the interpreter ends after them.
class HelpersLeft {
 public:
  void one_more() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void one_ended() {  // called by the helper; what is its thread's own ends before anyone is told
    std::unique_lock lock(mutex_);
    --count_;
    std::notify_all_at_thread_exit(changed_, std::move(lock));
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};
HelpersLeft& helpers_left() {
  static HelpersLeft* const all = new HelpersLeft;  // never ends: neither do threads at exit
  return *all;
}

}  // namespace

void run_interruptibly(Work work) {
  struct Call {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false, left = false;
    std::exception_ptr error;
    std::atomic<bool> stop = false;
  };
  const auto call = std::make_shared<Call>();
  std::thread helper;
  if (on_main_thread()) try {
      helper = std::thread([call, work]() mutable {
        try {
          work(call->stop);
        } catch (...) {
          call->error = std::current_exception();
        }
        work = nullptr;  // what it kept of Python's is let go before the end
        const std::lock_guard lock(call->mutex);
        call->over = true;
        if (call->left) helpers_left().one_ended();
        call->changed.notify_one();
      });
    } catch (const std::system_error&) {  // the system starts no more threads (ulimit -u)
    }
  if (!helper.joinable()) {
    const py::gil_scoped_release free;
    work(call->stop);
    return;
  }
  for (bool waiting = true; waiting;) {
    {
      const py::gil_scoped_release free;
      std::unique_lock lock(call->mutex);
      waiting =
          !call->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return call->over; });
    }
    if (!waiting || PyErr_CheckSignals() == 0) continue;
    call->stop = true;
    const std::lock_guard lock(call->mutex);
    if (!call->over) call->left = true, helpers_left().one_more();
    helper.detach();
    throw py::error_already_set();
  }
  helper.join();
  if (call->error) std::rethrow_exception(call->error);
}

std::shared_ptr<const LoadedModel> opened(const std::string& path, const std::string& device,
                                          const std::string& compute, int threads,
                                          const std::string& shortlist) {
  const Compute numbers = compute_named(compute);
  require(threads >= 0, "threads wants a number of at least 0 (0: all cores), given ", threads);
  const ChosenDevice chosen = device_named(device);
  const auto model = interruptibly([=](const std::atomic<bool>&) {
    return LoadedModel::open(path, {.device = chosen.device,
                                    .index = chosen.index,
                                    .threads = threads,
                                    .compute = numbers,
                                    .shortlist = shortlist});
  });
  return {model.get(), [kept = model, opener = ::getpid()](const LoadedModel*) mutable {
            if (::getpid() != opener) new std::shared_ptr<const LoadedModel>(std::move(kept));
          }};
}

ChosenDevice device_named(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "auto") {
    const CudaDevices all = cuda_devices();
    return {!all.names.empty() && all.trouble.empty() ? Device::cuda : Device::cpu, 0};
  }
  const bool cuda = name.starts_with("cuda");
  const std::string rest = cuda ? name.substr(4) : "";
  require(cuda && (rest.empty() || (rest[0] == ':' && rest.size() > 1 &&
                                    rest.find_first_not_of("0123456789", 1) == std::string::npos)),
          "unknown device '", name, "'; have: auto, cpu, cuda, cuda:0, cuda:1, ...");
  const int index = rest.empty() ? 0 : std::stoi(rest.substr(1));
  require_cuda(index);
  return {Device::cuda, index};
}

}  // namespace heed::python

PYBIND11_MODULE(_core, m) {
  using namespace heed::python;
  m.doc() = "What heed's Python package is made of; its face is heed itself.";
  m.attr("version") = heed::kVersion;
  m.attr("built_with_cuda") = heed::kBuiltWithCuda;
  // A mistake of the caller's or of the world's, in heed's words.
  static const auto error = py::register_exception<heed::Error>(m, "Error", PyExc_ValueError);
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const heed::OutOfMemory& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
  });
  m.def("device_named", [](const std::string& name) {
    const ChosenDevice chosen = device_named(name);
    return std::string(heed::name(chosen.device)) +
           (chosen.index > 0 ? ":" + std::to_string(chosen.index) : "");
  });
  py::module_::import("atexit").attr("register")(
      py::cpp_function([] { helpers_left().wait(); }, py::call_guard<py::gil_scoped_release>()));
  add_arrays(m);
  add_translation(m);
  add_language(m);
  add_attention(m);
  add_training(m);
  add_metrics(m);
}
