#include "heed/models/config.h"

#include <cmath>

#include "heed/attention/score.h"
#include "heed/attention/weigh.h"
#include "heed/base/check.h"
#include "heed/models/config_json.h"
#include "heed/nn/layers.h"

namespace heed {
namespace {

struct Preset {
  const char* name;
  ModelConfig config;
};

std::vector<Preset> presets() {
  return {
      {"rnn-small", {.size = 128, .dropout = 0.1}},
      {"rnn", {.size = 256, .dropout = 0.3}},
      {"transformer-tiny",
       {.family = "transformer",
        .size = 128,
        .encoder_layers = 4,
        .decoder_layers = 4,
        .dropout = 0.3,
        .tied = true,
        .score = "scaled_dot",
        .heads = 4,
        .inner = 256}},
      {"transformer-small",
       {.family = "transformer",
        .size = 256,
        .encoder_layers = 3,
        .decoder_layers = 3,
        .dropout = 0.1,
        .tied = true,
        .score = "scaled_dot",
        .heads = 4,
        .inner = 1024}},
      {"transformer-base",
       {.family = "transformer",
        .size = 512,
        .encoder_layers = 6,
        .decoder_layers = 6,
        .dropout = 0.1,
        .tied = true,
        .score = "scaled_dot",
        .heads = 8,
        .inner = 2048}},
      {"lm-rnn",
       {.size = 256,
        .encoder_layers = 0,
        .dropout = 0.1,
        .score = "bilinear",
        .positions = 128,
        .cell = "lstm",
        .bidirectional = false,
        .wiring = "after"}},
      {"lm-transformer",
       {.family = "transformer",
        .size = 192,
        .encoder_layers = 0,
        .decoder_layers = 4,
        .dropout = 0.1,
        .tied = true,
        .score = "scaled_dot",
        .heads = 6,
        .positions = 128,
        .bidirectional = false,
        .inner = 768,
        .position = "rotary"}},
      {"elmo",
       {.size = 256,
        .encoder_layers = 0,
        .decoder_layers = 2,
        .dropout = 0.2,
        .tied = true,
        .score = "none",
        .positions = 128,
        .cell = "lstm",
        .bidirectional = true,
        .wiring = "after",
        .reads = "lines"}},
  };
}

void one_of(const char* what, const std::string& given, const std::vector<std::string>& known) {
  for (const std::string& name : known)
    if (name == given) return;
  fail(unknown_name(what, given, known));
}

}  // namespace

std::vector<std::string> preset_names(ModelKind kind) {
  std::vector<std::string> names;
  for (const Preset& p : presets())
    if (is_language_model(p.config) == (kind == ModelKind::language_model))
      names.emplace_back(p.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  for (const Preset& p : presets())
    if (p.name == name) return p.config;
  std::vector<std::string> names = preset_names(ModelKind::translator);
  for (std::string& more : preset_names(ModelKind::language_model))
    names.push_back(std::move(more));
  fail(unknown_name("preset", name, names));
}

namespace {

// What only some recurrent translators have.
void check_recurrent(const ModelConfig& c) {
  const bool plain = c.bridge == "last" && c.encoder_transitions == 0 &&
                     c.decoder_transitions == 0 && c.attention_size == 0 && !c.attention_bias &&
                     !c.cell_norm && c.wiring != "conditional" && !c.aligner;
  require(plain || (c.family == "rnn" && !is_language_model(c)),
          "config: bridge, encoder_transitions, decoder_transitions, attention_size, ",
          "attention_bias, cell_norm, aligner and wiring 'conditional' are for translators of ",
          "family 'rnn'");
  require(c.family == "transformer" || !is_language_model(c) ||
              (!c.shared_embeddings && !c.output_bias && c.norm_epsilon == 1e-5),
          "config: shared_embeddings, output_bias and norm_epsilon are not for recurrent language ",
          "models");
  require(
      c.cell == "gru" || (c.encoder_transitions == 0 && c.decoder_transitions == 0 && !c.cell_norm),
      "config: transitions and cell_norm want the cell gru, given ", c.cell);
  require(!c.aligner || has_attention(c),
          "config: aligner is for models with attention; score cannot be 'none'");
  require(c.wiring == "conditional" || c.decoder_transitions == 0,
          "config: decoder_transitions are for wiring 'conditional'");
  require(c.wiring != "conditional" || has_attention(c),
          "config: wiring 'conditional' wants attention; score cannot be 'none'");
  require(
      (c.attention_size == 0 && !c.attention_bias && !c.cell_norm) ||
          ((c.score == "additive" || c.score == "concat") && c.heads == 1),
      "config: attention_size, attention_bias and cell_norm want an additive score of one head");
  constexpr int64_t kMost = 100;
  require(c.encoder_transitions <= kMost && c.decoder_transitions <= kMost, "config: at most ",
          kMost, " transitions, given ", c.encoder_transitions, " and ", c.decoder_transitions);
}

}  // namespace

void check(const ModelConfig& c) {
  one_of("family", c.family, {"rnn", "transformer"});
  one_of("cell", c.cell, {"rnn", "gru", "lstm"});
  one_of("wiring", c.wiring, {"before", "after", "conditional"});
  one_of("bridge", c.bridge, {"last", "mean"});
  one_of("norm", c.norm, {"pre", "post"});
  one_of("position", c.position,
         {"sinusoidal", "learned", "rotary", "sinusoidal_marian", "sinusoidal_from_one",
          "sinusoidal_interleaved"});
  one_of("activation", c.activation, feed_forward_names());
  one_of("decoder", c.decoder, {"attention", "ssru"});
  one_of("reads", c.reads, {"stream", "lines"});
  std::vector<std::string> scores;
  for (const ScoreRow& row : score_table()) {
    scores.emplace_back(row.name);
    if (row.alias) scores.emplace_back(row.alias);
  }
  if (c.family == "rnn") scores.emplace_back(kNoScore);
  one_of("score", c.score, scores);
  weigh_kind(c.weigh);
  require(c.weigh != "reinforce", "config: weigh 'reinforce' needs a reward, which training a ",
          "translator does not give; 'straight_through' and 'gumbel' train hard attention");
  const auto positive = [](const char* name, int64_t value) {
    require(value > 0, "config: ", name, " wants a number above 0, given ", value);
  };
  positive("size", c.size);
  positive("decoder_layers", c.decoder_layers), positive("heads", c.heads);
  positive("inner", c.inner), positive("positions", c.positions);
  const auto not_negative = [](const char* name, int64_t value) {
    require(value >= 0, "config: ", name, " wants a number of at least 0, given ", value);
  };
  not_negative("embedding", c.embedding), not_negative("key_heads", c.key_heads);
  not_negative("decoder_heads", c.decoder_heads), not_negative("decoder_inner", c.decoder_inner);
  not_negative("rank", c.rank), not_negative("encoder_layers", c.encoder_layers);
  not_negative("attention_size", c.attention_size);
  not_negative("encoder_transitions", c.encoder_transitions);
  not_negative("decoder_transitions", c.decoder_transitions);
  check_recurrent(c);
  constexpr int64_t kMostLayers = 1000;
  for (const int64_t layers : {c.encoder_layers, c.decoder_layers})
    require(layers <= kMostLayers, "config: a model has at most ", kMostLayers,
            " layers on a side, given ", layers);
  require((c.decoder_heads == 0 && c.decoder_inner == 0) ||
              (c.family == "transformer" && !is_language_model(c)),
          "config: decoder_heads and decoder_inner are for translators of family 'transformer'");
  for (const int64_t heads : {c.heads, decoder_heads(c)}) {
    require(c.size % heads == 0, "config: size ", c.size, " cannot be shared by ", heads,
            " heads evenly");
    require(c.position != "rotary" || c.size / heads % 2 == 0,
            "config: rotary positions want heads of an even size, given ", c.size / heads);
    require(c.key_heads == 0 || heads % c.key_heads == 0, "config: ", heads, " heads cannot share ",
            c.key_heads, " key heads evenly");
  }
  require(c.family != "transformer" || c.size % 2 == 0, "config: size ", c.size, " is odd");
  require(c.embedding == 0 || c.family == "rnn",
          "config: embedding is for rnn; a transformer's is size");
  for (const double p : {c.dropout, c.attention_dropout, c.inner_dropout})
    require(p >= 0 && p < 1, "config: dropout wants a share in [0, 1), given ", p);
  require(c.norm_epsilon > 0 && c.norm_epsilon <= 1,
          "config: norm_epsilon wants a number above 0 and at most 1, given ", c.norm_epsilon);
  require(c.embedding_scale >= 0 && std::isfinite(c.embedding_scale),
          "config: embedding_scale wants a number of at least 0, given ", c.embedding_scale);
  require(c.decoder == "attention" || !is_language_model(c),
          "config: a language model's layers have self-attention; decoder cannot be '", c.decoder,
          "'");
  require(c.family == "transformer" || (c.activation == "relu" && !c.embedding_norm &&
                                        c.embedding_scale == 0 && c.decoder == "attention"),
          "config: activation, embedding_norm, embedding_scale and decoder are for family ",
          "'transformer'");
  require(c.temperature > 0 && std::isfinite(c.temperature),
          "config: temperature wants a number above 0, given ", c.temperature);
  require(!is_language_model(c) || c.positions > 1,
          "config: a language model wants positions (its context) of at least 2, given ",
          c.positions);
  if (!is_language_model(c) || c.family != "rnn") return;
  require(
      c.wiring == "after" && !c.input_feeding,
      "config: a recurrent language model reads its past at the output: it wants wiring 'after' ",
      "and no input_feeding");
  if (!c.bidirectional) return;
  require(c.reads == "lines",
          "config: a bidirectional language model is one of lines; reads cannot be '", c.reads,
          "'");
  require(!has_attention(c),
          "config: a bidirectional language model has no attention; score cannot be '", c.score,
          "', only 'none'");
  require(
      c.embedding == 0 || c.embedding == c.size,
      "config: a bidirectional language model mixes word vectors and states: embedding and size ",
      "want to be equal, given ", c.embedding, " and ", c.size);
}

std::optional<int64_t> longest_sentence(const ModelConfig& c) {
  if (is_language_model(c)) return c.positions - (c.reads == "lines" ? 1 : 0);
  const bool learned = c.family == "transformer" && c.position == "learned";
  const ScoreRow* const score = find_score_row(c.score);
  if (!learned && !(score && score->facts.positions)) return std::nullopt;
  return c.positions - 1;
}
std::optional<int64_t> positions_of(const ModelConfig& c) {
  return longest_sentence(c) ? std::optional(c.positions) : std::nullopt;
}

std::string to_json(const ModelConfig& config) { return config_to_json(config); }

ModelConfig model_config(const std::string& json, const std::string& where) {
  return config_from_json<ModelConfig>(json, where);
}

}  // namespace heed
