// Tensor: a value that lives on a device. A handle: copying it shares the numbers.
//
// Row-major with strides, so that a transposed or cut tensor is a view of the same numbers. Shapes
// are written with the same letters everywhere: B batch, T time, H heads, D model size, d head
// size, V vocabulary, K beam.
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
#include "heed/tensor/device.h"

namespace heed {

// Up to six sizes, kept inline.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return size_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return size_[static_cast<size_t>(axis)]; }
  int64_t count() const;
  const int64_t* begin() const { return size_.data(); }
  const int64_t* end() const { return size_.data() + rank_; }
  bool operator==(const Shape& other) const;

 private:
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

class Tensor {
 public:
  Tensor() = default;                                          // no tensor: only to be assigned to
  explicit Tensor(const Shape& shape, Type type = Type::f32);  // numbers not set

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return stride_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int axis) const { return shape_[axis < 0 ? axis + rank() : axis]; }
  int64_t stride(int axis) const { return stride_[axis < 0 ? axis + rank() : axis]; }
  int64_t count() const { return shape_.count(); }
  Type type() const { return type_; }
  Device device() const { return device_; }
  bool contiguous() const;
  // True if no other tensor shares the numbers: they may be overwritten unseen.
  bool sole_owner() const { return storage_.use_count() == 1; }

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
    return static_cast<std::byte*>(storage_.get()) + static_cast<size_t>(offset_) * size_of(type_);
  }
  // The ids of a contiguous tensor that ids() made, or of a part of it, as the host sees them: what
  // an op checks, whatever the device.
  std::span<const Id> host_ids() const;
  // The only number of a tensor with one.
  double item() const;
  // All numbers in row-major order, as doubles.
  std::vector<double> values() const;

  // The same numbers seen with another shape; `offset` counts from this tensor's first number.
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset = 0) const;

  // Recording (ops/tape.h).
  const std::shared_ptr<ParameterState>& parameter_state() const { return state_; }
  const Slot& slot() const { return slot_; }
  void set_parameter_state(std::shared_ptr<ParameterState> state) { state_ = std::move(state); }
  void set_slot(Slot slot) { slot_ = slot; }
  // The same numbers, unknown to any tape.
  Tensor detached() const;

 private:
  friend Tensor ids(std::span<const Id> values, const Shape& shape);
  friend Tensor uploaded(std::span<const std::byte> bytes, const Shape& shape, Type type);

  std::shared_ptr<void> storage_;
  std::shared_ptr<const std::vector<Id>> host_;  // on a GPU: what ids() was given
  int64_t offset_ = 0;
  Shape shape_, stride_;
  Type type_ = Type::f32;
  Device device_ = Device::cpu;
  Slot slot_;
  std::shared_ptr<ParameterState> state_;
};

// Strides of a row-major array.
Shape row_major(const Shape& shape);

// The same numbers on another device, with the same strides; x itself if it lives there. Not
// recorded.
Tensor to(const Tensor& x, Device device);

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
