// The extension module heed._core: errors, signals, what the build is.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
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

}  // namespace

void run_interruptibly(const std::function<void(const std::atomic<bool>&)>& work) {
  std::atomic<bool> stop = false;
  if (!on_main_thread()) {
    const py::gil_scoped_release free;
    work(stop);
    return;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::exception_ptr error;
  std::thread helper([&] {
    try {
      work(stop);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    over = true;
    changed.notify_one();
  });
  bool raised = false;
  for (bool waiting = true; waiting;) {
    {
      const py::gil_scoped_release free;
      std::unique_lock lock(mutex);
      waiting = !changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return over; });
    }
    if (waiting && !raised && PyErr_CheckSignals() != 0) raised = stop = true;
    if (waiting && raised) {
      // What was raised waits with us; nothing of Python runs before it is passed on.
      const py::error_scope kept;
      const py::gil_scoped_release free;
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return over; });
      waiting = false;
    }
  }
  helper.join();
  if (raised) throw py::error_already_set();
  if (error) std::rethrow_exception(error);
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
  add_arrays(m);
  add_translation(m);
  add_language(m);
  add_attention(m);
  add_training(m);
  add_metrics(m);
}
