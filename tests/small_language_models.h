// Small language models for tests.
#pragma once

#include <vector>

#include "heed/models/model.h"

namespace heed {

inline ModelConfig small_rnn() {
  ModelConfig c = preset("lm-rnn");
  c.size = 8, c.dropout = 0, c.positions = 12, c.cell = "gru";
  return c;
}
inline ModelConfig small_transformer() {
  ModelConfig c = preset("lm-transformer");
  c.size = 8, c.dropout = 0, c.positions = 12, c.heads = 2, c.inner = 12, c.decoder_layers = 2;
  return c;
}
inline ModelConfig small_elmo() {
  ModelConfig c = preset("elmo");
  c.size = 8, c.dropout = 0, c.positions = 12, c.cell = "gru";
  return c;
}

// Nothing is translated.
inline Source no_source(int64_t rows) {
  return {ids(std::vector<Id>(), {rows, 0}), std::vector<Id>(static_cast<size_t>(rows), 0)};
}

}  // namespace heed
