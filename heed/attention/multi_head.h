// Several heads side by side (Vaswani et al., 2017, section 3.2.2), with any score:
//   [head_1; ...; head_H] W^O,  head_i = attend(Q W^Q_i, K W^K_i, V W^V_i).
// Heads of queries may share heads of keys and values (Ainslie et al., 2023).
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <memory>
#include <string>

#include "heed/attention/attend.h"
#include "heed/attention/kv_cache.h"
#include "heed/nn/layers.h"

namespace heed {

class MultiHead {
 public:
  struct Sizes {
    int64_t model = 0;      // D of queries and of the result
    int64_t memory = 0;     // of what is attended to; 0: as model
    int64_t heads = 1;      // H
    int64_t key_heads = 0;  // G; 0: as heads
    int64_t head_size = 0;  // d; 0: model / heads
    std::string score = "scaled_dot";
    int64_t rank = 0, positions = 0;  // of scores that want them
    bool rotary = false;              // queries and keys are rotated by their positions
  };
  MultiHead(const Params& params, const Sizes& sizes);

  // Keys and values of x [B, Tk, memory], which stand at `first`.
  KeysValues project_kv(const Tensor& x, const Positions& first = {}) const;

  struct Output {
    Tensor y;           // [B, Tq, model]
    Attended attended;  // by head
  };
  Output operator()(const Tensor& x, const KeysValues& memory,
                    const AttendOptions& options = {}) const;
  // Queries, keys and values of x, with one product for all three; and what the queries read.
  struct Projected {
    Tensor query;  // [B, T, H d]
    KeysValues own;
  };
  Projected project(const Tensor& x, const Positions& first = {}) const;
  Output read(const Tensor& x, const Tensor& query, const KeysValues& memory,
              const AttendOptions& options) const;
  // x attends to itself.
  Output itself(const Tensor& x, const AttendOptions& options = {}) const;

 private:
  Tensor split(const Tensor& x, int64_t heads) const;
  Tensor for_score(const Tensor& x) const;
  KeysValues prepared(const Tensor& k, const Tensor& v, const Positions& first) const;

  Sizes sizes_;
  ScoreFacts facts_;
  Linear query_, key_, value_, output_;
  std::unique_ptr<Score> score_;
};

}  // namespace heed
