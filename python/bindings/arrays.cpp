// Arrays of others as tensors and tensors as arrays of others: NumPy's own way and DLPack
// (dmlc.github.io/dlpack, version 0), without copies.
#include "bindings.h"
#include "heed/base/check.h"
#include "heed/ops/ops.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

namespace heed::python {
namespace {

// ---- DLPack's structs, as its header lays them out

enum : int32_t { kDlCpu = 1, kDlCuda = 2 };
enum : uint8_t { kDlInt = 0, kDlFloat = 2, kDlBfloat = 4 };

struct DlDevice {
  int32_t type, index;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};

// Keeps a Python object: the lock is taken where it is let go.
std::shared_ptr<const void> kept(const py::handle& object) {
  object.inc_ref();
  return {object.ptr(), [](const void* p) {
            const py::gil_scoped_acquire lock;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(p)));
          }};
}

void want_rank(const char* name, int64_t rank) {
  require(rank >= 1 && rank <= kernels::kMaxRank, "attend: ", name, " has ", rank,
          " axes; wanted are 2 to 4");
}

Tensor seen_numpy(py::array array, const char* name) {
  const std::string type = py::str(array.dtype());
  const Type ours = type == "float32"   ? Type::f32
                    : type == "float64" ? Type::f64
                    : type == "int32"   ? Type::i32
                                        : Type::i8;
  if (ours == Type::i8) no_such_type(name, type);
  want_rank(name, array.ndim());
  // Not the array's own itemsize: its place in memory is another in NumPy 2, which an older
  // pybind11 does not know.
  const auto size = static_cast<py::ssize_t>(size_of(ours));
  // A place and strides that a tensor can have.
  bool plain = reinterpret_cast<uintptr_t>(array.data()) % size_of(ours) == 0;
  for (py::ssize_t i = 0; i < array.ndim(); ++i)
    plain = plain && array.strides(i) >= 0 && array.strides(i) % size == 0;
  if (!plain) array = array.attr("copy")();
  std::vector<int64_t> shape, strides;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(array.shape(i));
    strides.push_back(array.strides(i) / size);
  }
  return look_at({.data = const_cast<void*>(array.data()), .owner = kept(array)}, Shape(shape),
                 Shape(strides), ours);
}

Tensor seen_dlpack(const py::handle& array, const char* name, uintptr_t stream) {
  const ChosenDevice where = device_of(array, name);
  py::object given = where.device == Device::cuda
                         ? array.attr("__dlpack__")(py::arg("stream") = stream)
                         : array.attr("__dlpack__")();
  auto* const managed = static_cast<DlManaged*>(PyCapsule_GetPointer(given.ptr(), "dltensor"));
  if (!managed) throw py::error_already_set();
  const DlTensor& t = managed->tensor;
  std::optional<Type> type;
  if (t.type.code == kDlFloat && t.type.bits == 32) type = Type::f32;
  if (t.type.code == kDlFloat && t.type.bits == 64) type = Type::f64;
  if (t.type.code == kDlBfloat && t.type.bits == 16) type = Type::bf16;
  if (t.type.code == kDlInt && t.type.bits == 32) type = Type::i32;
  if (!type || t.type.lanes != 1)
    no_such_type(name, (t.type.code == kDlInt ? "int" : "a type of ") +
                           std::to_string(t.type.bits) + (t.type.code == kDlInt ? "" : " bits"));
  want_rank(name, t.rank);
  const Shape shape(std::span(t.shape, static_cast<size_t>(t.rank)));
  const Shape strides =
      t.strides ? Shape(std::span(t.strides, static_cast<size_t>(t.rank))) : row_major(shape);
  PyCapsule_SetName(given.ptr(), "used_dltensor");
  const std::shared_ptr<const void> owner(managed, [](const void* p) {
    auto* const m = static_cast<DlManaged*>(const_cast<void*>(p));
    const py::gil_scoped_acquire lock;
    if (m->deleter) m->deleter(m);
  });
  return look_at({.data = static_cast<std::byte*>(t.data) + t.byte_offset,
                  .device = where.device,
                  .owner = owner},
                 shape, strides, *type);
}

// A tensor on a GPU that others look at, and the context whose stream it is computed on.
struct Array {
  Tensor tensor;
  std::shared_ptr<Context> context;
  uintptr_t stream;

  // Before somebody reads it on another stream.
  void wait() const {
    const py::gil_scoped_release free;
    const UseContext in(*context);
    cuda_synchronize();
  }
};

struct Shared {  // what a capsule keeps
  DlManaged managed;
  Tensor tensor;
  std::vector<int64_t> shape, strides;
};

py::capsule capsule_of(const Array& array) {
  const Tensor& x = array.tensor;
  auto shared = std::make_unique<Shared>();
  shared->tensor = x;
  shared->shape.assign(x.shape().begin(), x.shape().end());
  shared->strides.assign(x.strides().begin(), x.strides().end());
  const uint8_t code = x.type() == Type::bf16  ? uint8_t(kDlBfloat)
                       : x.type() == Type::i32 ? uint8_t(kDlInt)
                                               : uint8_t(kDlFloat);
  shared->managed = {{x.raw(),
                      {kDlCuda, array.context->index()},
                      x.rank(),
                      {code, static_cast<uint8_t>(8 * size_of(x.type())), 1},
                      shared->shape.data(),
                      shared->strides.data(),
                      0},
                     shared.get(),
                     [](DlManaged* m) { delete static_cast<Shared*>(m->context); }};
  return py::capsule(&shared.release()->managed, "dltensor", [](PyObject* object) {
    if (!PyCapsule_IsValid(object, "dltensor")) return;  // taken: its taker lets it go
    auto* const m = static_cast<DlManaged*>(PyCapsule_GetPointer(object, "dltensor"));
    m->deleter(m);
  });
}

}  // namespace

// ---- PyTorch's own names, which take a tenth of DLPack's time

namespace {

struct Names {
  PyObject *data_ptr = PyUnicode_InternFromString("data_ptr"),
           *dtype = PyUnicode_InternFromString("dtype"),
           *shape = PyUnicode_InternFromString("shape"),
           *stride = PyUnicode_InternFromString("stride"),
           *get_device = PyUnicode_InternFromString("get_device"),
           *contiguous = PyUnicode_InternFromString("contiguous");
};
const Names& names() {
  static const Names all;
  return all;
}

py::object owned(PyObject* made) {
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}
py::object got(const py::handle& x, PyObject* which) {
  return owned(PyObject_GetAttr(x.ptr(), which));
}
py::object called(const py::handle& x, PyObject* which) {
  return owned(PyObject_CallMethodNoArgs(x.ptr(), which));
}
bool of_torch(const py::handle& x) {
  return !py::isinstance<py::array>(x) && PyObject_HasAttr(x.ptr(), names().data_ptr);
}
int64_t number(PyObject* x) {
  const int64_t n = PyLong_AsLongLong(x);
  if (n == -1 && PyErr_Occurred()) throw py::error_already_set();
  return n;
}
// -1: the CPU.
int gpu_of(const py::handle& tensor) {
  return static_cast<int>(number(called(tensor, names().get_device).ptr()));
}
int gpu_number(const ChosenDevice& where) {
  return where.device == Device::cuda ? where.index : -1;
}

Type torch_type(const py::object& dtype, const char* name) {
  struct Known {
    const char* said;
    Type type;
    PyObject* object;  // there is one of each; found when it is first met
  };
  static Known known[] = {{"torch.float32", Type::f32, nullptr},
                          {"torch.bfloat16", Type::bf16, nullptr},
                          {"torch.float64", Type::f64, nullptr},
                          {"torch.int32", Type::i32, nullptr}};
  for (const Known& k : known)
    if (k.object == dtype.ptr()) return k.type;
  const std::string said = py::str(dtype);
  for (Known& k : known)
    if (said == k.said) return k.object = dtype.inc_ref().ptr(), k.type;
  no_such_type(name, said);
}

}  // namespace

void* address_of(const py::handle& tensor) {
  return reinterpret_cast<void*>(
      static_cast<uintptr_t>(number(called(tensor, names().data_ptr).ptr())));
}

Tensor operand(const py::handle& array, const char* name, const ChosenDevice& where,
               uintptr_t stream) {
  if (!of_torch(array)) return seen(array, name, stream);
  auto tensor = py::reinterpret_borrow<py::object>(array);
  if (const int gpu = gpu_of(tensor), wanted = gpu_number(where); gpu != wanted) {
    const auto said = [](int index) {
      return index < 0 ? std::string("cpu") : "cuda:" + std::to_string(index);
    };
    fail("attend: q is on ", said(wanted), ", ", name, " on ", said(gpu),
         "; all must be on one device");
  }
  const Type type = torch_type(got(tensor, names().dtype), name);
  int64_t shape[kernels::kMaxRank], strides[kernels::kMaxRank];
  size_t rank = 0;
  const auto take = [&] {
    const py::object s = got(tensor, names().shape), t = called(tensor, names().stride);
    rank = static_cast<size_t>(PyTuple_GET_SIZE(s.ptr()));
    want_rank(name, static_cast<int64_t>(rank));
    for (size_t i = 0; i < rank; ++i) {
      shape[i] = number(PyTuple_GET_ITEM(s.ptr(), i));
      strides[i] = number(PyTuple_GET_ITEM(t.ptr(), i));
    }
  };
  take();
  if (shape[rank - 1] > 1 && strides[rank - 1] != 1) {  // its memory is PyTorch's, too
    tensor = called(tensor, names().contiguous);
    take();
  }
  return look_at({.data = address_of(tensor), .device = where.device, .owner = kept(tensor)},
                 Shape(std::span(shape, rank)), Shape(std::span(strides, rank)), type);
}

Tensor lent(const py::handle& array, const char* name, const Shape& shape, Type type,
            const ChosenDevice& where) {
  if (!of_torch(array)) return seen(array, name);
  return look_at({.data = address_of(array), .device = where.device, .owner = kept(array)}, shape,
                 type);
}

void no_such_type(const char* name, const std::string& given) {
  throw py::type_error("attend: " + std::string(name) +
                       " wants float32 or float64 (on a GPU also bfloat16), given " + given);
}

ChosenDevice device_of(const py::handle& array, const char* name) {
  if (py::isinstance<py::array>(array)) return {};
  if (of_torch(array)) {
    const int gpu = gpu_of(array);
    return gpu < 0 ? ChosenDevice{} : ChosenDevice{Device::cuda, gpu};
  }
  if (!py::hasattr(array, "__dlpack__") || !py::hasattr(array, "__dlpack_device__"))
    throw py::type_error(
        "attend: " + std::string(name) +
        " wants a NumPy array or one with __dlpack__ (PyTorch, CuPy, JAX), given " +
        py::str(py::type::of(array).attr("__name__")).cast<std::string>());
  const auto where = array.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  if (where.first == kDlCpu) return {};
  require(where.first == kDlCuda, "attend: ", name, " is on a device of DLPack's kind ",
          where.first, "; heed computes on a CPU (1) and on CUDA (2)");
  return {Device::cuda, where.second};
}

Tensor seen(const py::handle& array, const char* name, uintptr_t stream) {
  if (py::isinstance<py::array>(array))
    return seen_numpy(py::reinterpret_borrow<py::array>(array), name);
  return seen_dlpack(array, name, stream);
}

py::object shown(const Tensor& given) {
  const Tensor x = contiguous(given);
  if (x.device() == Device::cuda)
    return py::cast(Array{x, Context::current().shared_from_this(),
                          reinterpret_cast<uintptr_t>(cuda_stream())});
  const auto owner = std::make_shared<Tensor>(x);
  const std::vector<py::ssize_t> shape(x.shape().begin(), x.shape().end());
  if (x.type() == Type::f64) return view_of(x.data<double>(), shape, owner);
  return view_of(x.data<float>(), shape, owner);
}

void add_arrays(py::module_& m) {
  py::class_<Array>(m, "Array")
      .def(
          "__dlpack__",
          [](const Array& a, const py::object& stream, const py::kwargs&) {
            // Nothing: the default stream. -1: the reader sees to it.
            const int64_t reader = stream.is_none() ? 1 : stream.cast<int64_t>();
            if (reader != -1 && static_cast<uintptr_t>(reader) != a.stream) a.wait();
            return capsule_of(a);
          },
          py::arg("stream") = py::none())
      .def("__dlpack_device__",
           [](const Array& a) { return py::make_tuple(int32_t{kDlCuda}, a.context->index()); });
}

}  // namespace heed::python
