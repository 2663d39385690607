// Kernels of a decoder's memory (attention/multi_head.h): arrays [rows, outer, room, n] of which
// the first positions along `room` hold numbers. Beside kernels.h, with the same rules. How many
// positions there are lies in the device's memory: it is another at every step that is replayed.
#pragma once

#include "heed/kernels/view.h"

namespace heed::kernels {

inline constexpr int kMaxCaches = 128;  // arrays that one launch takes at most
inline constexpr int64_t kMaxGroup = 96;

// y[i] = x[from[i]], of every row the first *length positions, for many arrays at once. Rows come
// in groups; y may be x where from[i] lies in the group of i.
template <class T>
struct MovePart {
  int64_t outer, n;
  const T* x;
  int64_t x_room;
  T* y;
  int64_t y_room;
};
template <class T>
struct MoveRows {
  int64_t groups, group;  // at most kMaxGroup rows in one
  const Id* from;         // [groups * group]
  const Id* length;
  int count;
  MovePart<T> part[kMaxCaches];
};
void run(Cpu, const MoveRows<float>&);
void run(Cpu, const MoveRows<double>&);
void run(Cuda, const MoveRows<float>&);

// y[i, *at + j] = x[i, j]: x [rows, positions, n] into y [rows, room, n], for many arrays at once.
template <class T>
struct AppendPart {
  int64_t rows, positions, n;
  const T* x;
  T* y;
  int64_t room;
};
template <class T>
struct AppendRows {
  const Id* at;
  int count;
  AppendPart<T> part[kMaxCaches];
};
void run(Cpu, const AppendRows<float>&);
void run(Cpu, const AppendRows<double>&);
void run(Cuda, const AppendRows<float>&);

}  // namespace heed::kernels
