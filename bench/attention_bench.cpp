// Rows for attention: lengths and head sizes of real models, forward alone and with the backward
// pass. 1 x 8 heads, but 16 sentences for additive scores; one query against cached keys as a
// decoder has it, with keys and values that no cache holds.
#include <cmath>

#include "bench/attending.h"
#include "bench/bench.h"
#include "heed/base/parallel.h"

namespace heed::bench {
namespace {

Row row(const std::string& name, std::function<std::shared_ptr<Attending>()> make, bool backward,
        double flops) {
  return {name, [=] {
            const std::shared_ptr<Attending> ready = make();
            return Job{.name = name,
                       .work = backward ? Work([=] { ready->forward_backward(); })
                                        : Work([=] { ready->forward(); }),
                       .flops = flops};
          }};
}

Job one_query(const std::string& name) {
  constexpr int64_t kHeads = 8, kKeys = 1000, kSize = 64, kSets = 24;
  struct Ready {
    Tensor q;
    std::vector<Tensor> k, v;
    size_t next = 0;
  };
  auto ready = std::make_shared<Ready>();
  Random random(4);
  ready->q = normal({1, kHeads, 1, kSize}, 1, random);
  for (int64_t i = 0; i < kSets; ++i) {
    ready->k.push_back(normal({1, kHeads, kKeys, kSize}, 1, random));
    ready->v.push_back(normal({1, kHeads, kKeys, kSize}, 1, random));
  }
  const double scale = 1 / std::sqrt(double(kSize));
  return {.name = name,
          .work =
              [=] {
                const size_t i = ready->next++ % ready->k.size();
                fused_attention(
                    {.q = ready->q, .k = ready->k[i], .value = ready->v[i], .scale = scale});
              },
          .bytes = 2.0 * kHeads * kKeys * kSize * sizeof(float)};
}

}  // namespace

std::vector<Row> attention_rows() {
  std::vector<Row> rows;
  for (const int64_t size : {64, 128})
    for (const int64_t length : {512, 1024, 2048})
      for (const bool backward : {false, true}) {
        const double flops = 4.0 * 8 * double(length) * double(length) * double(size);
        rows.push_back(row(
            "attention/scaled_dot/d" + std::to_string(size) + "/" + std::to_string(length) +
                (backward ? "/forward_backward" : "/forward"),
            [=] {
              return std::make_shared<ScaledDot>(AttendingSizes{1, 8, length, size});
            },
            backward, flops * (backward ? 3.5 : 1)));
      }
  for (const bool backward : {false, true})
    rows.push_back(row(
        std::string("attention/additive/16x128x128x256/") +
            (backward ? "forward_backward" : "forward"),
        [] {
          return std::make_shared<Additive>(AttendingSizes{16, 1, 128, 256});
        },
        backward, 0));
  rows.push_back({"attention/scaled_dot/d64/1000/one_query",
                  [] { return one_query("attention/scaled_dot/d64/1000/one_query"); }});
  return rows;
}

int64_t additive_peak_bytes() {
  const Additive ready({1, 1, 512, 256});
  ready.forward_backward();
  ready.arena->reset_peak();
  ready.forward_backward();
  return ready.arena->peak() + ThreadPool::current().workspace_bytes();
}

}  // namespace heed::bench
