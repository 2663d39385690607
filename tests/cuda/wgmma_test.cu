// Hopper's warpgroup MMA (wgmma) as dot_wgmma.cuh gives it, one form after the other, against sums
// on the CPU: where a tile lies, where its parts are found, which element is in which register.
// Inputs are small whole numbers, so that every sum is exact. Other readings of the fields that say
// how a tile lies are tried last, and printed: should a form be wrong, one of them is right.
// Between, the ring: two consumer warpgroups, four producer warps with the TMA, setmaxnreg.
#include <cstdio>
#include <vector>

#include "heed/kernels/cuda/dot_wgmma.cuh"

using namespace heed;
using namespace heed::kernels;

namespace {

enum class Form { shared, wide, add, add_wide };

// How far apart the groups of eight rows and the panels are said to be, in 16 bytes.
struct Fields {
  uint32_t leading, stride;
  __device__ uint64_t of(uint32_t tile) const {
    return kSwizzle128 | uint64_t{stride} << 32 | uint64_t{leading} << 16 | tile / 16;
  }
};

template <int D>
struct TestTile {
  alignas(1024) bf16 x[kTile * D];
  alignas(1024) bf16 y[2 * kTile * D];
  Barrier there;
};
template <int kRows>
TensorMap<kRows> matrix_of(const bf16* x, int64_t rows, int64_t size) {
  return tensor_map_of<kRows>({x, 0, 0, size}, 1, 1, rows, size);
}

// x has 64 rows of D columns, y 64, in the wide forms 128. shared: out[64][64] = x . y^T over D
// columns; wide: out[64][128] of this. add: out[64][D] = 1 + x' . y, where x' are the first 64
// columns of x; add_wide: the first 128, twice the same 64 where there are no more.
template <int D>
__global__ void __launch_bounds__(kGroupThreads)
    product(const __grid_constant__ TensorMap<kTile> x, const __grid_constant__ TensorMap<kTile> y,
            const __grid_constant__ TensorMap<2 * kTile> wide_y, float* out, Form form, Fields left,
            Fields right, int* address) {
  extern __shared__ __align__(1024) unsigned char shared[];
  TestTile<D>& tile = *reinterpret_cast<TestTile<D>*>(shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = warp_number();
  const bool wide = form == Form::wide || form == Form::add_wide;
  if (thread == 0) {
    tile.there.begin(1);
    barriers_begun();
    tile.there.arrive_and_expect((wide ? 3 : 2) * kTileBytes<D>);
    Panels<D>::take(tile.x, x, 0, 0, 0, tile.there);
    wide ? Panels<D, 2 * kTile>::take(tile.y, wide_y, 0, 0, 0, tile.there)
         : Panels<D>::take(tile.y, y, 0, 0, 0, tile.there);
    *address = static_cast<int>(shared_address(tile.x) % 1024);
  }
  __syncthreads();
  tile.there.wait(0);
  uint32_t kept[D / 16][4];  // this warp's 16 rows of x
  for (int k = 0; k < D / 16; ++k)
    load_matrices(kept[k], shared_address(tile.x) +
                               Panels<D>::offset(warp * 16 + lane % 16, 2 * k + lane / 16));
  const uint64_t x_at = left.of(shared_address(tile.x)), y_at = right.of(shared_address(tile.y));
  const auto put = [&](const auto& sums, int columns) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = warp * 16 + i / 2 % 2 * 8 + lane / 4,
                column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      out[row * columns + column] = sums[i];
    }
  };
  if (form == Form::wide) {
    float sums[64];
    products_begin();
    multiply<D>(sums, x_at, y_at);
    products_end();
    products_wait<0>(sums);
    put(sums, 128);
  } else if (form == Form::add_wide) {
    uint32_t first[8][4];
    for (int i = 0; i < 32; ++i) first[i / 4][i % 4] = kept[i / 4 % (D / 16)][i % 4];
    float sums[D / 2];
    for (float& s : sums) s = 1;
    products_begin();
    add_product(sums, first, y_at);
    products_end();
    products_wait<0>(sums);
    put(sums, D);
  } else if (form == Form::add) {
    uint32_t first[4][4];
    for (int i = 0; i < 16; ++i) first[i / 4][i % 4] = kept[i / 4][i % 4];
    float sums[D / 2];
    for (float& s : sums) s = 1;
    products_begin();
    add_product(sums, first, y_at);
    products_end();
    products_wait<0>(sums);
    put(sums, D);
  } else {
    float sums[32];
    products_begin();
    multiply<D>(sums, x_at, y_at);
    products_end();
    products_wait<0>(sums);
    put(sums, 64);
  }
}

// Each group adds up the tiles' products with its own rows, tile by tile.
struct RingTile {
  alignas(1024) bf16 own[kConsumerGroups][kTile * 64];
  alignas(1024) bf16 other[kProducerWarps][kTile * 64];
  Ring<kProducerWarps, 1, kConsumerWarps, false> ring;
  Barrier there;
};
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    through_ring(const __grid_constant__ TensorMap<kTile> x,
                 const __grid_constant__ TensorMap<kTile> y, int tiles, float* out) {
  extern __shared__ __align__(1024) unsigned char shared[];
  RingTile& tile = *reinterpret_cast<RingTile*>(shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = warp_number();
  const int group = warp / 4;
  if (thread == 0) {
    tile.ring.begin();
    tile.there.begin(1);
    barriers_begun();
    tile.there.arrive_and_expect(kConsumerGroups * kTileBytes<64>);
    for (int i = 0; i < kConsumerGroups; ++i)
      Panels<64>::take(tile.own[i], x, 0, 0, i * kTile, tile.there);
  }
  __syncthreads();
  if (group == kConsumerGroups) {
    setmaxnreg_dec();
    for (int t = warp % 4; t < tiles; t += kProducerWarps) {
      tile.ring.producer_acquire(t);
      if (lane != 0) continue;
      Barrier& full = tile.ring.full[t % kProducerWarps];
      full.arrive_and_expect(kTileBytes<64>);
      Panels<64>::take(tile.other[t % kProducerWarps], y, 0, 0, t * kTile, full);
    }
    return;
  }
  setmaxnreg_inc();
  tile.there.wait(0);
  float sums[32], all[32];
  zero(all);
  for (int t = 0; t < tiles; ++t) {
    tile.ring.consumer_wait(t);
    products_begin();
    multiply<64>(sums, matrix(shared_address(tile.own[group])),
                 matrix(shared_address(tile.other[t % kProducerWarps])));
    products_end();
    products_wait<0>(sums);
    tile.ring.consumer_release(t);
    for (int i = 0; i < 32; ++i) all[i] += sums[i];
  }
  for (int i = 0; i < 32; ++i) {
    const int row = group * kTile + warp % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
    out[row * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = all[i];
  }
}

// ---- host

int passed = 0, wrong = 0;

bool check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::printf("FAIL %s: %s\n", what, cudaGetErrorString(error));
  ++wrong;
  return false;
}
std::vector<float> small_numbers(size_t n, uint32_t seed) {
  std::vector<float> x(n);
  for (float& y : x) {
    seed = seed * 1664525u + 1013904223u;
    y = static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4);
  }
  return x;
}
template <class T>
T* put(const std::vector<T>& x) {
  T* p = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&p), x.size() * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice), "copying");
  return p;
}
bf16* put_bf16(const std::vector<float>& x) {
  std::vector<bf16> y;
  for (const float z : x) y.push_back(bf16(z));
  return put(y);
}
// How many of the elements differ, and says so.
int differ(const float* device, const std::vector<float>& wanted) {
  std::vector<float> got(wanted.size());
  if (!check(cudaDeviceSynchronize(), "running")) return static_cast<int>(wanted.size());
  check(cudaMemcpy(got.data(), device, got.size() * sizeof(float), cudaMemcpyDeviceToHost), "back");
  int n = 0;
  for (size_t i = 0; i < got.size(); ++i) n += got[i] != wanted[i];
  return n;
}

template <int D>
void test(const char* name, Form form, Fields left, Fields right, bool ours) {
  const auto x = small_numbers(kTile * D, 1), y = small_numbers(2 * kTile * D, 2);
  const bool add = form == Form::add || form == Form::add_wide;
  const int columns = add ? D : form == Form::wide ? 128 : 64;
  const int terms = form == Form::add ? 64 : form == Form::add_wide ? 128 : D;
  std::vector<float> wanted;
  for (int r = 0; r < 64; ++r)
    for (int c = 0; c < columns; ++c) {
      float sum = add ? 1 : 0;
      for (int i = 0; i < terms; ++i) sum += x[r * D + i % D] * (add ? y[i * D + c] : y[c * D + i]);
      wanted.push_back(sum);
    }
  float* out = put(std::vector<float>(wanted.size(), -77));
  int* address = put(std::vector<int>(1, -1));
  constexpr size_t bytes = 160 << 10;  // other readings of the fields lead beyond the tiles
  allow_shared(product<D>, bytes);
  const bf16* at = put_bf16(y);
  product<D><<<1, kGroupThreads, bytes>>>(
      matrix_of<kTile>(put_bf16(x), kTile, D), matrix_of<kTile>(at, 2 * kTile, D),
      matrix_of<2 * kTile>(at, 2 * kTile, D), out, form, left, right, address);
  const int n = differ(out, wanted);
  int base = -1;
  check(cudaMemcpy(&base, address, sizeof base, cudaMemcpyDeviceToHost), "back");
  std::printf(
      "%s %-22s D %3d, left (%u, %u), right (%u, %u): %d of %zu differ; base %% 1024 = %d\n",
      n == 0 ? (ours ? "PASS" : "also") : (ours ? "FAIL" : "no  "), name, D, left.leading,
      left.stride, right.leading, right.stride, n, wanted.size(), base);
  if (ours) ++(n == 0 ? passed : wrong);
}

void test_ring(int tiles) {
  const auto x = small_numbers(kBlockRows * 64, 3),
             y = small_numbers(static_cast<size_t>(tiles) * kTile * 64, 4);
  std::vector<float> wanted;
  for (int r = 0; r < kBlockRows; ++r)
    for (int c = 0; c < 64; ++c) {
      float sum = 0;
      for (int t = 0; t < tiles; ++t)
        for (int i = 0; i < 64; ++i) sum += x[r * 64 + i] * y[(t * kTile + c) * 64 + i];
      wanted.push_back(sum);
    }
  float* out = put(std::vector<float>(wanted.size(), -77));
  allow_shared(through_ring, sizeof(RingTile));
  through_ring<<<1, kWgmmaThreads, sizeof(RingTile)>>>(
      matrix_of<kTile>(put_bf16(x), kBlockRows, 64),
      matrix_of<kTile>(put_bf16(y), int64_t{tiles} * kTile, 64), tiles, out);
  const int n = differ(out, wanted);
  std::printf("%s ring of %d tiles: %d of %zu differ\n", n ? "FAIL" : "PASS", tiles, n,
              wanted.size());
  ++(n == 0 ? passed : wrong);
}

}  // namespace

int main() {
  const Fields matrix{1, 64}, transposed{kTile * 128 / 16, 64};
  test<64>("both in memory", Form::shared, matrix, matrix, true);
  test<128>("both in memory", Form::shared, matrix, matrix, true);
  test<64>("rows summed over", Form::add, matrix, transposed, true);
  test<128>("rows summed over", Form::add, matrix, transposed, true);
  test<64>("128 rows", Form::wide, matrix, matrix, true);
  test<128>("128 rows", Form::wide, matrix, matrix, true);
  const Fields transposed_wide{2 * kTile * 128 / 16, 64};
  test<64>("128 rows summed over", Form::add_wide, matrix, transposed_wide, true);
  test<128>("128 rows summed over", Form::add_wide, matrix, transposed_wide, true);
  for (const int tiles : {1, 3, 4, 5, 37}) test_ring(tiles);
  for (const Fields other : {Fields{64, 1}, Fields{64, 64}, Fields{512, 64}, Fields{64, 512}}) {
    test<64>("both in memory", Form::shared, other, other, false);
    test<64>("rows summed over", Form::add, matrix, other, false);
    test<128>("rows summed over", Form::add, matrix, other, false);
  }
  std::printf("%d passed, %d failed\n", passed, wrong);
  return wrong ? 1 : 0;
}
