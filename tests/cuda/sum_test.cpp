// The sum of gradients on a GPU (kernels::SumParts), and parameters that came from others, against
// plain loops, bit for bit; and the sum's time for as many parameters as Transformers have.
//
//   sum_test [--time]
#include <cstdio>
#include <cstring>
#include <random>

#include "heed/kernels/shards.h"
#include "tests/cuda/on_stream.h"
#include "tests/cuda/timing.h"

namespace heed::kernels {
namespace {

float* on_gpu(int64_t n) {
  void* block = nullptr;
  check(cudaMalloc(&block, static_cast<size_t>(n) * sizeof(float)), "memory");
  return static_cast<float*>(block);
}

// Arrays of all kinds of lengths, from any element on, some of them 0.
void compare(bool add, int64_t shift) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<int64_t> sizes{1, 3, 4096, 4097, 70000, 8192, 64};
  int64_t all = shift;
  for (const int64_t n : sizes) all += n + 4;
  std::vector<float> x(static_cast<size_t>(all)), y(x.size());
  for (float& v : x) v = normal(random);
  for (float& v : y) v = normal(random);
  float *const dx = on_gpu(all), *const dy = on_gpu(all);
  const size_t bytes = x.size() * sizeof(float);
  check(cudaMemcpy(dx, x.data(), bytes, cudaMemcpyHostToDevice), "copy");
  check(cudaMemcpy(dy, y.data(), bytes, cudaMemcpyHostToDevice), "copy");
  SumParts k{.add = add, .count = 0, .part = {}};
  int64_t at = shift;
  for (const int64_t n : sizes) {
    const bool none = k.count == 4;
    k.part[k.count++] = {n, none ? nullptr : dx + at, dy + at};
    for (int64_t i = at; i < at + n; ++i) {
      const auto j = static_cast<size_t>(i);
      const float term = none ? 0 : x[j];
      y[j] = add ? y[j] + term : term;
    }
    at += n + 4;
  }
  run(on_stream(stream), k);
  check(cudaStreamSynchronize(stream), "the kernel");
  std::vector<float> found(y.size());
  check(cudaMemcpy(found.data(), dy, bytes, cudaMemcpyDeviceToHost), "copy");
  const bool same = std::memcmp(found.data(), y.data(), bytes) == 0;
  std::printf("%s, shift %lld: %s\n", add ? "y += x" : "y = x", static_cast<long long>(shift),
              same ? "the same bits" : "OTHER BITS");
  ++(same ? passed : failed);
  cudaFree(dx), cudaFree(dy);
}

// Parameters of others: every second array has a compute copy.
void take(int64_t shift) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const std::vector<int64_t> sizes{1, 3, 4096, 4097, 70000, 64};
  int64_t all = shift;
  for (const int64_t n : sizes) all += n + 4;
  std::vector<float> x(static_cast<size_t>(all)), y(x.size(), -1);
  for (float& v : x) v = normal(random);
  const size_t bytes = x.size() * sizeof(float);
  float *const dx = on_gpu(all), *const dy = on_gpu(all);
  auto* const copies = reinterpret_cast<bf16*>(on_gpu(all));
  check(cudaMemcpy(dx, x.data(), bytes, cudaMemcpyHostToDevice), "copy");
  check(cudaMemcpy(dy, y.data(), bytes, cudaMemcpyHostToDevice), "copy");
  check(cudaMemset(copies, 0, bytes), "zeros");
  TakeParts k{.count = 0, .part = {}};
  std::vector<uint16_t> rounded(x.size(), 0);
  int64_t at = shift;
  for (const int64_t n : sizes) {
    const bool copied = k.count % 2 == 0;
    k.part[k.count++] = {n, dx + at, dy + at, copied ? copies + at : nullptr};
    for (int64_t i = at; i < at + n; ++i) {
      const auto j = static_cast<size_t>(i);
      y[j] = x[j];
      uint32_t bits;
      std::memcpy(&bits, &x[j], sizeof bits);
      if (copied)  // to nearest even
        rounded[j] = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
    at += n + 4;
  }
  run(on_stream(stream), k);
  check(cudaStreamSynchronize(stream), "the kernel");
  std::vector<float> found(y.size());
  std::vector<uint16_t> found_copies(y.size());
  check(cudaMemcpy(found.data(), dy, bytes, cudaMemcpyDeviceToHost), "copy");
  check(cudaMemcpy(found_copies.data(), copies, bytes / 2, cudaMemcpyDeviceToHost), "copy");
  const bool same = std::memcmp(found.data(), y.data(), bytes) == 0 && found_copies == rounded;
  std::printf("parameters, shift %lld: %s\n", static_cast<long long>(shift),
              same ? "the same bits" : "OTHER BITS");
  ++(same ? passed : failed);
  cudaFree(dx), cudaFree(dy), cudaFree(copies);
}

void time(const char* name, int64_t n) {
  float *const x = on_gpu(n), *const y = on_gpu(n);
  check(cudaMemset(x, 0, static_cast<size_t>(n) * sizeof(float)), "zeros");
  check(cudaMemset(y, 0, static_cast<size_t>(n) * sizeof(float)), "zeros");
  for (const bool add : {true, false}) {
    SumParts k{.add = add, .count = 1, .part = {}};
    k.part[0] = {n, x, y};
    const double us = microseconds([&] { run(on_stream(stream), k); });
    std::printf("%-6s %-6s %.1f M numbers: %.3f ms, %.2f TB/s\n", name, add ? "y += x" : "y = x",
                double(n) / 1e6, us / 1e3, double(n) * (add ? 12 : 8) / us / 1e6);
  }
  cudaFree(x), cudaFree(y);
}

}  // namespace
}  // namespace heed::kernels

int main(int argc, char** argv) try {
  using namespace heed::kernels;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
  for (const bool add : {false, true})
    for (const int64_t shift : {0, 1, 4}) compare(add, shift);
  for (const int64_t shift : {0, 1, 4}) take(shift);
  timing = argc > 1 && std::string(argv[1]) == "--time";
  if (timing) time("base", 60'500'000), time("big", 209'000'000);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
