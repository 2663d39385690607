#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/check.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/exchange/exported.h"
#include "heed/files/atomic_file.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<uint16_t>(text.size() + 1));
  out += text;
  out += '\0';
}

// Variables in the order of their names, then aliases: binary version 6.
class File {
 public:
  void array(const std::string& name, const Array& a) {
    std::string& out = variables_[name];
    put(out, static_cast<uint8_t>(a.shape.size()));
    for (const int64_t n : a.shape) put(out, static_cast<uint32_t>(n));
    put(out, uint8_t{0});
    require(a.values.size() < (uint64_t{1} << 30), name, ": more than 4 GiB");
    put(out, static_cast<uint32_t>(4 * a.values.size()));
    out.append(reinterpret_cast<const char*>(a.values.data()), 4 * a.values.size());
  }
  void small(const std::string& name, int value) {
    std::string& out = variables_[name];
    put(out, uint8_t{0}), put(out, uint8_t{2}), put(out, uint32_t{2});
    put(out, static_cast<int16_t>(value));
  }
  void whole(const std::string& name, int64_t value) {
    std::string& out = variables_[name];
    put(out, uint8_t{0}), put(out, uint8_t{3}), put(out, uint32_t{4});
    put(out, static_cast<int32_t>(value));
  }
  void flag(const std::string& name, int value) {
    std::string& out = variables_[name];
    put(out, uint8_t{0}), put(out, uint8_t{1}), put(out, uint32_t{1});
    put(out, static_cast<int8_t>(value));
  }
  void number(const std::string& name, double value) {
    std::string& out = variables_[name];
    put(out, uint8_t{0}), put(out, uint8_t{0}), put(out, uint32_t{4});
    put(out, static_cast<float>(value));
  }
  void alias(const std::string& name, const std::string& of) { aliases_[name] = of; }

  std::string bytes() const {
    std::string out;
    put(out, uint32_t{6});
    put_text(out, "TransformerSpec");
    put(out, uint32_t{7});
    put(out, static_cast<uint32_t>(variables_.size()));
    for (const auto& [name, data] : variables_) put_text(out, name), out += data;
    put(out, static_cast<uint32_t>(aliases_.size()));
    for (const auto& [name, of] : aliases_) put_text(out, name), put_text(out, of);
    return out;
  }

 private:
  std::map<std::string, std::string> variables_, aliases_;
};

class Writer {
 public:
  explicit Writer(const ModelFolder& model) : model_(model), ours_(parameters_of(model)) {}

  std::string bytes() {
    const ModelConfig& c = model_.config;
    for (const std::string side : {"encoder", "decoder"}) {
      const int64_t layers = side == "encoder" ? c.encoder_layers : c.decoder_layers;
      for (int64_t i = 0; i < layers; ++i) layer(side, i);
      if (c.norm == "pre") norm(side + ".norm", side + "/layer_norm");
      if (c.embedding_norm)
        norm(side == "encoder" ? "source.norm" : "target.norm", side + "/layernorm_embedding");
      out_.small(side + "/num_heads",
                 static_cast<int>(side == "encoder" ? c.heads : decoder_heads(c)));
      out_.flag(side + "/pre_norm", c.norm == "pre");
      constexpr const char* kActivations[] = {"relu",         "gelu", "swish",  "gelu_erf",
                                              "gelu_sigmoid", "tanh", "sigmoid"};
      for (int i = 0; i < 7; ++i)
        if (c.activation == kActivations[i]) out_.flag(side + "/activation", i);
      if (c.embedding_scale == 0)
        out_.flag(side + "/scale_embeddings", 1);
      else
        out_.number(side + "/scale_embeddings", c.embedding_scale);
    }
    out_.flag("encoder/embeddings_merge", 0);
    out_.flag("decoder/start_from_zero_embedding", 0);
    out_.small("decoder/alignment_layer", static_cast<int>(model_.alignment.layer));
    out_.small("decoder/alignment_heads",
               model_.alignment.head < 0 ? static_cast<int>(model_.alignment.mean_of) : 1);
    const Array positions = positions_table(model_, ours_);
    out_.array("decoder/position_encodings/encodings", positions);
    out_.alias("encoder/position_encodings/encodings", "decoder/position_encodings/encodings");
    const bool shared = !ours_.contains("target.table");
    out_.array("decoder/embeddings/weight", ours_.at(shared ? "source.table" : "target.table"));
    if (shared)
      out_.alias("encoder/embeddings_0/weight", "decoder/embeddings/weight");
    else
      out_.array("encoder/embeddings_0/weight", ours_.at("source.table"));
    if (c.tied)
      out_.alias("decoder/projection/weight", "decoder/embeddings/weight");
    else
      out_.array("decoder/projection/weight", transposed(ours_.at("output.weight")));
    if (c.output_bias) out_.array("decoder/projection/bias", ours_.at("output.bias"));
    return out_.bytes();
  }

 private:
  void norm(const std::string& from, const std::string& to) {
    out_.array(to + "/gamma", ours_.at(from + ".gain"));
    out_.array(to + "/beta", ours_.at(from + ".bias"));
  }
  // Weights one under the other, [out, in].
  void join(const std::vector<std::string>& from, const std::string& to) {
    Array w, b{{0}, {}};
    for (const std::string& name : from) {
      const Array part = transposed(ours_.at(name + ".weight"));
      const Array& bias = ours_.at(name + ".bias");
      if (w.shape.empty()) w.shape = {0, part.shape[1]};
      w.shape[0] += part.shape[0], b.shape[0] += bias.shape[0];
      w.values.insert(w.values.end(), part.values.begin(), part.values.end());
      b.values.insert(b.values.end(), bias.values.begin(), bias.values.end());
    }
    out_.array(to + "/weight", w), out_.array(to + "/bias", b);
  }
  void layer(const std::string& side, int64_t i) {
    const std::string from = side + "." + std::to_string(i) + ".",
                      to = side + "/layer_" + std::to_string(i) + "/";
    join({from + "self.query", from + "self.key", from + "self.value"},
         to + "self_attention/linear_0");
    join({from + "self.output"}, to + "self_attention/linear_1");
    norm(from + "self_norm", to + "self_attention/layer_norm");
    const int64_t key_heads = model_.config.key_heads;
    if (key_heads > 0) out_.whole(to + "self_attention/num_heads_kv", key_heads);
    if (side == "decoder") {
      if (key_heads > 0) out_.whole(to + "attention/num_heads_kv", key_heads);
      join({from + "cross.query"}, to + "attention/linear_0");
      join({from + "cross.key", from + "cross.value"}, to + "attention/linear_1");
      join({from + "cross.output"}, to + "attention/linear_2");
      norm(from + "cross_norm", to + "attention/layer_norm");
    }
    join({from + "feed_forward.inner"}, to + "ffn/linear_0");
    join({from + "feed_forward.outer"}, to + "ffn/linear_1");
    norm(from + "inner_norm", to + "ffn/layer_norm");
  }

  const ModelFolder& model_;
  Arrays ours_;
  File out_;
};

}  // namespace

void write_ctranslate2(const ModelFolder& model, const std::filesystem::path& to) {
  require_plain_transformer(model, "CTranslate2");
  require(model.config.decoder == "attention", model.path.string(), ": a decoder of '",
          model.config.decoder, "', which CTranslate2 does not have");
  const std::string weights = Writer(model).bytes();  // before anything is written
  make_empty(to);
  const Tokenizer &source = *model.tokenizers.source, &target = *model.tokenizers.target;
  const SpecialIds special = target.special(), of_source = source.special();
  const nlohmann::ordered_json config{
      {"unk_token", target.piece(special.unknown)},
      {"bos_token",
       of_source.source_begin ? source.piece(of_source.begin) : target.piece(special.begin)},
      {"eos_token", target.piece(special.end)},
      {"decoder_start_token", target.piece(special.begin)},
      {"add_source_bos", of_source.source_begin},
      {"add_source_eos", of_source.source_end},
      {"layer_norm_epsilon", model.config.norm_epsilon},
      {"multi_query_attention", false},
      {kSearchKey, to_json(model.search)}};
  const auto vocabulary = [&](const Tokenizer& t, const char* name) {
    write_file(to / name, nlohmann::json(pieces_of(t)).dump(1));
  };
  vocabulary(source, "source_vocabulary.json"), vocabulary(target, "target_vocabulary.json");
  copy_pieces(model, to);
  write_file(to / "config.json", config.dump(1));
  write_file(to / "model.bin", weights);
}

std::string ctranslate2_search(const ModelFolder& model) {
  SearchOptions o;
  model.search.fill(o, {});
  // Of ours, only `counted` ends with the beam's last hypothesis, as CTranslate2 does; the others
  // go on while a live one is better, and twice the patience waits for those (docs/import.md).
  const double patience = o.ending == Ending::counted ? o.patience : 2 * o.patience;
  std::ostringstream out;
  out << "beam_size=" << o.beam;
  if (o.beam > 1 && patience != 1) out << ", patience=" << patience;
  if (o.normalize != 1) out << ", length_penalty=" << o.normalize;
  if (o.min_length != 1 && o.min_length != 0) out << ", min_decoding_length=" << o.min_length;
  if (o.max_ratio == 0 && o.max_extra != 256) out << ", max_decoding_length=" << o.max_extra;
  if (!o.allow_unknown || model.tokenizers.target->writes_all()) out << ", disable_unk=True";
  return out.str();
}

}  // namespace heed
