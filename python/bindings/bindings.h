// What the files of the extension module heed._core share. The module is thin: it moves values and
// memory; names, defaults and pages for people are in python/heed.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/tensor/tensor.h"
#include "heed/translation/loaded_model.h"

namespace heed::python {

namespace py = pybind11;

// Each file's part of the module.
void add_translation(py::module_& m);
void add_language(py::module_& m);
void add_attention(py::module_& m);
void add_training(py::module_& m);
void add_metrics(py::module_& m);

// Runs `work` without the interpreter's lock. On the main thread a helper does the work meanwhile,
// so that Python's signal handlers run here within 50 ms. What one of them raises is raised at
// once: `stop` is true from then on, and the helper is left to itself, so `work` owns all that it
// touches.
using Work = std::function<void(const std::atomic<bool>& stop)>;
void run_interruptibly(Work work);

// The same of what gives something.
template <class F>
auto interruptibly(F work) {
  using Made = std::invoke_result_t<F&, const std::atomic<bool>&>;
  const auto made = std::make_shared<std::optional<Made>>();
  run_interruptibly([made, work = std::move(work)](const std::atomic<bool>& stop) mutable {
    made->emplace(work(stop));
  });
  return std::move(**made);
}

// A model's folder, opened interruptibly. In a process that was forked since, where its threads are
// not, it is never ended.
std::shared_ptr<const LoadedModel> opened(const std::string& path, const std::string& device,
                                          const std::string& compute, int threads,
                                          const std::string& shortlist = "");

// An array that looks at memory which `owner` keeps. Row-major; whoever writes to it writes there.
template <class T>
py::array view_of(T* data, const std::vector<py::ssize_t>& shape,
                  std::shared_ptr<const void> owner) {
  auto* const kept = new std::shared_ptr<const void>(std::move(owner));
  const py::capsule base(kept,
                         [](void* p) { delete static_cast<std::shared_ptr<const void>*>(p); });
  return py::array_t<T>(shape, data, base);
}

// "auto", "cpu", "cuda", "cuda:1". Throws Error for what this build or machine has not.
struct ChosenDevice {
  Device device = Device::cpu;
  int index = 0;
};
ChosenDevice device_named(const std::string& name);

// ---- arrays of others (arrays.cpp)

// A NumPy array, or anything with __dlpack__, seen as a tensor without a copy; its memory is kept
// as long as the tensor is. `stream`: the consumer's, where it lies on a GPU; 0: none is known.
Tensor seen(const py::handle& array, const char* name, uintptr_t stream = 0);
// The same for an op of another framework, which has recorded what it wants gradients of: a tensor
// of PyTorch is read by its own names. `where` is what q is on.
Tensor operand(const py::handle& array, const char* name, const ChosenDevice& where,
               uintptr_t stream);
// Where a tensor of PyTorch begins.
void* address_of(const py::handle& tensor);
// Memory for a result. PyTorch's is what heed/torch.py has just made, row-major: nothing but its
// address is asked for, which spares four calls of five.
Tensor lent(const py::handle& array, const char* name, const Shape& shape, Type type,
            const ChosenDevice& where);
// Throws TypeError: an array has numbers of another type.
[[noreturn]] void no_such_type(const char* name, const std::string& given);
// Which device an array is on, by __dlpack_device__.
ChosenDevice device_of(const py::handle& array, const char* name);
// A tensor for others: a NumPy array on a CPU, else an object with __dlpack__. No copy.
py::object shown(const Tensor& x);
void add_arrays(py::module_& m);

}  // namespace heed::python
