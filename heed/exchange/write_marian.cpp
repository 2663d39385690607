#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/exchange/exported.h"
#include "heed/exchange/marian.h"
#include "heed/exchange/zip.h"
#include "heed/files/atomic_file.h"
#include "heed/files/npy.h"

namespace heed {
namespace {

// A text that YAML reads back as it is.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out + "\"";
}

void want_possible(const ModelFolder& model, const Arrays& ours) {
  const ModelConfig& c = model.config;
  const std::string who = model.path.string();
  require_plain_transformer(model, "Marian");
  require(c.position == "sinusoidal_marian" || (c.position == "learned" && c.embedding_scale == 1),
          who, ": positions are '", c.position,
          "'; Marian has 'sinusoidal_marian', and learned ones with an embedding_scale of 1");
  require(c.position == "learned" || c.embedding_scale == 0, who, ": embedding_scale is ",
          c.embedding_scale, "; Marian's is the root of size");
  require(c.norm_epsilon == 1e-6, who, ": norm_epsilon is ", c.norm_epsilon, "; Marian has 1e-6");
  require(c.activation == "relu" || c.activation == "swish" || c.activation == "gelu_erf", who,
          ": activation is '", c.activation, "'; Marian has relu, swish and gelu_erf");
  require(
      c.key_heads == 0 && decoder_heads(c) == c.heads && !c.embedding_norm, who,
      ": shared key heads, a decoder with heads of its own, or a norm of embeddings, which this "
      "export does not have");
  const Tokenizer& target = *model.tokenizers.target;
  const Array& table = ours.at(ours.contains("target.table") ? "target.table" : "source.table");
  const int64_t D = c.size;
  const bool last = target.special().begin == target.size() - 1;
  require(last && std::all_of(table.values.end() - D, table.values.end(),
                              [](float x) { return x == 0; }),
          who, ": its decoder begins from a word's vector; Marian's begins from zeros");
  const SpecialIds source = model.tokenizers.source->special();
  require(source.source_end && !source.source_begin, who,
          ": its sources are read without an end, which Marian always adds");
}

}  // namespace

void write_marian(const ModelFolder& model, const std::filesystem::path& to) {
  const ModelConfig& c = model.config;
  Arrays ours = parameters_of(model);
  want_possible(model, ours);
  make_empty(to);
  Arrays out;
  const auto row = [](Array a) {
    a.shape.insert(a.shape.begin(), 1);
    return a;
  };
  // Without the row that was added to begin with.
  const auto shorter = [](const Array& a) { return rows_of(a, 0, a.shape[0] - 1); };
  const auto linear = [&](const std::string& from, const std::string& w, const std::string& b) {
    out[w] = ours.at(from + ".weight");
    out[b] = row(ours.at(from + ".bias"));
  };
  const std::string pre = c.norm == "pre" ? "_pre" : "";
  const auto norm = [&](const std::string& from, const std::string& name, const std::string& end) {
    out[name + "_ln_scale" + end] = row(ours.at(from + ".gain"));
    out[name + "_ln_bias" + end] = row(ours.at(from + ".bias"));
  };
  const auto attention = [&](const std::string& from, const std::string& name) {
    for (const auto& [mine, theirs] :
         {std::pair{"query", "q"}, {"key", "k"}, {"value", "v"}, {"output", "o"}})
      linear(from + "." + mine, name + "_W" + theirs, name + "_b" + theirs);
    norm(from + "_norm", name + "_Wo", pre);
  };
  for (const std::string side : {"encoder", "decoder"}) {
    const int64_t layers = side == "encoder" ? c.encoder_layers : c.decoder_layers;
    for (int64_t i = 0; i < layers; ++i) {
      const std::string from = side + "." + std::to_string(i) + ".",
                        name = side + "_l" + std::to_string(i + 1) + "_";
      if (side == "decoder" && c.decoder == "ssru") {
        linear(from + "recurrent.forget", name + "rnn_Wf", name + "rnn_bf");
        out[name + "rnn_W"] = ours.at(from + "recurrent.input.weight");
        norm(from + "self_norm", name + "rnn_ffn", pre);
      } else {
        attention(from + "self", name + "self");
      }
      if (side == "decoder") attention(from + "cross", name + "context");
      linear(from + "feed_forward.inner", name + "ffn_W1", name + "ffn_b1");
      linear(from + "feed_forward.outer", name + "ffn_W2", name + "ffn_b2");
      norm(from + "inner_norm", name + "ffn_ffn", pre);
    }
    if (c.norm == "pre") norm(side + ".norm", side + "_top", "");
  }
  const bool shared = !ours.contains("target.table");
  if (shared) {
    out["Wemb"] = shorter(ours.at("source.table"));
  } else {
    out["encoder_Wemb"] = ours.at("source.table");
    out["decoder_Wemb"] = shorter(ours.at("target.table"));
  }
  if (!c.tied) out["decoder_ff_logit_out_Wt"] = shorter(transposed(ours.at("output.weight")));
  if (c.output_bias) out["decoder_ff_logit_out_b"] = row(shorter(ours.at("output.bias")));
  if (c.position == "learned") out["Wpos"] = ours.at("positions.table");
  const int64_t source_words = shared ? out.at("Wemb").shape[0] : out.at("encoder_Wemb").shape[0],
                target_words = shared ? source_words : out.at("decoder_Wemb").shape[0];
  const auto flag = [](bool value) { return value ? "true\n" : "false\n"; };
  std::string yaml =
      "type: transformer\ndim-emb: " + std::to_string(c.size) + "\ndim-vocabs:\n  - " +
      std::to_string(source_words) + "\n  - " + std::to_string(target_words) +
      "\nenc-depth: " + std::to_string(c.encoder_layers) +
      "\ndec-depth: " + std::to_string(c.decoder_layers) +
      "\ntransformer-heads: " + std::to_string(c.heads) +
      "\ntransformer-dim-ffn: " + std::to_string(c.inner) +
      "\ntransformer-decoder-dim-ffn: " + std::to_string(decoder_inner(c)) +
      "\ntransformer-ffn-activation: " + (c.activation == "gelu_erf" ? "gelu" : c.activation) +
      (c.norm == "pre" ? "\ntransformer-preprocess: n\ntransformer-postprocess: da\n"
                         "transformer-postprocess-top: n\n"
                       : "\ntransformer-preprocess: \"\"\ntransformer-postprocess: dan\n"
                         "transformer-postprocess-top: \"\"\n") +
      "transformer-postprocess-emb: d\ntransformer-train-position-embeddings: " +
      flag(c.position == "learned") + "tied-embeddings: " + flag(c.tied && !shared) +
      "tied-embeddings-src: " + flag(shared && !c.tied) +
      "tied-embeddings-all: " + flag(shared && c.tied) + "transformer-decoder-autoreg: " +
      (c.decoder == "ssru" ? "rnn\ndec-cell: ssru\n" : "self-attention\n");
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [name, array] : out) {
    std::string data = npy_header(array.shape);
    data.append(reinterpret_cast<const char*>(array.values.data()), 4 * array.values.size());
    members.emplace_back(name + ".npy", std::move(data));
  }
  yaml += '\0';
  std::string header = npy_header(std::vector<int64_t>{std::ssize(yaml)});
  header.replace(header.find("<f4"), 3, "|i1");
  members.emplace_back("special:model.yml.npy", header + yaml);
  const auto vocabulary = [&](const Tokenizer& t, const char* name, int64_t words) {
    std::string lines;
    const std::vector<std::string> pieces = pieces_of(t);
    for (int64_t i = 0; i < words; ++i)
      lines += quoted(pieces[static_cast<size_t>(i)]) + ": " + std::to_string(i) + "\n";
    write_file(to / name, lines);
  };
  vocabulary(*model.tokenizers.source, "source.vocab.yml", source_words);
  vocabulary(*model.tokenizers.target, "target.vocab.yml", target_words);
  copy_pieces(model, to);
  SearchOptions search;
  model.search.fill(search, {});
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "beam-size: %d\nnormalize: %g\n",
                static_cast<int>(search.beam), search.normalize);
  write_file(to / "decoder.yml",
             std::string("relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n"
                         "  - source.vocab.yml\n  - target.vocab.yml\n") +
                 numbers + "max-length-factor: " + std::to_string(search.max_ratio) +
                 "\nallow-unk: " + (search.allow_unknown ? "true\n" : "false\n"));
  write_file(to / "model.npz", zip_of(members));
}

}  // namespace heed
