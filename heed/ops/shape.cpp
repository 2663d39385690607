// Ops that move no elements, or move them unchanged.
#include <algorithm>
#include <memory>
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
template <class T>
kernels::Copy<T> copy_of(const Tensor& x, const Tensor& y, bool add) {
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
}
// Ids are as wide as floats, and a copy does not look at what it moves.
template <class Make>
void launch_copy(const Tensor& x, Make&& make) {
  if (x.type() != Type::i32) return launch("copy", x, make);
  launch_on("copy", x.device(), x.type(), make.template operator()<float>());
}
void move_elements(const Tensor& x, const Tensor& y, bool add) {
  if (x.count() == 0) return;
  require(!add || x.type() != Type::i32, "add: wants numbers, given i32");
  launch_copy(x, [&]<class T>() { return copy_of<T>(x, y, add); });
}

// Many copies y = x; on a GPU those of whole rows in one launch.
struct Move {
  Tensor x, y;
};
void copy_all(std::span<const Move> all) {
  std::vector<Move> rows;
  for (const Move& m : all) {
    const kernels::Copy<char> k = copy_of<char>(m.x, m.y, false);
    const int last = k.rank - 1;
    const bool by_row = last <= 1 && k.x_stride[last] == 1 && k.y_stride[last] == 1;
    if (m.x.device() == Device::cpu || !by_row)
      copy_into(m.x, m.y);
    else
      rows.push_back(m);
  }
  for (size_t first = 0; first < rows.size(); first += kernels::kMaxParts) {
    const size_t end = std::min(rows.size(), first + kernels::kMaxParts);
    launch_copy(rows[first].x, [&]<class T>() {
      kernels::CopyParts<T> parts{};
      for (size_t i = first; i < end; ++i) {
        const kernels::Copy<T> k = copy_of<T>(rows[i].x, rows[i].y, false);
        const int last = k.rank - 1;
        parts.part[parts.count++] = {.rows = last == 1 ? k.size[0] : 1,
                                     .n = k.size[last],
                                     .x = k.x,
                                     .x_row = last == 1 ? k.x_stride[0] : k.size[last],
                                     .y = k.y,
                                     .y_row = last == 1 ? k.y_stride[0] : k.size[last]};
      }
      return parts;
    });
  }
}

}  // namespace

void copy_into(const Tensor& x, const Tensor& y) { move_elements(x, y, false); }
void add_into(const Tensor& x, const Tensor& y) { move_elements(x, y, true); }

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
  if (x.shape() == shape) return x;
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
  if (begin == 0 && end == x.size(axis)) return x;
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
  const Tensor* only = &first;
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
    if (part.size(axis) == shape[axis]) only = &part;
  }
  // All others have no elements.
  if (only->size(axis) == shape[axis]) return *only;
  Tensor y(shape, first.type());
  std::vector<Move> moves;
  std::vector<Shape> shapes;
  std::vector<bool> wanted;
  std::vector<const Tensor*> inputs;
  int64_t at = 0;
  for (const Tensor& part : parts) {
    moves.push_back({part, y.view(part.shape(), y.strides(), at * y.stride(axis))});
    shapes.push_back(part.shape());
    wanted.push_back(tracked(part));
    inputs.push_back(&part);
    at += part.size(axis);
  }
  copy_all(moves);
  // Each part gets a tensor of its own: gradients from elsewhere can be added to it in place.
  return record("concat", inputs, y, [axis, shapes, wanted](const Tensor& dy) {
    Grads grads(shapes.size());
    std::vector<Move> back;
    int64_t from = 0;
    for (size_t i = 0; i < shapes.size(); from += shapes[i][axis], ++i) {
      if (!wanted[i]) continue;
      const Tensor part(shapes[i], dy.type());
      back.push_back({dy.view(shapes[i], dy.strides(), from * dy.stride(axis)), part});
      grads[i] = part;
    }
    copy_all(back);
    return grads;
  });
}

Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}

Tensor stack(std::span<const Tensor> parts) {
  std::vector<Tensor> rows;
  for (const Tensor& part : parts) {
    std::vector<int64_t> sizes{1};
    sizes.insert(sizes.end(), part.shape().begin(), part.shape().end());
    rows.push_back(reshape(part, Shape(sizes)));
  }
  return concat(rows, 0);
}

std::vector<Tensor> unstack(const Tensor& x) {
  require(x.rank() >= 1, "unstack: wants at least one axis, given ", x.shape());
  const Shape shape(std::span(x.shape().begin() + 1, x.shape().end()));
  const Shape strides(std::span(x.strides().begin() + 1, x.strides().end()));
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.size(0); ++i) parts.push_back(x.view(shape, strides, i * x.stride(0)));
  // A record for all, which has no elements and lies before those of the parts: in the backward
  // pass its turn comes when theirs is over, and the deferred gradients are put together.
  const auto deferred = std::make_shared<std::vector<Tensor>>(parts.size());
  const auto nothing = [type = x.type()] { return Tensor({0}, type); };
  const Tensor all =
      record("unstack", {&x}, nothing(), [deferred, whole = x.shape(), shape](const Tensor& dy) {
        const Tensor dx(whole, dy.type());
        std::vector<Move> moves;
        for (size_t i = 0; i < deferred->size(); ++i) {
          Tensor& part = (*deferred)[i];
          if (!part.defined()) part = zeros(shape, dy.type());
          moves.push_back({part, dx.view(shape, row_major(shape), int64_t(i) * dx.stride(0))});
        }
        copy_all(moves);
        return Grads{dx};
      });
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = record("unstack", {&all}, parts[i], [deferred, i, nothing](const Tensor& dy) {
      (*deferred)[i] = dy;
      return Grads{nothing()};
    });
  return parts;
}

}  // namespace heed
