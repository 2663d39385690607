#include "heed/tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/dispatch.h"

namespace heed {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  require(sizes.size() <= size_.size(), "shape: at most ", size_.size(), " axes, given ",
          sizes.size());
  std::copy(sizes.begin(), sizes.end(), size_.begin());
}

void Shape::no_such_axis(int axis) const {
  fail("shape: axis ", axis, " of ", *this, ", which has ", rank_, rank_ == 1 ? " axis" : " axes");
}

int64_t Shape::count() const {
  int64_t product = 1;
  for (const int64_t size : *this) product *= size;
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

Shape row_major(const Shape& shape) {
  Shape stride = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    stride[i] = step;
    step *= shape[i];
  }
  return stride;
}

Tensor::Tensor(const Shape& shape, Type type)
    : shape_(shape), stride_(row_major(shape)), type_(type) {
  for (const int64_t size : shape) require(size >= 0, "tensor: negative size in ", shape);
  size_t bytes = size_of(type);
  for (const int64_t size : shape)
    require(!__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes) && bytes >> 60 == 0,
            "tensor: ", shape, " is more than any memory can hold");
  auto storage = std::make_shared<Storage>();
  Arena& arena = current_arena();
  storage->data = arena.allocate(bytes);
  storage->bytes = bytes;
  storage->arena = arena.shared_from_this();
  storage->device = arena.device();
  storage->context = arena.context();
  storage_ = std::move(storage);
}

Storage::~Storage() {
  if (arena) arena->release(data, bytes);
}

// A row-major tensor at the beginning of this memory.
Tensor tensor_in(std::shared_ptr<Storage> storage, const Shape& shape, Type type) {
  Tensor y;
  y.storage_ = std::move(storage);
  y.shape_ = shape, y.stride_ = row_major(shape), y.type_ = type;
  return y;
}

namespace {

// How far elements lie before and after the first one, in memory. What 64 bits do not hold is as
// far as they reach.
struct Reach {
  int64_t before = 0, after = 0;
};
Reach reach(const Shape& shape, const Shape& strides) {
  constexpr int64_t kFurthest = std::numeric_limits<int64_t>::max() / 2;
  Reach out;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t& side = strides[i] < 0 ? out.before : out.after;
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, std::abs(strides[i]), &step) ||
        __builtin_add_overflow(side, step, &side) || side > kFurthest)
      side = kFurthest;
  }
  return out;
}
bool empty(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size == 0; });
}
// From the first element to the one after the last, where strides are 0 or more.
int64_t extent(const Shape& shape, const Shape& strides) {
  return empty(shape) ? 0 : reach(shape, strides).after + 1;
}

}  // namespace

Tensor look_at(const ForeignMemory& memory, const Shape& shape, Type type) {
  return look_at(memory, shape, row_major(shape), type);
}
Tensor look_at(const ForeignMemory& memory, const Shape& shape, const Shape& strides, Type type) {
  require(shape.rank() == strides.rank(), "look_at: shape ", shape, " and strides ", strides,
          " have different numbers of axes");
  require(memory.data || shape.count() == 0, "look_at: no memory for ", shape);
  require(reinterpret_cast<uintptr_t>(memory.data) % size_of(type) == 0, "look_at: memory for ",
          name(type), " begins in the middle of an element; copy it first");
  for (int i = 0; i < shape.rank(); ++i)
    require(shape[i] >= 0 && strides[i] >= 0, "look_at: negative sizes or strides, shape ", shape,
            ", strides ", strides, "; copy it first");
  if (memory.device == Device::cuda) Context::current().gpu();
  auto storage = std::make_shared<Storage>();
  storage->data = memory.data;
  storage->bytes = static_cast<size_t>(extent(shape, strides)) * size_of(type);
  storage->owner = memory.owner;
  storage->device = memory.device;
  storage->context = memory.constant ? 0 : Context::current().number();
  return tensor_in(std::move(storage), shape, type).view(shape, strides);
}

Tensor received(const Tensor& x) {
  if (!x.defined() || x.context() == Context::current().number()) return x;
  const Tensor here = to(x, Device::cpu);
  if (here.context() == Context::current().number()) return here;
  require(here.contiguous(), "received: wants a contiguous tensor, given shape ", x.shape());
  const UseDevice host(Device::cpu);
  return uploaded({static_cast<const std::byte*>(here.raw()),
                   static_cast<size_t>(here.count()) * size_of(here.type())},
                  here.shape(), here.type());
}

bool Tensor::contiguous() const {
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

double Tensor::item() const {
  require(count() == 1, "item: wanted a tensor of one number, given shape ", shape_);
  return values()[0];
}

std::span<const Id> Tensor::host_ids() const {
  require(contiguous() && (device() == Device::cpu || host_), "tensor: ids ", shape_,
          " that were computed on a GPU; they cannot be checked on the host");
  const Id* first = device() == Device::cpu ? data<Id>() : host_->data() + offset_;
  return {first, static_cast<size_t>(count())};
}

std::vector<double> Tensor::values() const {
  if (defined() && storage_->bf16)
    fail("tensor: weights of bf16 lie in panels (ops/bf16.h); their values are not read");
  if (device() == Device::cuda) return to(*this, Device::cpu).values();
  std::vector<double> out;
  out.reserve(static_cast<size_t>(count()));
  const auto visit = [&]<class T>(const T* p) {
    const auto walk = [&](auto&& self, int axis, int64_t at) -> void {
      if (axis == rank()) {
        if constexpr (std::is_same_v<T, bf16>)
          out.push_back(static_cast<double>(static_cast<float>(p[at])));
        else
          out.push_back(static_cast<double>(p[at]));
        return;
      }
      for (int64_t i = 0; i < shape_[axis]; ++i) self(self, axis + 1, at + i * stride_[axis]);
    };
    walk(walk, 0, 0);
  };
  switch (type_) {
    case Type::f32: visit(data<float>()); break;
    case Type::f64: visit(data<double>()); break;
    case Type::bf16: visit(data<bf16>()); break;
    case Type::i32: visit(data<Id>()); break;
    case Type::i8:
      fail("tensor: weights of i8 lie in blocks (ops/int8.h); their values are not read");
  }
  return out;
}

void Tensor::no_such_axis(int axis) const {
  fail("tensor: axis ", axis, " of one with ", rank(), rank() == 1 ? " axis" : " axes", ", shape ",
       shape_);
}

Tensor Tensor::view(const Shape& shape, const Shape& strides, int64_t offset) const {
  require(defined(), "view: of no tensor; it was never given a value");
  require(shape.rank() == strides.rank(), "view: shape ", shape, " and strides ", strides,
          " have different numbers of axes");
  for (const int64_t size : shape) require(size >= 0, "view: negative size in ", shape);
  const Reach elements = reach(shape, strides);
  const int64_t first = offset_ + offset;
  const auto available = static_cast<int64_t>(storage_->bytes / size_of(type_));
  require(empty(shape) || (first >= elements.before && first < available - elements.after),
          "view: shape ", shape, " with strides ", strides, " from element ", first,
          " on reaches beyond the ", available, " elements that are there");
  Tensor y = detached();
  y.shape_ = shape;
  y.stride_ = strides;
  y.offset_ += offset;
  return y;
}

Tensor Tensor::detached() const {
  Tensor y = *this;
  y.slot_ = {};
  y.state_ = nullptr;
  return y;
}

void set_numbers(const Tensor& x, std::span<const std::byte> bytes) {
  require(x.contiguous() && bytes.size() == static_cast<size_t>(x.count()) * size_of(x.type()),
          "tensor: ", bytes.size(), " bytes for ", x.shape(), " of ", name(x.type()));
  if (bytes.empty()) return;
  if (x.device() == Device::cuda) {
    require(!graph_upload(nullptr, 0), "tensor: numbers cannot be set within a captured step");
    return copy_to_cuda(bytes.data(), x.raw(), bytes.size());
  }
  std::memcpy(x.raw(), bytes.data(), bytes.size());
}

Tensor uploaded(std::span<const std::byte> bytes, const Shape& shape, Type type) {
  // A captured step has a place of its own for what it uploads.
  void* const place = current_arena().device() == Device::cuda && !bytes.empty()
                          ? graph_upload(bytes.data(), bytes.size())
                          : nullptr;
  if (place) {
    auto storage = std::make_shared<Storage>();
    storage->data = place;
    storage->bytes = bytes.size();
    storage->device = Device::cuda;
    storage->context = Context::current().number();
    return tensor_in(std::move(storage), shape, type);
  }
  Tensor y(shape, type);
  set_numbers(y, bytes);
  return y;
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  // What is copied is in order with its own context's stream alone.
  require(x.context() == 0 || x.context() == Context::current().number(),
          "to: a tensor of another context; a tensor is used in the context that it was made in");
  // All from the first number to the last: strides stay as they are.
  const int64_t elements = extent(x.shape(), x.strides());
  const UseDevice here(device);
  Tensor y({elements}, x.type());
  const size_t bytes = static_cast<size_t>(elements) * size_of(x.type());
  if (device == Device::cuda)
    copy_to_cuda(x.raw(), y.raw(), bytes);
  else
    copy_from_cuda(x.raw(), y.raw(), bytes);
  return y.view(x.shape(), x.strides());
}

Tensor empty_like(const Tensor& x) { return Tensor(x.shape(), x.type()); }

Tensor full(const Shape& shape, double value, Type type) {
  if (type == Type::i32)
    return ids(std::vector<Id>(static_cast<size_t>(shape.count()), static_cast<Id>(value)), shape);
  Tensor y(shape, type);
  launch("full", y, [&]<class T>() {
    return kernels::Fill<T>{
        .n = y.count(), .value = static_cast<kernels::Wide<T>>(value), .y = y.data<T>()};
  });
  return y;
}

Tensor zeros(const Shape& shape, Type type) { return full(shape, 0, type); }

namespace {

template <class T>
Tensor filled(std::span<const T> values, const Shape& shape) {
  require(static_cast<int64_t>(values.size()) == shape.count(), "tensor: shape ", shape, " wants ",
          shape.count(), " numbers, given ", values.size());
  return uploaded(std::as_bytes(values), shape, type_of<T>());
}

Tensor drawn(const Shape& shape, Type type, auto draw) {
  for (const int64_t size : shape) require(size >= 0, "tensor: negative size in ", shape);
  std::vector<double> values(static_cast<size_t>(shape.count()));
  for (double& value : values) value = draw();
  return tensor(values, shape, type);
}

}  // namespace

Tensor tensor(std::span<const float> values, const Shape& shape) { return filled(values, shape); }

Tensor tensor(std::initializer_list<float> values, const Shape& shape) {
  return filled(std::span<const float>(values.begin(), values.size()), shape);
}

Tensor tensor(std::span<const double> values, const Shape& shape, Type type) {
  if (type == Type::f64) return filled(values, shape);
  require(type != Type::i32, "tensor: numbers can be f32, f64 or bf16, asked for ", name(type));
  const std::vector<float> floats(values.begin(), values.end());
  if (type == Type::bf16) {
    const std::vector<bf16> rounded(floats.begin(), floats.end());
    return filled(std::span<const bf16>(rounded), shape);
  }
  return filled(std::span<const float>(floats), shape);
}

Tensor ids(std::span<const Id> values, const Shape& shape) {
  Tensor y = filled(values, shape);
  if (y.device() == Device::cuda)
    y.host_ = std::make_shared<const std::vector<Id>>(values.begin(), values.end());
  return y;
}

Tensor normal(const Shape& shape, double deviation, Random& random, Type type) {
  return drawn(shape, type, [&] { return deviation * static_cast<double>(random.normal()); });
}

Tensor uniform(const Shape& shape, double bound, Random& random, Type type) {
  return drawn(shape, type,
               [&] { return bound * (2.0 * static_cast<double>(random.uniform()) - 1); });
}

}  // namespace heed
