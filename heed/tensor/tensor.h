// Tensor: a value that lives on a device. A handle: copying it shares the numbers.
//
// Row-major with strides, so that a transposed or cut tensor is a view of the same numbers. Shapes
// are written with the same letters everywhere: B batch, T time, H heads, D model size, d head
// size, V vocabulary, K beam.
//
// Threads: a handle; many may read the elements of one, and copy different handles to them, at
// once.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/random.h"
#include "heed/tensor/context.h"
#include "heed/tensor/device.h"

namespace heed {

// Up to six sizes, kept inline.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  // Throws Error unless 0 <= axis < rank().
  int64_t operator[](int axis) const { return size_[checked(axis)]; }
  int64_t& operator[](int axis) { return size_[checked(axis)]; }
  int64_t count() const;
  const int64_t* begin() const { return size_.data(); }
  const int64_t* end() const { return size_.data() + rank_; }
  bool operator==(const Shape& other) const;

 private:
  size_t checked(int axis) const {
    if (static_cast<unsigned>(axis) >= static_cast<unsigned>(rank_)) [[unlikely]]
      no_such_axis(axis);
    return static_cast<size_t>(axis);
  }
  [[noreturn]] void no_such_axis(int axis) const;

  std::array<int64_t, kernels::kMaxRank> size_{};
  int rank_ = 0;
};
std::ostream& operator<<(std::ostream&, const Shape&);  // [2, 3]

class Tensor;

// Where the gradient of a parameter gathers. Shared by all copies of the parameter's tensor.
struct ParameterState {
  std::shared_ptr<Tensor> grad;             // null: no gradient yet
  std::shared_ptr<struct WeightUses> uses;  // while a tape is open: ops/weight.h
  std::shared_ptr<Tensor> compute_copy;     // the parameter in bf16, or null: nn/module.h
};

// A tensor's place on a tape (ops/tape.h): the tape's number and the index of the record that made
// the tensor.
struct Slot {
  uint64_t tape = 0;
  int64_t index = -1;
};

// The memory of tensors: a block of an arena, or somebody else's.
struct Storage {
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  void* data = nullptr;
  std::shared_ptr<Arena> arena = nullptr;       // null: not ours to release
  size_t bytes = 0;                             // that tensors may look at
  std::shared_ptr<const void> owner = nullptr;  // of foreign memory: kept alive
  Device device = Device::cpu;
  uint64_t context = 0;  // 0: none, it never changes
  // Of weights that lie in an order of their own: ops/int8.h, ops/bf16.h.
  std::shared_ptr<const struct Int8Matrix> int8 = nullptr;
  std::shared_ptr<const struct Bf16Matrix> bf16 = nullptr;
};

class Tensor {
 public:
  Tensor() = default;                                          // no tensor: only to be assigned to
  explicit Tensor(const Shape& shape, Type type = Type::f32);  // numbers not set

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return stride_; }
  int rank() const { return shape_.rank(); }
  // A negative axis counts from the end. Both throw Error where there is no such axis.
  int64_t size(int axis) const { return shape_[counted(axis)]; }
  int64_t stride(int axis) const { return stride_[counted(axis)]; }
  int64_t count() const { return shape_.count(); }
  Type type() const { return type_; }
  Device device() const { return storage_ ? storage_->device : Device::cpu; }
  // The number of the context that it was made in; 0: it never changes, and is read in all.
  uint64_t context() const { return storage_ ? storage_->context : 0; }
  bool contiguous() const;
  // True if nobody else sees the elements: they may be overwritten unseen.
  bool sole_owner() const { return storage_.use_count() == 1 && storage_->arena; }

  // The first number, in the memory of the tensor's device. Throws Error if the tensor holds
  // another type.
  template <class T>
  T* data() const {
    require(!defined() || type_ == type_of<T>(), "tensor: holds ", name(type_), ", asked for ",
            name(type_of<T>()));
    return static_cast<T*>(raw());
  }
  // The same, whatever the type.
  void* raw() const {
    require(defined(), "tensor: there is none; it was never given a value");
    check_launching(storage_->device, storage_->context);
    return static_cast<std::byte*>(storage_->data) + static_cast<size_t>(offset_) * size_of(type_);
  }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  // The ids of a contiguous tensor that ids() made, or of a part of it, as the host sees them: what
  // an op checks, whatever the device.
  std::span<const Id> host_ids() const;
  // Not of ids that a kernel has found on a GPU, which are its own to answer for.
  bool has_host_ids() const { return device() == Device::cpu || host_; }
  // The only number of a tensor with one.
  double item() const;
  // All numbers in row-major order, as doubles.
  std::vector<double> values() const;

  // The same numbers seen with another shape; `offset` counts from this tensor's first number.
  // Throws Error where an element would lie outside of the memory that the tensor looks at.
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset = 0) const;

  // Recording (ops/tape.h).
  const std::shared_ptr<ParameterState>& parameter_state() const { return state_; }
  const Slot& slot() const { return slot_; }
  void set_parameter_state(std::shared_ptr<ParameterState> state) { state_ = std::move(state); }
  void set_slot(Slot slot) { slot_ = slot; }
  // The same numbers, unknown to any tape.
  Tensor detached() const;

 private:
  int counted(int axis) const {
    const int from_front = axis < 0 ? axis + rank() : axis;
    if (from_front < 0 || from_front >= rank()) [[unlikely]]
      no_such_axis(axis);
    return from_front;
  }
  [[noreturn]] void no_such_axis(int axis) const;

  friend Tensor ids(std::span<const Id> values, const Shape& shape);
  friend Tensor tensor_in(std::shared_ptr<Storage> storage, const Shape& shape, Type type);

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<const std::vector<Id>> host_;  // on a GPU: what ids() was given
  int64_t offset_ = 0;
  Shape shape_, stride_;
  Type type_ = Type::f32;
  Slot slot_;
  std::shared_ptr<ParameterState> state_;
};

// As NumPy writes it: rows in brackets, in columns, and of more than 1000 elements only the first
// and last three of each axis. What lies on a GPU comes to the host for it.
std::ostream& operator<<(std::ostream&, const Tensor&);

// Strides of a row-major array.
Shape row_major(const Shape& shape);

// The same numbers on another device, with the same strides; x itself if it lives there. Not
// recorded.
Tensor to(const Tensor& x, Device device);

// Memory that somebody else owns, such as a NumPy array or a tensor of PyTorch, seen as a tensor of
// the context in use, without a copy: `strides` count elements, `owner` (may be null: the caller
// sees to it) is kept until no tensor looks there any more. What others write there meanwhile must
// be in order with what is computed here: on a GPU on the context's stream
// (Context::Options::stream).
struct ForeignMemory {
  void* data = nullptr;
  Device device = Device::cpu;
  std::shared_ptr<const void> owner = nullptr;
  bool constant = false;  // it never changes: to be read in every context
};
Tensor look_at(const ForeignMemory& memory, const Shape& shape, Type type = Type::f32);
Tensor look_at(const ForeignMemory& memory, const Shape& shape, const Shape& strides, Type type);

// A copy in the context in use of what lies in the host's memory: for results that leave a context.
Tensor received(const Tensor& x);

// A tensor on the current device from the host's bytes.
Tensor uploaded(std::span<const std::byte> bytes, const Shape& shape, Type type);

// Overwrites the numbers of a contiguous tensor by as many bytes of the host's memory.
void set_numbers(const Tensor& x, std::span<const std::byte> bytes);

Tensor empty_like(const Tensor& x);
Tensor full(const Shape& shape, double value, Type type = Type::f32);
Tensor zeros(const Shape& shape, Type type = Type::f32);
Tensor tensor(std::span<const float> values, const Shape& shape);
Tensor tensor(std::initializer_list<float> values, const Shape& shape);
Tensor tensor(std::span<const double> values, const Shape& shape, Type type);  // converted to type
Tensor ids(std::span<const Id> values, const Shape& shape);
// Normal with mean 0, or uniform in [-bound, bound].
Tensor normal(const Shape& shape, double deviation, Random& random, Type type = Type::f32);
Tensor uniform(const Shape& shape, double bound, Random& random, Type type = Type::f32);

}  // namespace heed
