// Ops that move no numbers, or move them unchanged.
#include <algorithm>
#include <vector>

#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

int checked_axis(const char* op, const Tensor& x, int axis) {
  require(axis >= -x.rank() && axis < x.rank(), op, ": axis ", axis, " of a tensor with ", x.rank(),
          " axes, shape ", x.shape());
  return axis < 0 ? axis + x.rank() : axis;
}

// y = x or y += x. Neighbouring axes that both walk through without a jump are one axis.
void move_numbers(const Tensor& x, const Tensor& y, bool add) {
  if (x.count() == 0) return;
  const auto fill = [&]<class T>() {
    kernels::Copy<T> k{.add = add,
                       .rank = 0,
                       .size = {},
                       .x_stride = {},
                       .y_stride = {},
                       .x = static_cast<const T*>(x.raw()),
                       .y = static_cast<T*>(y.raw())};
    for (int i = 0; i < x.rank(); ++i) {
      if (x.size(i) == 1) continue;
      const int last = k.rank - 1;
      if (last >= 0 && k.x_stride[last] == x.stride(i) * x.size(i) &&
          k.y_stride[last] == y.stride(i) * x.size(i)) {
        k.size[last] *= x.size(i);
        k.x_stride[last] = x.stride(i);
        k.y_stride[last] = y.stride(i);
      } else {
        k.size[k.rank] = x.size(i);
        k.x_stride[k.rank] = x.stride(i);
        k.y_stride[k.rank] = y.stride(i);
        ++k.rank;
      }
    }
    if (k.rank == 0) k.rank = 1, k.size[0] = 1, k.x_stride[0] = k.y_stride[0] = 1;
    return k;
  };
  if (x.type() == Type::i32) {
    require(!add, "add: wants numbers, given i32");
    // Ids are as wide as floats, and a copy does not look at what it moves.
    auto k = fill.template operator()<float>();
    return launch_on("copy", x.device(), x.type(), k);
  }
  launch("copy", x, fill);
}

}  // namespace

void copy_into(const Tensor& x, const Tensor& y) { move_numbers(x, y, false); }
void add_into(const Tensor& x, const Tensor& y) { move_numbers(x, y, true); }

Tensor contiguous(const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor y(x.shape(), x.type());
  copy_into(x, y);
  return record("contiguous", {&x}, y, [](const Tensor& dy) { return Grads{dy}; });
}

Tensor reshape(const Tensor& given, const Shape& wanted) {
  Shape shape = wanted;
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      require(open < 0, "reshape: more than one -1 in ", wanted);
      open = i;
    } else {
      require(shape[i] >= 0, "reshape: negative size in ", wanted);
      known *= shape[i];
    }
  }
  require(open < 0 || known > 0, "reshape: the -1 in ", wanted, " could be anything beside a 0");
  if (open >= 0) shape[open] = given.count() / known;
  require(shape.count() == given.count(), "reshape: ", given.shape(), " has ", given.count(),
          " numbers, ", wanted, " cannot hold them");
  const Tensor x = contiguous(given);
  return record("reshape", {&x}, x.view(shape, row_major(shape)),
                [from = x.shape()](const Tensor& dy) { return Grads{reshape(dy, from)}; });
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  const int a = checked_axis("transpose", x, axis_a), b = checked_axis("transpose", x, axis_b);
  Shape shape = x.shape(), stride = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(stride[a], stride[b]);
  return record("transpose", {&x}, x.view(shape, stride),
                [a, b](const Tensor& dy) { return Grads{transpose(dy, a, b)}; });
}

Tensor slice(const Tensor& x, int given_axis, int64_t begin, int64_t end) {
  const int axis = checked_axis("slice", x, given_axis);
  require(0 <= begin && begin <= end && end <= x.size(axis), "slice: items ", begin, " to ", end,
          " of axis ", axis, " of shape ", x.shape());
  Shape shape = x.shape();
  shape[axis] = end - begin;
  return record("slice", {&x}, x.view(shape, x.strides(), begin * x.stride(axis)),
                [whole = x.shape(), axis, begin](const Tensor& dy) {
                  return Grads{Gradient(dy, whole, axis, begin)};
                });
}

Tensor concat(std::span<const Tensor> parts, int given_axis) {
  require(!parts.empty(), "concat: given no tensors");
  const Tensor& first = parts.front();
  const int axis = checked_axis("concat", first, given_axis);
  Shape shape = first.shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    Shape same = part.shape();
    require(same.rank() == shape.rank(), "concat: shapes ", first.shape(), " and ", part.shape());
    same[axis] = first.size(axis);
    require(same == first.shape() && part.type() == first.type(), "concat: along axis ", axis,
            ": shapes ", first.shape(), " and ", part.shape(), ", types ", name(first.type()),
            " and ", name(part.type()));
    shape[axis] += part.size(axis);
  }
  Tensor y(shape, first.type());
  int64_t at = 0;
  for (const Tensor& part : parts) {
    copy_into(part, y.view(part.shape(), y.strides(), at * y.stride(axis)));
    at += part.size(axis);
  }
  std::vector<int64_t> sizes;
  for (const Tensor& part : parts) sizes.push_back(part.size(axis));
  std::vector<const Tensor*> inputs;
  for (const Tensor& part : parts) inputs.push_back(&part);
  return record("concat", inputs, y, [axis, sizes](const Tensor& dy) {
    Grads grads;
    int64_t from = 0;
    for (const int64_t size : sizes) {
      grads.push_back(slice(dy, axis, from, from + size));
      from += size;
    }
    return grads;
  });
}

Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}

}  // namespace heed
