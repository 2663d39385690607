// What a decoder remembers of the words so far, changed where it lies: [B, G, room, n], of which
// the first positions hold numbers. Nothing here is recorded.
#pragma once

#include <span>
#include <vector>

#include "heed/ops/ops.h"

namespace heed {

// Row i of y[.] becomes what row from[i] of x[.] was, in its first `length` positions. y may be x
// where rows come in groups of `group`, at most kMaxGroup, and from[i] lies in the group of i.
// `from` and `length` are ids, `length` a single one.
using kernels::kMaxGroup;
void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& from,
               const Tensor& length, int64_t group = 1);

// Every row stays what it is: 0, 1 .. count - 1.
std::vector<Id> in_order(int64_t count);

// x[.] [B, G, positions, n] into y[.] [B, G, room, n] from position `at` on, a single id.
void append_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& at);

}  // namespace heed
