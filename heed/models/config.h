// What a model is made of, described once: flags, help, the file in the model's folder and the
// check for unknown names all read this description.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace heed {

struct ModelConfig {
  std::string family = "rnn";
  int64_t size = 256;
  int64_t embedding = 0;
  int64_t encoder_layers = 1, decoder_layers = 1;
  double dropout = 0.1;
  bool tied = false;
  // attention
  std::string score = "additive";
  std::string weigh = "soft";
  double temperature = 1;
  int64_t heads = 1, decoder_heads = 0, key_heads = 0, rank = 0, positions = 512;
  double attention_dropout = 0;
  // rnn
  std::string cell = "gru";
  bool bidirectional = true;
  std::string wiring = "before";
  bool input_feeding = false;
  std::string bridge = "last";
  int64_t encoder_transitions = 0, decoder_transitions = 0;
  int64_t attention_size = 0;
  bool attention_bias = false;
  bool cell_norm = false;
  bool aligner = false;
  // transformer
  int64_t inner = 1024, decoder_inner = 0;
  double inner_dropout = 0;
  std::string norm = "pre";
  std::string position = "sinusoidal";
  std::string activation = "relu";
  double norm_epsilon = 1e-5;
  bool embedding_norm = false;
  double embedding_scale = 0;
  bool shared_embeddings = false;
  bool output_bias = false;
  std::string decoder = "attention";
  // language models
  std::string reads = "stream";
};

// Calls f(name, field, what it is) for every field, in the order of the file.
template <class Config, class F>
requires std::is_same_v<std::remove_const_t<Config>, ModelConfig>
void fields(Config& c, F&& f) {
  f("family", c.family, "rnn or transformer");
  f("size", c.size, "size of states and vectors");
  f("embedding", c.embedding, "rnn: size of a word's vector; 0: as size");
  f("encoder_layers", c.encoder_layers, "layers of the encoder");
  f("decoder_layers", c.decoder_layers, "layers of the decoder");
  f("dropout", c.dropout, "share of activations dropped in training");
  f("tied", c.tied, "the target's word vectors also score words at the output");
  f("score", c.score,
    "how a query and a key are compared (heed train --list prints them), or none");
  f("weigh", c.weigh,
    "from scores to weights: soft, hard, straight_through, gumbel, sparsemax, entmax");
  f("temperature", c.temperature, "scores are divided by it");
  f("heads", c.heads, "attention heads");
  f("decoder_heads", c.decoder_heads,
    "transformer: heads of the decoder, where it has another number than the encoder; 0: as heads");
  f("key_heads", c.key_heads, "heads of keys and values that the heads share; 0: one each");
  f("rank", c.rank, "of factorized scores; 0: not factorized");
  f("positions", c.positions,
    "longest sentence for scores and vectors by position; of a language model, its context");
  f("attention_dropout", c.attention_dropout, "share of attention weights dropped in training");
  f("cell", c.cell, "rnn: rnn, gru or lstm");
  f("bidirectional", c.bidirectional,
    "rnn: the encoder reads both ways; without one, a language model each way (ELMo)");
  f("wiring", c.wiring,
    "rnn: attention before the state (Bahdanau), after it (Luong), or conditional: between two "
    "cells of a step (Nematus)");
  f("input_feeding", c.input_feeding, "rnn, wiring after: what was read goes into the next step");
  f("bridge", c.bridge,
    "rnn: what the decoder begins with, the encoder's last states or the mean of all: last or "
    "mean");
  f("encoder_transitions", c.encoder_transitions,
    "rnn, gru: cells without input that follow each of the encoder's, at every step");
  f("decoder_transitions", c.decoder_transitions, "rnn, conditional: the same after its second");
  f("attention_size", c.attention_size, "rnn: size inside an additive score; 0: as size");
  f("attention_bias", c.attention_bias, "rnn: an additive score has a bias");
  f("cell_norm", c.cell_norm,
    "rnn, gru: layer norms inside cells, additive score, bridge and readout");
  f("aligner", c.aligner,
    "rnn: a second attention, which only says what each word was made of, and is the one that "
    "--guided teaches");
  f("inner", c.inner, "transformer: size inside the feed-forward layers");
  f("decoder_inner", c.decoder_inner,
    "transformer: the same in the decoder, where it is another than the encoder's; 0: as inner");
  f("inner_dropout", c.inner_dropout,
    "transformer: share of activations dropped inside the feed-forward layers in training");
  f("norm", c.norm, "transformer: pre or post");
  f("position", c.position,
    "transformer: sinusoidal, learned or rotary; of other toolkits sinusoidal_marian, "
    "sinusoidal_from_one, sinusoidal_interleaved");
  f("activation", c.activation,
    "transformer: inside the feed-forward layers: relu, swish, gelu (by tanh), gelu_erf, "
    "gelu_sigmoid, tanh or sigmoid");
  f("norm_epsilon", c.norm_epsilon, "what norms add to the variance");
  f("embedding_norm", c.embedding_norm, "transformer: word and position go through a norm");
  f("embedding_scale", c.embedding_scale,
    "transformer: word vectors are multiplied by it; 0: by the root of size");
  f("shared_embeddings", c.shared_embeddings,
    "one table of word vectors for both sides, though each has a tokenizer");
  f("output_bias", c.output_bias, "a bias for every word of the target");
  f("decoder", c.decoder, "transformer: layers with self-attention, or ssru (recurrent)");
  f("reads", c.reads, "language models: a stream, or lines that each end");
}

// `score` of a model without attention.
inline constexpr const char* kNoScore = "none";
inline bool has_attention(const ModelConfig& c) { return c.score != kNoScore; }
// Without an encoder there is no source: the model goes on with what it has said.
inline bool is_language_model(const ModelConfig& c) { return c.encoder_layers == 0; }
// Reads both ways, so it also gives vectors for words in their sentence.
inline bool is_bidirectional_language_model(const ModelConfig& c) {
  return is_language_model(c) && c.family == "rnn" && c.bidirectional;
}

// What a side of a Transformer has; of a language model, which is a decoder alone, the decoder.
inline int64_t decoder_heads(const ModelConfig& c) {
  return c.decoder_heads > 0 ? c.decoder_heads : c.heads;
}
inline int64_t decoder_inner(const ModelConfig& c) {
  return c.decoder_inner > 0 ? c.decoder_inner : c.inner;
}

// Configurations with a name: rnn-small, rnn, transformer-tiny, transformer-small,
// transformer-base; of language models lm-rnn, lm-transformer, elmo. Throws Error that names the
// nearest.
ModelConfig preset(const std::string& name);
enum class ModelKind { translator, language_model };
std::vector<std::string> preset_names(ModelKind kind);

// Throws Error for names that nobody knows and sizes that do not fit.
void check(const ModelConfig& config);

// The words that a sentence may have, its end not counted, where positions have parameters of their
// own, and in a language model's context; none: any number.
std::optional<int64_t> longest_sentence(const ModelConfig& config);
// And the positions that it has there, with those of begin and end.
std::optional<int64_t> positions_of(const ModelConfig& config);

// As JSON text, and back; an unknown key is an Error that names the nearest.
std::string to_json(const ModelConfig& config);
ModelConfig model_config(const std::string& json, const std::string& where);

}  // namespace heed
