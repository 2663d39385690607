#include "heed/ops/cache.h"

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

}  // namespace

void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& from,
               const Tensor& length, int64_t group) {
  by_launch(x.size(), [&](size_t begin, size_t end) {
    launch("cache", x[begin], [&]<class T>() {
      kernels::MoveRows<T> k{.groups = from.count() / group,
                             .group = group,
                             .from = from.data<Id>(),
                             .length = length.data<Id>(),
                             .count = static_cast<int>(end - begin),
                             .part = {}};
      for (size_t i = begin; i < end; ++i)
        k.part[i - begin] = {.outer = x[i].size(1),
                             .n = x[i].size(3),
                             .x = x[i].data<T>(),
                             .x_room = x[i].size(2),
                             .y = y[i].data<T>(),
                             .y_room = y[i].size(2)};
      return k;
    });
  });
}

std::vector<Id> in_order(int64_t count) {
  std::vector<Id> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), Id{0});
  return out;
}

void append_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& at) {
  std::vector<Tensor> more;
  for (const Tensor& part : x) more.push_back(contiguous(part));
  by_launch(x.size(), [&](size_t begin, size_t end) {
    launch("cache", x[begin], [&]<class T>() {
      kernels::AppendRows<T> k{
          .at = at.data<Id>(), .count = static_cast<int>(end - begin), .part = {}};
      for (size_t i = begin; i < end; ++i)
        k.part[i - begin] = {.rows = more[i].size(0) * more[i].size(1),
                             .positions = more[i].size(2),
                             .n = more[i].size(3),
                             .x = more[i].data<T>(),
                             .y = y[i].data<T>(),
                             .room = y[i].size(2)};
      return k;
    });
  });
}

}  // namespace heed
