// A decoder's key/value cache (KV cache) on a CPU: rows that are moved, and positions that are
// appended.
#include <algorithm>
#include <vector>

#include "heed/base/parallel.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {
namespace {

// Elements that are worth a thread's while.
constexpr int64_t kGrain = 16384;

template <class T>
void move(const MoveRows<T>& k, const MovePart<T>& p) {
  const int64_t x_step = p.x_capacity * p.n, y_step = p.y_capacity * p.n;
  const int64_t most = k.groups == 0 ? 0 : *std::max_element(k.length, k.length + k.groups) * p.n;
  if (most == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / (most * k.group));
  parallel_for(k.groups * p.outer, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> read;  // in place, where what is written may still be wanted
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item / p.outer, first = group * k.group, o = item % p.outer;
      const int64_t count = k.length[group] * p.n;
      if (k.to && k.to[group] < 0) continue;
      const auto source = [&](int64_t i) { return p.x + (k.from[i] * p.outer + o) * x_step; };
      const bool in_place = p.x == p.y && !k.to;
      bool apart = true;  // is nothing written that is still to be read?
      for (int64_t i = first; in_place && i < first + k.group; ++i)
        apart = apart && k.from[k.from[i]] == k.from[i];
      const auto each = [&](auto body) {
        for (int64_t i = first; i < first + k.group; ++i)
          if (!in_place || k.from[i] != i) body(i);
      };
      read.clear();
      if (!apart) each([&](int64_t i) { read.insert(read.end(), source(i), source(i) + count); });
      const T* next = read.data();
      each([&](int64_t i) {
        const int64_t row = k.to ? k.to[i] : i;
        std::copy_n(apart ? source(i) : next, count, p.y + (row * p.outer + o) * y_step);
        next += apart ? 0 : count;
      });
    }
  });
}

template <class T>
void append(const AppendRows<T>& k, const AppendPart<T>& p) {
  const int64_t count = p.positions * p.n;
  for (int64_t i = 0; i < k.rows * p.outer; ++i)
    std::copy_n(p.x + i * count, count, p.y + (i * p.capacity + k.at[i / p.outer]) * p.n);
}

template <class T>
void each(const MoveRows<T>& k) {
  for (int i = 0; i < k.count; ++i) move(k, k.part[i]);
}
template <class T>
void each(const AppendRows<T>& k) {
  for (int i = 0; i < k.count; ++i) append(k, k.part[i]);
}

}  // namespace

void run(Cpu, const MoveRows<float>& k) { each(k); }
void run(Cpu, const MoveRows<double>& k) { each(k); }
void run(Cpu, const AppendRows<float>& k) { each(k); }
void run(Cpu, const AppendRows<double>& k) { each(k); }

}  // namespace heed::kernels
