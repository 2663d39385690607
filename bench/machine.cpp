// The machine's own speed: multiply-adds out of registers, and reading memory that no cache holds.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "bench/bench.h"
#include "heed/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heed::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 12 independent chains: enough to fill two multiply-add units of a latency of four or five, few
// enough for 16 registers. Returns the operations done.
double multiply_add(float* result) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  // All different, or the compiler would compute equal chains once.
  const auto start = [d](int i) { return hn::Set(d, static_cast<float>(i)); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  auto s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  constexpr int kRounds = 100000;
  for (int i = 0; i < kRounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b), s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b), s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b), s10 = hn::MulAdd(s10, a, b), s11 = hn::MulAdd(s11, a, b);
  }
  s0 =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  s0 = hn::Add(s0, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11)));
  *result = hn::GetLane(hn::SumOfLanes(d, s0));
  return 2.0 * 12 * kRounds * static_cast<double>(hn::Lanes(d));
}

double read_all(const float* x, size_t n) {
  const hn::ScalableTag<float> d;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i)), s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  return static_cast<double>(
      hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace heed::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::bench {

HWY_EXPORT(multiply_add);
HWY_EXPORT(read_all);
HWY_EXPORT(target_name);

namespace {

#if defined(__x86_64__)
// VNNI: 64 multiply-adds of bytes an instruction, 12 chains of them. Returns the operations done.
__attribute__((target("avx512f,avx512vnni"))) double multiply_add_bytes(float* result) {
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  __m512i sums[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_epi32(i);
  constexpr int kRounds = 100000;
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
#pragma GCC unroll 12
  for (int i = 1; i < 12; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  alignas(64) int lanes[16];
  _mm512_store_si512(lanes, sums[0]);
  *result = static_cast<float>(std::accumulate(lanes, lanes + 16, 0));
  return 2.0 * 64 * 12 * kRounds;
}
bool has_vnni() { return __builtin_cpu_supports("avx512vnni"); }
#else
double multiply_add_bytes(float*) { return 0; }
bool has_vnni() { return false; }
#endif

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

Machine measure_machine(int threads) {
  Machine machine;
  machine.target = HWY_DYNAMIC_DISPATCH(target_name)();
  set_threads(threads);
  std::vector<float> sink(static_cast<size_t>(threads));
  std::vector<float> memory(size_t{64} << 20, 1.0f);  // 256 MiB
  std::vector<double> read(static_cast<size_t>(threads));
  for (int round = 0; round < 20; ++round) {
    double operations = 0;
    double begin = now();
    parallel_for(threads, 1, [&](int64_t i, int64_t) {
      double done = 0;
      for (int again = 0; again < 20; ++again)
        done += HWY_DYNAMIC_DISPATCH(multiply_add)(&sink[static_cast<size_t>(i)]);
      if (i == 0) operations = done;
    });
    machine.flops = std::max(machine.flops, threads * operations / (now() - begin));
    begin = now();
    parallel_for(has_vnni() ? threads : 0, 1, [&](int64_t i, int64_t) {
      double done = 0;
      for (int again = 0; again < 20; ++again)
        done += multiply_add_bytes(&sink[static_cast<size_t>(i)]);
      if (i == 0) operations = done;
    });
    if (has_vnni()) machine.int8 = std::max(machine.int8, threads * operations / (now() - begin));
    begin = now();
    const int64_t share = static_cast<int64_t>(memory.size()) / threads;
    parallel_for(threads, 1, [&](int64_t i, int64_t) {
      read[static_cast<size_t>(i)] =
          HWY_DYNAMIC_DISPATCH(read_all)(memory.data() + i * share, static_cast<size_t>(share));
    });
    machine.bandwidth =
        std::max(machine.bandwidth, double(memory.size()) * sizeof(float) / (now() - begin));
  }
  machine.checksum =
      std::accumulate(read.begin(), read.end(), double(sink[0]));  // so that it is computed
  return machine;
}

}  // namespace heed::bench
#endif
