// A decoder's KV cache, changed where it lies: arrays [rows, G, capacity, n], of whose positions
// the first so many are set, in each row its own number. Nothing here is recorded.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <span>
#include <vector>

#include "heed/ops/ops.h"

namespace heed {

// Row i of y[.] becomes what row from[i] of x[.] was, in its first `length` positions: one number
// for each group of `group` rows, at most kMaxGroup. y may be x where from[i] lies in the group of
// i.
using kernels::kMaxGroup;
void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, std::span<const Id> from,
               std::span<const Id> length, int64_t group = 1);

// The same with ids that the host need not know.
void move_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& from,
               const Tensor& length, int64_t group);

// Row to[i] of y[.] becomes what row from[i] of x[.] is, in its first length[i] positions; a
// negative to[i] stands for nowhere. y may be x where no row is both read and written.
struct RowMoves {
  std::vector<Id> from, to, length;
};
void put_rows(std::span<const Tensor> x, std::span<const Tensor> y, const RowMoves& moves);

// x [rows, G, positions, n] with position j of row i as it is in row origins[i][j], for the first
// positions, [rows, so many]. On a CPU.
Tensor gathered(const Tensor& x, const Tensor& origins);

// Every row stays what it is: 0, 1 .. count - 1.
std::vector<Id> in_order(int64_t count);

// x[.] [rows, G, positions, n] into y[.] [rows, G, capacity, n], in row i from position at[i] on.
void append_rows(std::span<const Tensor> x, std::span<const Tensor> y, const Tensor& at);

}  // namespace heed
