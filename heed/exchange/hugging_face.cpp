#include "heed/exchange/hugging_face.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/base/check.h"
#include "heed/data/piece_table.h"
#include "heed/exchange/bytes.h"
#include "heed/exchange/exported.h"
#include "heed/exchange/pieces.h"
#include "heed/exchange/torch_file.h"
#include "heed/files/safetensors.h"
#include "heed/models/config_json.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json read_json(const fs::path& file) {
  Json json = parse_json<Json>(read_whole(file.string()));
  require(json.is_object(), file.string(), ": not a JSON object");
  return json;
}

template <class T>
T value_of(const Json& json, const char* key, T otherwise, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return otherwise;
  const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                    : std::is_same_v<T, std::string> ? found->is_string()
                    : std::is_same_v<T, int64_t>     ? found->is_number_integer()
                                                     : found->is_number();
  require(fits, where, ": '", key, "' cannot be ", found->dump());
  return found->get<T>();
}

Arrays from_safetensors(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  Arrays out;
  for (const TensorEntry& entry : file.entries()) {
    Array array{entry.shape, {}};
    const auto* const data = reinterpret_cast<const char*>(entry.bytes.data());
    const auto read = [&](size_t size, auto number) {
      array.values.resize(entry.bytes.size() / size);
      for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = number(data + i * size);
    };
    const auto half = [](const char* at) {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return bits;
    };
    if (entry.dtype == StoredDtype::F32) {
      array.values.resize(entry.bytes.size() / 4);
      std::memcpy(array.values.data(), data, entry.bytes.size());
    } else if (entry.dtype == StoredDtype::F16) {
      read(2, [&](const char* at) { return from_f16(half(at)); });
    } else if (entry.dtype == StoredDtype::BF16) {
      read(2, [&](const char* at) { return from_bf16(half(at)); });
    } else {
      fail(path.string(), ": tensor '", entry.name, "' is of ", to_string(entry.dtype),
           "; F32, F16 and BF16 are read");
    }
    out[entry.name] = std::move(array);
  }
  return out;
}

// The files that an index names for its tensors: of what is cut into several.
std::set<fs::path> shards_of(const fs::path& index) {
  const Json json = read_json(index);
  const auto map = json.find("weight_map");
  require(map != json.end() && map->is_object() && !map->empty(), index.string(),
          ": has no 'weight_map' that says which tensor is in which file");
  std::set<fs::path> out;
  for (const auto& [tensor, file] : map->items()) {
    const fs::path name = file.is_string() ? file.get<std::string>() : std::string();
    require(name.has_filename() && name == name.filename(), index.string(), ": '", tensor,
            "' cannot be in ", file.dump(), "; a file's name was wanted");
    out.insert(index.parent_path() / name);
  }
  return out;
}

Arrays weights_of(const fs::path& folder, std::string& what) {
  for (const std::string name : {"model.safetensors", "pytorch_model.bin"}) {
    const auto read = [&](const fs::path& file) {
      if (name != "model.safetensors") return parse_torch(read_whole(file.string()), file.string());
      read_whole(file.string());  // tells of a pointer in its place
      return from_safetensors(file);
    };
    what = (folder / name).string();
    if (fs::exists(folder / name)) return read(folder / name);
    const fs::path index = folder / (name + ".index.json");
    if (!fs::exists(index)) continue;
    what = index.string();
    Arrays out;
    for (const fs::path& shard : shards_of(index))
      for (auto& [tensor, array] : read(shard))
        require(out.emplace(tensor, std::move(array)).second, shard.string(), ": tensor '", tensor,
                "' is in another file, too");
    return out;
  }
  fail(folder.string(),
       ": has neither model.safetensors nor pytorch_model.bin; the weights are missing");
}

std::vector<std::string> table_of(const fs::path& file, int64_t rows) {
  const Json json = Json::parse(read_whole(file.string()), nullptr, /*allow_exceptions=*/false);
  require(json.is_object(), file.string(), ": not a JSON object of pieces and their ids");
  std::vector<std::string> pieces(static_cast<size_t>(rows));
  std::vector<bool> there(pieces.size());
  for (const auto& [piece, id] : json.items()) {
    require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < rows,
            file.string(), ": '", piece, "' has the id ", id.dump(), ", the table has ", rows,
            " rows");
    const auto at = id.get<size_t>();
    require(!there[at], file.string(), ": id ", at, " comes twice");
    pieces[at] = piece, there[at] = true;
  }
  for (size_t i = 0; i < pieces.size(); ++i)
    if (!there[i]) pieces[i] = "<unused " + std::to_string(i) + ">";
  return pieces;
}

std::string activation_of(const std::string& name, const std::string& where) {
  if (name == "swish" || name == "silu") return "swish";
  if (name == "gelu" || name == "gelu_python") return "gelu_erf";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu";
  if (name == "quick_gelu") return "gelu_sigmoid";
  require(name == "relu" || name == "tanh" || name == "sigmoid", where, ": activation_function '",
          name, "' is not one that heed has; it has relu, swish, gelu, tanh and sigmoid");
  return name;
}

class Reader {
 public:
  explicit Reader(const fs::path& folder)
      : folder_(folder),
        where_((folder / "config.json").string()),
        json_(read_json(folder / "config.json")),
        // Without a file of its own, how to search stands in config.json.
        generation_(fs::exists(folder / "generation_config.json")
                        ? read_json(folder / "generation_config.json")
                        : json_),
        in_({}, {}, Conversion::Layout::out_in) {
    const std::string type = value_of<std::string>(json_, "model_type", "", where_);
    require(type == "marian", where_, ": model_type is '", type,
            "'; heed imports 'marian' (MarianMT) from Hugging Face's folders");
    std::string what;
    Arrays arrays = weights_of(folder, what);
    in_ = Conversion(what, std::move(arrays), Conversion::Layout::out_in);
  }

  ForeignModel read() {
    model_.format = "Hugging Face MarianMT";
    configure();
    embeddings();
    for (int64_t i = 0; i < model_.config.encoder_layers; ++i) layer("encoder", i);
    for (int64_t i = 0; i < model_.config.decoder_layers; ++i) layer("decoder", i);
    model_.tokenizers = read_marian_mt_tokenizers(folder_, source_rows_, target_rows_);
    in_.finish(model_);
    output_bias();
    search();
    return std::move(model_);
  }

 private:
  int64_t whole(const char* key, int64_t otherwise) const {
    return value_of(json_, key, otherwise, where_);
  }

  void configure() {
    ModelConfig& c = model_.config;
    c = {};
    c.family = "transformer", c.score = "scaled_dot", c.norm = "post";
    c.size = whole("d_model", 1024);
    c.encoder_layers = whole("encoder_layers", 12), c.decoder_layers = whole("decoder_layers", 12);
    c.heads = whole("encoder_attention_heads", 16), c.inner = whole("encoder_ffn_dim", 4096);
    const int64_t heads = whole("decoder_attention_heads", 16),
                  inner = whole("decoder_ffn_dim", 4096);
    require(heads > 0 && inner > 0, where_, ": ", heads, " heads and a decoder_ffn_dim of ", inner,
            " in the decoder; numbers above 0 were wanted");
    if (heads != c.heads) c.decoder_heads = heads;
    if (inner != c.inner) c.decoder_inner = inner;
    c.activation =
        activation_of(value_of<std::string>(json_, "activation_function", "gelu", where_), where_);
    c.embedding_scale = value_of(json_, "scale_embedding", false, where_) ? 0 : 1;
    c.dropout = value_of(json_, "dropout", 0.1, where_);
    const std::string name = "model.encoder.embed_positions.weight",
                      other = "model.decoder.embed_positions.weight";
    if (in_.has(name) || in_.has(other)) {
      const Array table = in_.take(in_.has(name) ? name : other, 2);
      require(!in_.has(other) || in_.take(other, 2).values == table.values, in_.what(),
              ": encoder and decoder have positions that differ; heed has one table for both");
      c.position = position_named(table);
      if (c.position == "learned") {
        c.positions = table.shape[0];
        in_.put("positions/table", table, name);
      }
    }
  }

  void embeddings() {
    ModelConfig& c = model_.config;
    bool shared = value_of(json_, "share_encoder_decoder_embeddings", true, where_);
    const bool tied = value_of(json_, "tie_word_embeddings", true, where_);
    const std::string all = "model.shared.weight", source = "model.encoder.embed_tokens.weight",
                      target = "model.decoder.embed_tokens.weight", output = "lm_head.weight";
    const auto first = [&](std::initializer_list<std::string> names) {
      for (const std::string& name : names)
        if (in_.has(name)) return name;
      return *names.begin();
    };
    // The sides' own tables are what is computed with, where they are there: with
    // tie_word_embeddings false they may differ, and model.shared is then used by nobody.
    const std::string source_name =
        shared ? first({source, all, target, output}) : first({source, all});
    const std::string target_name =
        shared ? first({target, all, source, output}) : first({target, output});
    const Array source_table = in_.take(source_name, 2), target_table = in_.take(target_name, 2);
    in_.ignore(all), in_.ignore(source), in_.ignore(target);
    shared = shared && source_table.values == target_table.values;
    c.shared_embeddings = shared;
    source_rows_ = source_table.shape[0], target_rows_ = target_table.shape[0];
    in_.put("source/table", source_table, source_name);
    if (!shared) in_.put("target/table", target_table, target_name);
    c.tied = tied;
    if (in_.has(output)) {
      const bool same = in_.at(output).values == target_table.values;
      if (!same && tied)
        model_.notes.push_back(
            "output: lm_head.weight differs from the table of words, though config.json says that "
            "they are tied; both are used as they are");
      c.tied = same && (tied || c.tied);
      if (!c.tied) in_.put("output/weight", in_.weight(output), output);
    } else {
      require(tied, in_.what(),
              ": has no lm_head.weight, and config.json says that it is not tied "
              "to the table of words");
    }
    c.output_bias = in_.has("final_logits_bias");
    if (c.output_bias) {
      Array bias = in_.take("final_logits_bias", 1);
      for (float& b : bias.values)
        if (b < kNever) b = kNever;  // -inf, too
      in_.put("output/bias", bias, "final_logits_bias");
    }
  }

  void layer(const std::string& side, int64_t i) {
    const std::string from = "model." + side + ".layers." + std::to_string(i) + ".",
                      to = side + "/" + std::to_string(i) + "/";
    const auto linear = [&](const std::string& a, const std::string& b) {
      in_.linear(from + a + ".weight", from + a + ".bias", to + b);
    };
    const auto norm = [&](const std::string& a, const std::string& b) {
      in_.norm(from + a + ".weight", from + a + ".bias", to + b);
    };
    const auto attention = [&](const std::string& a, const std::string& b) {
      for (const auto& [theirs, ours] :
           {std::pair{"q", "query"}, {"k", "key"}, {"v", "value"}, {"out", "output"}})
        linear(a + "." + theirs + "_proj", b + "/" + ours);
    };
    attention("self_attn", "self"), norm("self_attn_layer_norm", "self_norm");
    if (side == "decoder")
      attention("encoder_attn", "cross"), norm("encoder_attn_layer_norm", "cross_norm");
    linear("fc1", "feed_forward/inner"), linear("fc2", "feed_forward/outer");
    norm("final_layer_norm", "inner_norm");
  }

  // Where scores are made to sum up to one after the pad is forbidden, it has no part in them.
  void output_bias() {
    if (!value_of(generation_, "renormalize_logits", false, where_)) return;
    Array& bias = model_.parameters["output.bias"];
    bias.shape = {target_rows_};
    bias.values.resize(static_cast<size_t>(target_rows_));
    bias.values.at(static_cast<size_t>(model_.tokenizers.target->special().pad)) = kNever;
    model_.config.output_bias = true;
    model_.notes.push_back("output: the pad takes no part in probabilities (renormalize_logits)");
  }

  void search() {
    const Json& g = generation_;
    SearchDefaults& s = model_.search;
    s.beam = std::max<int64_t>(1, value_of(g, "num_beams", int64_t{1}, where_));
    const double penalty = value_of(g, "length_penalty", 1.0, where_);
    s.normalize = std::max(0.0, penalty);
    if (penalty < 0)
      model_.notes.push_back("search: a length_penalty of 0, for heed has none below it");
    // The begin counts, and the end, if it is forced: MarianMT's config.json forces it unasked.
    const bool forced = g.contains("forced_eos_token_id") ? !g["forced_eos_token_id"].is_null()
                                                          : g.contains("model_type");
    int64_t longest = value_of(g, "max_length", int64_t{20}, where_);
    longest = value_of(g, "max_new_tokens", longest - 1, where_) + 1;
    s.max_ratio = 0, s.max_extra = std::max<int64_t>(1, longest - (forced ? 2 : 1));
    s.open_end = !forced, s.free_end = forced;
    const int64_t least =
        std::max(value_of(g, "min_length", int64_t{0}, where_) - 1,  // and the begin
                 value_of(g, "min_new_tokens", int64_t{0}, where_));
    if (least > 0) s.min_length = least;
    const int64_t repeated = value_of(g, "no_repeat_ngram_size", int64_t{0}, where_);
    if (repeated > 0) s.no_repeat = repeated;
    // The pad has no part in probabilities already (output_bias()), which costs a search nothing.
    if ((least > 0 || repeated > 0) && value_of(g, "renormalize_logits", false, where_))
      s.renormalize = true;
    const auto early = g.find("early_stopping");
    const bool stops = early != g.end() && early->is_boolean() && early->get<bool>();
    s.ending = stops ? "counted" : "full";
    const auto bad = g.find("bad_words_ids");
    s.allow_begin = bad == g.end() || bad->is_null() || bad->empty();
    model_.alignment = {.layer = -1, .head = -1, .shift = 0};
    if (json_.contains(kSearchKey)) s = search_defaults(json_[kSearchKey], where_);
    note_other_searches();
  }

  // What transformers would search with and heed does not take over: each with the value that does
  // nothing, unlike null, which is one for all.
  void note_other_searches() {
    const std::pair<const char*, Json> known[] = {{"do_sample", false},
                                                  {"num_beam_groups", 1},
                                                  {"repetition_penalty", 1.0},
                                                  {"encoder_repetition_penalty", 1.0},
                                                  {"encoder_no_repeat_ngram_size", 0},
                                                  {"exponential_decay_length_penalty", nullptr},
                                                  {"forced_bos_token_id", nullptr},
                                                  {"sequence_bias", nullptr},
                                                  {"suppress_tokens", nullptr},
                                                  {"begin_suppress_tokens", nullptr}};
    std::string asked;
    for (const auto& [key, nothing] : known) {
      const auto found = generation_.find(key);
      if (found != generation_.end() && !found->is_null() && *found != nothing)
        asked += (asked.empty() ? "" : ", ") + std::string(key);
    }
    const auto bad = generation_.find("bad_words_ids");
    const Json begin = Json::array({Json::array({model_.tokenizers.target->special().begin})});
    if (bad != generation_.end() && bad->is_array() && !bad->empty() && *bad != begin)
      asked += (asked.empty() ? "" : ", ") + std::string("bad_words_ids");
    if (!asked.empty())
      model_.notes.push_back("search: without what the folder asks for besides (" + asked + ")");
  }

  fs::path folder_;
  std::string where_;
  Json json_, generation_;
  Conversion in_;
  int64_t source_rows_ = 0, target_rows_ = 0;
  ForeignModel model_;
};

}  // namespace

TokenizerPair read_marian_mt_tokenizers(const fs::path& folder, int64_t source_rows,
                                        int64_t target_rows) {
  const std::string where = (folder / "config.json").string();
  const Json json = read_json(folder / "config.json");
  const fs::path search = folder / "generation_config.json";
  const Json generation = fs::exists(search) ? read_json(search) : Json::object();
  const fs::path own = folder / "tokenizer_config.json";
  const Json tokens = fs::exists(own) ? read_json(own) : Json::object();
  const bool separate = value_of(tokens, "separate_vocabs", false, own.string());
  const auto piece = [&](const char* key, const char* otherwise) {
    const auto found = tokens.find(key);
    if (found == tokens.end() || found->is_null()) return std::string(otherwise);
    if (found->is_object()) return value_of<std::string>(*found, "content", otherwise, where);
    require(found->is_string(), own.string(), ": '", key, "' cannot be ", found->dump());
    return found->get<std::string>();
  };
  const bool spells = value_of(json, kSpeltKey, true, where);
  const auto table = [&](const char* file, const char* spm, int64_t rows, bool target) {
    PieceTable out{.pieces = table_of(folder / file, rows)};
    const auto id_of = [&](const std::string& name, int64_t otherwise) {
      const auto at = std::find(out.pieces.begin(), out.pieces.end(), name);
      return at == out.pieces.end() ? static_cast<Id>(otherwise)
                                    : static_cast<Id>(at - out.pieces.begin());
    };
    out.special.unknown = id_of(piece("unk_token", "<unk>"), 1);
    const int64_t pad = value_of(json, "pad_token_id", rows - 1, where);
    out.special.end = static_cast<Id>(value_of(json, "eos_token_id", int64_t{0}, where));
    out.special.pad = static_cast<Id>(pad);
    const int64_t start = value_of(generation, "decoder_start_token_id",
                                   value_of(json, "decoder_start_token_id", pad, where), where);
    out.special.begin = static_cast<Id>(target ? start : pad);
    if (!target) out.special.end = id_of(piece("eos_token", "</s>"), out.special.end);
    for (const auto& [key, otherwise] :
         {std::pair{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}})
      if (const std::string name = piece(key, otherwise); spells && id_of(name, -1) >= 0)
        out.spelt.push_back(name);
    out.cutter = read_cutter(folder / spm);
    return piece_table(std::move(out), (folder / file).string());
  };
  return {table("vocab.json", "source.spm", source_rows, false),
          table(separate ? "target_vocab.json" : "vocab.json", "target.spm", target_rows, true)};
}

ForeignModel read_hugging_face(const fs::path& folder, const ImportOptions&) {
  return Reader(folder).read();
}

}  // namespace heed
