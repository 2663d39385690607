#include <nlohmann/json.hpp>
#include <span>

#include "heed/base/check.h"
#include "heed/data/piece_table.h"
#include "heed/exchange/exported.h"
#include "heed/exchange/hugging_face.h"
#include "heed/files/atomic_file.h"
#include "heed/files/safetensors.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

std::string activation_of(const ModelConfig& c) {
  if (c.activation == "gelu_erf") return "gelu";
  if (c.activation == "gelu") return "gelu_new";
  if (c.activation == "gelu_sigmoid") return "quick_gelu";
  return c.activation;
}

// By Hugging Face's names, weights [out, in].
Arrays named(const ModelFolder& model) {
  const ModelConfig& c = model.config;
  const Arrays ours = parameters_of(model);
  Arrays out;
  const auto linear = [&](const std::string& from, const std::string& to) {
    out[to + ".weight"] = transposed(ours.at(from + ".weight"));
    out[to + ".bias"] = ours.at(from + ".bias");
  };
  const auto norm = [&](const std::string& from, const std::string& to) {
    out[to + ".weight"] = ours.at(from + ".gain"), out[to + ".bias"] = ours.at(from + ".bias");
  };
  const auto attention = [&](const std::string& from, const std::string& to) {
    for (const auto& [mine, theirs] :
         {std::pair{"query", "q"}, {"key", "k"}, {"value", "v"}, {"output", "out"}})
      linear(from + "." + mine, to + "." + theirs + "_proj");
  };
  for (const std::string side : {"encoder", "decoder"}) {
    const int64_t layers = side == "encoder" ? c.encoder_layers : c.decoder_layers;
    for (int64_t i = 0; i < layers; ++i) {
      const std::string from = side + "." + std::to_string(i) + ".",
                        to = "model." + side + ".layers." + std::to_string(i) + ".";
      attention(from + "self", to + "self_attn");
      norm(from + "self_norm", to + "self_attn_layer_norm");
      if (side == "decoder") {
        attention(from + "cross", to + "encoder_attn");
        norm(from + "cross_norm", to + "encoder_attn_layer_norm");
      }
      linear(from + "feed_forward.inner", to + "fc1");
      linear(from + "feed_forward.outer", to + "fc2");
      norm(from + "inner_norm", to + "final_layer_norm");
    }
  }
  const bool shared = !ours.contains("target.table");
  if (shared) {
    out["model.shared.weight"] = ours.at("source.table");
  } else {
    out["model.encoder.embed_tokens.weight"] = ours.at("source.table");
    out["model.decoder.embed_tokens.weight"] = ours.at("target.table");
  }
  if (!c.tied) out["lm_head.weight"] = transposed(ours.at("output.weight"));
  const auto words = static_cast<int64_t>(model.tokenizers.target->size());
  Array bias{{1, words}, std::vector<float>(static_cast<size_t>(words))};
  if (c.output_bias) bias.values = ours.at("output.bias").values;
  out["final_logits_bias"] = std::move(bias);
  return out;
}

void want_possible(const ModelFolder& model) {
  const ModelConfig& c = model.config;
  const std::string who = model.path.string();
  require_plain_transformer(model, "Hugging Face's MarianMT");
  require(c.norm == "post" && !c.embedding_norm, who,
          ": norms stand before its layers; MarianMT has them after (heed train --norm post)");
  require(c.position == "sinusoidal", who, ": positions are '", c.position,
          "'; MarianMT has 'sinusoidal'");
  require(c.norm_epsilon == 1e-5, who, ": norm_epsilon is ", c.norm_epsilon, "; MarianMT has 1e-5");
  require(c.embedding_scale == 0 || c.embedding_scale == 1, who, ": embedding_scale is ",
          c.embedding_scale, "; MarianMT has 0 and 1");
  require(c.decoder == "attention" && c.key_heads == 0, who,
          ": a decoder with another part than self-attention, or shared key heads");
  const SpecialIds source = model.tokenizers.source->special();
  require(source.source_end && !source.source_begin, who,
          ": its sources have no end, which MarianMT's tokenizer adds");
}

}  // namespace

void write_hugging_face(const ModelFolder& model, const std::filesystem::path& to) {
  want_possible(model);
  const ModelConfig& c = model.config;
  const Tokenizer &source = *model.tokenizers.source, &target = *model.tokenizers.target;
  require(std::filesystem::exists(model.path / "joint.spm") ||
              (std::filesystem::exists(model.path / "source.spm") &&
               std::filesystem::exists(model.path / "target.spm")),
          model.path.string(),
          ": its pieces are words or characters; MarianMT wants SentencePiece models");
  const Arrays arrays = named(model);  // before anything is written: it may not be possible
  make_empty(to);
  copy_pieces(model, to);
  const auto vocabulary = [&](const Tokenizer& t, const char* name) {
    nlohmann::ordered_json json;
    const std::vector<std::string> pieces = pieces_of(t);
    for (size_t i = 0; i < pieces.size(); ++i)
      if (!json.contains(pieces[i])) json[pieces[i]] = i;
    write_file(to / name, json.dump(0));
  };
  const bool separate = pieces_of(source) != pieces_of(target);
  vocabulary(source, "vocab.json");
  if (separate) vocabulary(target, "target_vocab.json");
  const SpecialIds s = target.special();
  const PieceTable* const table = as_piece_table(source);
  const bool shared = c.shared_embeddings || model.tokenizers.source == model.tokenizers.target;
  SearchOptions search;
  model.search.fill(search, {});
  nlohmann::ordered_json config{{"architectures", {"MarianMTModel"}},
                                {"model_type", "marian"},
                                {"is_encoder_decoder", true},
                                {"d_model", c.size},
                                {"encoder_layers", c.encoder_layers},
                                {"decoder_layers", c.decoder_layers},
                                {"encoder_attention_heads", c.heads},
                                {"decoder_attention_heads", decoder_heads(c)},
                                {"encoder_ffn_dim", c.inner},
                                {"decoder_ffn_dim", decoder_inner(c)},
                                {"activation_function", activation_of(c)},
                                {"scale_embedding", c.embedding_scale == 0},
                                {"static_position_embeddings", true},
                                {"normalize_before", false},
                                {"normalize_embedding", false},
                                {"add_final_layer_norm", false},
                                {"max_position_embeddings", 1024},
                                {"dropout", c.dropout},
                                {"vocab_size", source.size()},
                                {"decoder_vocab_size", target.size()},
                                {"share_encoder_decoder_embeddings", shared},
                                {"tie_word_embeddings", c.tied},
                                {"pad_token_id", s.pad},
                                {"eos_token_id", s.end},
                                {"bos_token_id", s.begin},
                                {"decoder_start_token_id", s.begin},
                                {"forced_eos_token_id", s.end},
                                {"torch_dtype", "float32"},
                                {kSpeltKey, table && !table->spelt.empty()},
                                {kSearchKey, to_json(model.search)}};
  nlohmann::ordered_json bad = nlohmann::ordered_json::array({{s.pad}});
  if (s.begin != s.pad) bad.push_back({s.begin});
  const nlohmann::ordered_json generation{
      {"num_beams", search.beam},
      {"length_penalty", search.normalize},
      {"max_length", search.max_ratio == 0 ? search.max_extra + 2 : 512},
      {"bad_words_ids", bad},
      {"pad_token_id", s.pad},
      {"eos_token_id", s.end},
      {"decoder_start_token_id", s.begin},
      {"forced_eos_token_id", s.end}};
  const nlohmann::ordered_json tokens{{"source_lang", "src"},
                                      {"target_lang", "tgt"},
                                      {"unk_token", target.piece(s.unknown)},
                                      {"eos_token", target.piece(s.end)},
                                      {"pad_token", target.piece(s.pad)},
                                      {"separate_vocabs", separate},
                                      {"tokenizer_class", "MarianTokenizer"}};
  write_file(to / "config.json", config.dump(1));
  write_file(to / "generation_config.json", generation.dump(1));
  write_file(to / "tokenizer_config.json", tokens.dump(1));
  std::vector<TensorEntry> entries;
  for (const auto& [name, array] : arrays)
    entries.push_back({.name = name,
                       .dtype = StoredDtype::F32,
                       .shape = array.shape,
                       .bytes = std::as_bytes(std::span(array.values))});
  write_safetensors(to / "model.safetensors", entries, {{"format", "pt"}});
}

}  // namespace heed
