#include "heed/ops/cache.h"

#include <cstring>
#include <numeric>

#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// At most so many arrays in one launch.
template <class Body>
void by_launch(size_t count, Body body) {
  constexpr size_t most = kernels::kMaxParts;
  for (size_t begin = 0; begin < count; begin += most) body(begin, std::min(count, begin + most));
}

Tensor as_ids(std::span<const Id> values) { return ids(values, {std::ssize(values)}); }

// `to` may be null.
void move(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& from,
          const Tensor* to, const Tensor& length, int64_t group) {
  by_launch(x.size(), [&](size_t begin, size_t end) {
    launch("cache", x[begin], [&]<class T>() {
      kernels::MoveRows<T> k{.groups = from.count() / group,
                             .group = group,
                             .from = from.data<Id>(),
                             .to = to ? to->data<Id>() : nullptr,
                             .length = length.data<Id>(),
                             .count = static_cast<int>(end - begin),
                             .part = {}};
      for (size_t i = begin; i < end; ++i)
        k.part[i - begin] = {.outer = x[i].size(1),
                             .n = x[i].size(3),
                             .x = x[i].data<T>(),
                             .x_capacity = x[i].size(2),
                             .y = y[i].data<T>(),
                             .y_capacity = y[i].size(2)};
      return k;
    });
  });
}

}  // namespace

void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, std::span<const Id> from,
               std::span<const Id> length, int64_t group) {
  move(x, y, as_ids(from), nullptr, as_ids(length), group);
}

void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& from,
               const Tensor& length, int64_t group) {
  move(x, y, from, nullptr, length, group);
}

void put_rows(std::span<const Tensor> x, std::span<const Tensor> y, const RowMoves& moves) {
  if (moves.from.empty()) return;
  const Tensor to = as_ids(moves.to);
  move(x, y, as_ids(moves.from), &to, as_ids(moves.length), 1);
}

Tensor gathered(const Tensor& x, const Tensor& origins) {
  require(x.rank() == 4 && x.stride(3) == 1 && x.device() == Device::cpu && origins.rank() == 2 &&
              origins.size(0) == x.size(0) && origins.size(1) <= x.size(2),
          "gathered: wants [rows, G, positions, n] and origins [rows, positions], given ",
          x.shape(), " and ", origins.shape());
  const Tensor y(x.shape(), x.type());
  const int64_t known = origins.size(1);
  const size_t width = size_of(x.type()), bytes = static_cast<size_t>(x.size(3)) * width;
  const auto* const from = static_cast<const std::byte*>(x.raw());
  parallel_for(x.size(0) * x.size(1), 1, [&](int64_t begin, int64_t end) {
    auto* to = static_cast<std::byte*>(y.raw()) + static_cast<size_t>(begin * x.size(2)) * bytes;
    for (int64_t i = begin; i < end; ++i)
      for (int64_t t = 0; t < x.size(2); ++t, to += bytes) {
        const int64_t b = i / x.size(1), g = i % x.size(1);
        const int64_t row = t < known ? origins.data<Id>()[b * known + t] : b;
        const int64_t at = row * x.stride(0) + g * x.stride(1) + t * x.stride(2);
        std::memcpy(to, from + static_cast<size_t>(at) * width, bytes);
      }
  });
  return y;
}

std::vector<Id> in_order(int64_t count) {
  std::vector<Id> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), Id{0});
  return out;
}

void append_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& at) {
  std::vector<Tensor> in_order;
  for (const Tensor& one : x) in_order.push_back(contiguous(one));
  by_launch(x.size(), [&](size_t begin, size_t end) {
    launch("cache", x[begin], [&]<class T>() {
      kernels::AppendRows<T> k{.rows = x[begin].size(0),
                               .at = at.data<Id>(),
                               .count = static_cast<int>(end - begin),
                               .part = {}};
      for (size_t i = begin; i < end; ++i)
        k.part[i - begin] = {.outer = x[i].size(1),
                             .positions = x[i].size(2),
                             .n = x[i].size(3),
                             .x = in_order[i].data<T>(),
                             .y = y[i].data<T>(),
                             .capacity = y[i].size(2)};
      return k;
    });
  });
}

}  // namespace heed
