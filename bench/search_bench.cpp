// Rows for search: 500 sentences through the decoding engine, in batches that begin and end
// together and as a running batch that sentences join at random moments, faster than they are
// decoded.
#include <algorithm>
#include <memory>
#include <numeric>

#include "bench/bench.h"
#include "heed/search/engine.h"

namespace heed::bench {
namespace {

constexpr int64_t kSentences = 500, kVocabulary = 4000;
constexpr Id kEnd = 3;

// 0: sampling. First parameters know nothing, and most draws fall beyond the likeliest tokens: the
// worst case.
constexpr int64_t kSampling = 0;

struct Ready {
  Params params{1};
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  std::vector<Engine::Request> requests;  // in the order of their arrival
};

std::shared_ptr<Ready> ready(const std::string& preset_name, int64_t beam, int64_t slots) {
  auto out = std::make_shared<Ready>();
  const ModelConfig config = preset(preset_name);
  const bool language = is_language_model(config);
  out->model = make_model(out->params, config, {kVocabulary, kVocabulary, language});
  out->engine = std::make_unique<Engine>(*out->model);
  Random random(1);
  for (int64_t i = 0; i < kSentences; ++i) {
    Engine::Request& r = out->requests.emplace_back();
    // Lengths as in Multi30k: most about 13 tokens, some 40.
    int64_t length =
        5 + static_cast<int64_t>(random.below(8)) + static_cast<int64_t>(random.below(8));
    if (random.below(16) == 0) length += static_cast<int64_t>(random.below(24));
    if (!language) {
      for (int64_t t = 0; t + 1 < length; ++t)
        r.source.push_back(4 + static_cast<Id>(random.below(kVocabulary - 4)));
      r.source.push_back(kEnd);
    }
    // First parameters hardly ever say the end: all are as long as they may be.
    r.options.beam = std::max<int64_t>(1, beam), r.options.sample = beam == kSampling;
    r.options.max_ratio = 0, r.options.max_extra = length;
    r.number = i, r.slots = slots;
  }
  return out;
}

// Sentences of similar length begin together, and the next ones when all have ended.
void in_fixed_batches(Ready& r) {
  std::vector<Engine::Request> sorted = r.requests;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.options.max_extra > b.options.max_extra;
  });
  const size_t batch = static_cast<size_t>(sorted[0].slots);
  for (size_t at = 0; at < sorted.size(); at += batch)
    r.engine->decode(
        {sorted.begin() + static_cast<std::ptrdiff_t>(at),
         sorted.begin() + static_cast<std::ptrdiff_t>(std::min(sorted.size(), at + batch))});
}

// Before each step some arrive: about twice as many as leave.
void as_they_arrive(Ready& r) {
  Random random(2);
  const uint32_t most = static_cast<uint32_t>(std::max<int64_t>(2, r.requests[0].slots / 3));
  size_t next = 0;
  do {
    for (uint32_t n = random.below(most + 1); n > 0 && next < r.requests.size(); --n)
      r.engine->submit(r.requests[next++], [](Engine::Result, std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
      });
  } while (r.engine->step() || next < r.requests.size());
}

Job job(const std::string& name, const std::string& preset_name, int64_t beam, int64_t slots,
        bool arriving) {
  const auto r = ready(preset_name, beam, slots);
  return {.name = name,
          .work = [r, arriving] { arriving ? as_they_arrive(*r) : in_fixed_batches(*r); }};
}

}  // namespace

std::vector<Row> search_rows() {
  std::vector<Row> rows;
  for (const char* model : {"transformer-tiny", "rnn-small", "lm-transformer"})
    for (const int64_t beam : {kSampling, int64_t{1}, int64_t{5}})
      for (const int64_t slots : {16, 32, 64, 128})
        for (const bool arriving : {false, true}) {
          const std::string name = std::string("search/") + model + "/" +
                                   (beam == kSampling ? "sample" : "beam" + std::to_string(beam)) +
                                   "/" + std::to_string(slots) +
                                   (arriving ? "/arriving" : "/fixed");
          const std::string preset_name = model;
          rows.push_back({name, [=] { return job(name, preset_name, beam, slots, arriving); }});
        }
  return rows;
}

}  // namespace heed::bench
