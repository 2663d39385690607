// One table of cases for attention: every score with every mask, way to weigh, number of heads and
// term by distance. A case's inputs are queries, keys, values and whatever is learned, so that it
// is used as those of ops.h are: it must agree with plain loops, and its gradient with differences.
//
// A new row of score_table() or weigh_table() is in here with no edit. Plain loops that do not know
// a score's formula take its scores from the score itself; all that follows is still compared.
#pragma once

#include <string>
#include <vector>

#include "heed/attention/attend.h"
#include "bench/cases/ops.h"

namespace heed::cases {

struct AttentionSpec {
  enum class Masked { none, padding, causal, window, padding_causal, padding_window, local };
  enum class Distance { none, alibi, buckets };

  std::string score = "dot";
  int64_t rank = 0;
  Masked mask = Masked::none;
  Weigh weigh = {};
  int64_t heads = 1, key_heads = 1;
  Distance distance = Distance::none;
  int64_t batch = 3, queries = 5, keys = 7;
  int64_t query_size = 4, key_size = 6, value_size = 5;  // keys as queries where they must be
  int64_t first = 0;                                     // the position of the first query

  std::string name() const;
  int64_t positions() const { return std::max(first + queries, keys); }
  std::vector<Id> lengths() const;  // of paddings: full, 0, less than half, ...
  // What the mask means, by its words.
  bool sees(int64_t b, int64_t i, int64_t j, double place) const;
  static constexpr double reach = 1.5;  // of local attention
};

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

struct AttentionCase : Case {
  AttentionSpec spec;
  std::vector<std::string> names;  // of the inputs
  std::optional<ScoreForm> form;   // of the fused kernel, if the weights are its own
  std::function<Attended(const std::vector<Tensor>&, AttendOptions)> attend;
  Function scores;  // alone, by plain ops: [B or 1, H, Tq, Tk]
  // The same score by plain ops: what the fused kernel stands for. Wants an open tape.
  Tensor composed(const std::vector<Tensor>& x) const {
    return attend(x, {.want_weights = true}).context;
  }
};

// The inputs are q, keys, values, with local attention the positions, then all parameters.
AttentionCase attention_case(const AttentionSpec& spec);

// Every score of the table, those that have a form by rank in that form too.
std::vector<AttentionSpec> scores();
std::vector<AttentionSpec::Masked> masks();

// All of them, at small odd sizes.
std::vector<AttentionCase> attention();

std::vector<Tensor> draw(const AttentionCase& c, Type type, uint64_t seed = 1);

}  // namespace heed::cases
