// Many matrices copied in one launch: what concat and its gradient are made of.
#include <cstdint>

#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/parts.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256;

template <int V, class T>
__device__ void copy_chunk(const CopyPart<T>& p, uint32_t begin, uint32_t end) {
  const auto n = static_cast<uint32_t>(p.n);
#pragma unroll 4
  for (uint32_t at = begin + threadIdx.x * V; at < end; at += kThreads * V) {
    const uint32_t row = at / n, x = at - row * n;
    float v[V];
    load<V>(p.x + row * p.x_row + x, v);
    store<V>(v, p.y + row * p.y_row + x);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_parts(const __grid_constant__ CopyParts<T> k, const __grid_constant__ Chunks chunks) {
  chunks.each([&](int part, int64_t first) {
    const CopyPart<T>& p = k.part[part];
    const auto begin = static_cast<uint32_t>(first);
    const auto end = static_cast<uint32_t>(min(p.rows * p.n, first + kChunk));
    if (chunks.packed(part))
      copy_chunk<kPack<T>>(p, begin, end);
    else
      copy_chunk<1>(p, begin, end);
  });
}

// The elements go through f32, which keeps the bits of what is f32 or bf16.
template <class T>
void start(Cuda device, const CopyParts<T>& given) {
  CopyParts<T> k{};
  Chunks chunks;
  for (int i = 0; i < given.count; ++i) {
    CopyPart<T> p = given.part[i];
    if (p.rows * p.n == 0) continue;
    if (p.x_row == p.n && p.y_row == p.n) p.n *= p.rows, p.rows = 1, p.x_row = p.y_row = p.n;
    if (p.rows * p.n > INT32_MAX) {  // larger than a launch is worth sharing
      run(device, Copy<T>{.add = false,
                          .rank = 2,
                          .size = {p.rows, p.n},
                          .x_stride = {p.x_row, 1},
                          .y_stride = {p.y_row, 1},
                          .x = p.x,
                          .y = p.y});
      continue;
    }
    const int V = kPack<T>;
    const bool rows_apart = p.rows > 1;
    chunks.add(p.rows * p.n, p.n % V == 0 &&
                                 (!rows_apart || (p.x_row % V == 0 && p.y_row % V == 0)) &&
                                 aligned(p.x, 16) && aligned(p.y, 16));
    k.part[k.count++] = p;
  }
  if (k.count == 0) return;
  copy_parts<T><<<grid_for(chunks.count(), 1), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("copy of parts");
}

}  // namespace

void run(Cuda device, const CopyParts<float>& k) { start(device, k); }
void run(Cuda device, const CopyParts<bf16>& k) { start(device, k); }

}  // namespace heed::kernels
