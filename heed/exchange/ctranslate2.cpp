#include "heed/exchange/ctranslate2.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/base/check.h"
#include "heed/data/piece_table.h"
#include "heed/exchange/bytes.h"
#include "heed/exchange/exported.h"
#include "heed/exchange/pieces.h"
#include "heed/models/config_json.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

enum class Stored : uint8_t { f32, i8, i16, i32, f16, bf16 };
size_t size_of(Stored type) {
  return type == Stored::i8 ? 1 : type == Stored::f32 || type == Stored::i32 ? 4 : 2;
}

struct Variable {
  std::vector<int64_t> shape;
  Stored type = Stored::f32;
  std::string_view data;
};

template <class T>
T at(std::string_view data, size_t i) {
  T value;
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}

std::vector<float> numbers(const Variable& v) {
  std::vector<float> out(v.data.size() / size_of(v.type));
  for (size_t i = 0; i < out.size(); ++i) switch (v.type) {
      case Stored::f32: out[i] = at<float>(v.data, i); break;
      case Stored::i8: out[i] = at<int8_t>(v.data, i); break;
      case Stored::i16: out[i] = at<int16_t>(v.data, i); break;
      case Stored::i32: out[i] = static_cast<float>(at<int32_t>(v.data, i)); break;
      case Stored::f16: out[i] = from_f16(at<uint16_t>(v.data, i)); break;
      case Stored::bf16: out[i] = from_bf16(at<uint16_t>(v.data, i)); break;
    }
  return out;
}

std::string text(Bytes& in) {
  const auto length = in.number<uint16_t>("a name's length");
  const std::string_view raw = in.take(length, "a name");
  require(length > 0 && raw.back() == '\0', in.what(), ": a name at ", in.at() - length,
          " does not end with a zero byte; not a model.bin of CTranslate2");
  return std::string(raw.substr(0, raw.size() - 1));
}

Variable variable(Bytes& in, uint32_t version) {
  Variable v;
  const auto rank = in.number<uint8_t>("a rank");
  for (int i = 0; i < rank; ++i) v.shape.push_back(in.number<uint32_t>("a size"));
  uint64_t bytes = 0;
  if (version >= 4) {
    const auto type = in.number<uint8_t>("a type");
    require(type <= 5, in.what(), ": a variable of type ", int{type},
            ", which heed does not know; 0 to 5 are known");
    v.type = static_cast<Stored>(type);
    bytes = in.number<uint32_t>("a length");
  } else {
    const auto size = in.number<uint8_t>("an item's size");
    require(size == 1 || size == 2 || size == 4, in.what(), ": items of ", int{size}, " bytes");
    v.type = size == 4 ? Stored::f32 : size == 2 ? Stored::i16 : Stored::i8;
    bytes = uint64_t{in.number<uint32_t>("a number of items")} * size;
  }
  v.data = in.take(bytes, "a variable");
  const int64_t count = elements_of(v.shape, bytes, in.what());
  require(static_cast<uint64_t>(count) * size_of(v.type) == bytes, in.what(), ": a variable of ",
          count, " elements has ", bytes, " bytes");
  return v;
}

Array as_array(const std::string& name, const Variable& v,
               const std::map<std::string, Variable>& all, const std::string& what) {
  Array out{v.shape, numbers(v)};
  // Attributes of before version 6 are whole numbers, too, and texts by their bytes.
  const bool quantized = !v.shape.empty() && (v.type == Stored::i8 || v.type == Stored::i16) &&
                         name.ends_with("weight");
  if (!quantized) return out;
  const auto scale = all.find(name + "_scale");
  std::vector<float> scales{1000};  // of old files
  if (scale != all.end())
    scales = numbers(scale->second);
  else
    require(v.type == Stored::i16, what, ": '", name, "' is of int8 and has no scales");
  const auto rows = static_cast<size_t>(v.shape[0]);
  require(scales.size() == 1 || scales.size() == rows, what, ": '", name, "' has ", rows,
          " rows and ", scales.size(), " scales");
  const size_t n = rows == 0 ? 0 : out.values.size() / rows;
  for (size_t i = 0; i < out.values.size(); ++i)
    out.values[i] /= scales[scales.size() == 1 ? 0 : i / n];
  return out;
}

// What config.json says or, before version 6, variables, or the defaults.
struct Ct2Config {
  std::string unknown = "<unk>", begin = "<s>", end = "</s>";
  std::optional<std::string> start = "<s>";
  bool source_begin = false, source_end = false;
  double epsilon = 1e-5;
  std::optional<SearchDefaults> search = {};  // of a model that heed has exported
};

Ct2Config read_config_json(const std::filesystem::path& folder) {
  Ct2Config out;
  const std::filesystem::path file = folder / "config.json";
  if (!std::filesystem::exists(file)) return out;
  const auto json = parse_json<nlohmann::json>(read_whole(file.string()));
  require(json.is_object(), file.string(), ": not a JSON object");
  const auto is_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (is_text("unk_token")) out.unknown = json["unk_token"];
  if (is_text("bos_token")) out.begin = json["bos_token"];
  if (is_text("eos_token")) out.end = json["eos_token"];
  out.start = out.begin;
  if (is_text("decoder_start_token")) out.start = json["decoder_start_token"];
  if (json.contains("decoder_start_token") && json["decoder_start_token"].is_null())
    out.start.reset();
  const auto is_true = [&](const char* key) {
    return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
  };
  out.source_begin = is_true("add_source_bos"), out.source_end = is_true("add_source_eos");
  if (json.contains("layer_norm_epsilon") && json["layer_norm_epsilon"].is_number())
    out.epsilon = json["layer_norm_epsilon"];
  if (json.contains(kSearchKey)) out.search = search_defaults(json[kSearchKey], file.string());
  const auto kind = json.find("quantization_type");
  require(kind == json.end() || kind->is_null() || *kind == 0, file.string(),
          ": weights quantized by AWQ (quantization_type) cannot be imported");
  return out;
}

// A list of pieces, one a line, or of JSON.
std::vector<std::string> vocabulary(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::string> out;
  if (const auto file = folder / (name + ".json"); std::filesystem::exists(file)) {
    const auto json =
        nlohmann::json::parse(read_whole(file.string()), nullptr, /*allow_exceptions=*/false);
    require(json.is_array(), file.string(), ": not a JSON list of pieces");
    for (const auto& piece : json) {
      require(piece.is_string(), file.string(), ": entry ", out.size(), " is not a text");
      out.push_back(piece.get<std::string>());
    }
    return out;
  }
  const std::string all = read_whole((folder / (name + ".txt")).string());
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    out.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  if (std::ranges::all_of(out, [](const std::string& s) { return s.ends_with('\r'); }))
    for (std::string& s : out) s.pop_back();
  return out;
}

Id id_of(const std::vector<std::string>& pieces, const std::string& piece) {
  const auto found = std::ranges::find(pieces, piece);
  return found == pieces.end() ? -1 : static_cast<Id>(found - pieces.begin());
}

class Reader {
 public:
  Reader(const std::filesystem::path& folder, const ImportOptions& options)
      : folder_(folder),
        options_(options),
        file_(parse_ctranslate2(read_whole((folder / "model.bin").string()),
                                (folder / "model.bin").string())),
        in_((folder / "model.bin").string(), with_aliases(), Conversion::Layout::out_in),
        of_file_(read_config_json(folder)) {}

  ForeignModel read() {
    check_specification();
    if (file_.version < 6) old_attributes();
    model_.format = "CTranslate2";
    configure();
    embeddings();
    for (int64_t i = 0; i < model_.config.encoder_layers; ++i)
      layer("encoder/layer_" + std::to_string(i), "encoder/" + std::to_string(i), false);
    for (int64_t i = 0; i < model_.config.decoder_layers; ++i)
      layer("decoder/layer_" + std::to_string(i), "decoder/" + std::to_string(i), true);
    if (model_.config.norm == "pre")
      for (const std::string side : {"encoder", "decoder"})
        in_.norm(side + "/layer_norm/gamma", side + "/layer_norm/beta", side + "/norm");
    const bool zero = in_.scalar("decoder/start_from_zero_embedding").value_or(0) != 0;
    tokenizers(zero);
    in_.finish(model_);
    if (zero) add_zero_begin(model_);
    model_.search = {.beam = 2,
                     .normalize = 1,
                     .max_ratio = 0,
                     .max_extra = 256,
                     .min_length = 1,
                     .open_end = true,
                     .free_prefix = true,
                     .renormalize = true,
                     .allow_begin = true,
                     .ending = "counted"};
    if (of_file_.search) model_.search = *of_file_.search;
    return std::move(model_);
  }

 private:
  Arrays with_aliases() const {
    Arrays all = file_.arrays;
    for (const auto& [alias, name] : file_.aliases) {
      const auto found = file_.arrays.find(name);
      if (found != file_.arrays.end()) all.emplace(alias, found->second);
    }
    return all;
  }

  void check_specification() const {
    const std::string& s = file_.specification;
    require(s.empty() || s == "TransformerSpec" || s == "TransformerBase" || s == "TransformerBig",
            in_.what(), ": is of specification '", s,
            "'; heed imports encoder-decoder Transformers (TransformerSpec)");
    require(file_.revision >= 2 || s == "TransformerSpec", in_.what(), ": is of revision ",
            file_.revision, " of ", s, ", whose names heed does not know; convert the model anew");
  }

  // Before version 6, what config.json says now stood among the variables.
  void old_attributes() {
    const auto spelt = [&](const char* name, std::string& piece) {
      if (!in_.has(name)) return;
      piece.clear();
      for (const float byte : in_.take(name, 1).values)
        piece += static_cast<char>(static_cast<int>(byte));
    };
    const auto flag = [&](const char* name, bool otherwise) {
      return in_.scalar(name).value_or(otherwise) != 0;
    };
    spelt("unk_token", of_file_.unknown), spelt("bos_token", of_file_.begin);
    spelt("eos_token", of_file_.end);
    of_file_.source_begin = flag("with_source_bos", false);
    of_file_.source_end = flag("with_source_eos", false);
    of_file_.start = flag("with_target_bos", true) ? of_file_.begin : of_file_.end;
    if (flag("user_decoder_start_tokens", false)) of_file_.start.reset();
    require(!flag("with_relative_position", false), in_.what(),
            ": has relative positions (with_relative_position), which heed does not have");
    in_.ignore("layernorm_embedding");  // its arrays tell
  }

  // One number for both sides.
  std::optional<double> of_sides(const std::string& name) {
    const std::optional<double> encoder = in_.scalar("encoder/" + name),
                                decoder = in_.scalar("decoder/" + name), both = in_.scalar(name);
    require(!encoder || !decoder || *encoder == *decoder, in_.what(), ": encoder and decoder have ",
            encoder.value_or(0), " and ", decoder.value_or(0), " for '", name,
            "'; heed has one for both");
    return encoder ? encoder : decoder ? decoder : both;
  }

  int64_t layers(const std::string& side) const {
    int64_t count = 0;
    while (in_.has(side + "/layer_" + std::to_string(count) + "/self_attention/linear_0/weight"))
      ++count;
    return count;
  }

  void configure() {
    ModelConfig& c = model_.config;
    c = {};
    c.family = "transformer", c.score = "scaled_dot", c.dropout = 0.1;
    source_name_ = in_.has("encoder/embeddings_0/weight") ? "encoder/embeddings_0/weight"
                                                          : "encoder/embeddings/weight";
    require(!in_.has("encoder/embeddings_1/weight"), in_.what(),
            ": its source words have features (encoder/embeddings_1), which heed does not have");
    c.size = in_.take(source_name_, 2).shape[1];
    c.encoder_layers = layers("encoder"), c.decoder_layers = layers("decoder");
    require(c.encoder_layers > 0 && c.decoder_layers > 0, in_.what(), ": has ", c.encoder_layers,
            " layers of an encoder and ", c.decoder_layers,
            " of a decoder; heed imports encoder-decoder Transformers");
    c.heads = own_heads("encoder");
    if (const int64_t own = own_heads("decoder"); own != c.heads) c.decoder_heads = own;
    c.key_heads = key_heads();
    c.inner = in_.take("encoder/layer_0/ffn/linear_0/weight", 2).shape[0];
    const int64_t inner = in_.take("decoder/layer_0/ffn/linear_0/weight", 2).shape[0];
    if (inner != c.inner) c.decoder_inner = inner;
    c.norm = of_sides("pre_norm").value_or(1) != 0 ? "pre" : "post";
    c.norm_epsilon = of_file_.epsilon;
    constexpr const char* kActivations[] = {"relu",         "gelu", "swish",  "gelu_erf",
                                            "gelu_sigmoid", "tanh", "sigmoid"};
    const double activation = of_sides("activation").value_or(0);
    require(activation >= 0 && activation <= 6, in_.what(), ": has activation number ", activation,
            "; 0 to 6 are known");
    c.activation = kActivations[static_cast<int>(activation)];
    in_.ignore("encoder/embeddings_merge"), in_.ignore("embeddings_merge");  // of features
    require(of_sides("alibi").value_or(0) == 0, in_.what(),
            ": 'alibi' is set, which heed does not have");
    in_.ignore("decoder/alibi_use_positive_positions"), in_.ignore("decoder/scale_alibi");
    require(in_.scalar("decoder/scale_outputs").value_or(1) == 1, in_.what(),
            ": scales its outputs (decoder/scale_outputs), which heed does not");
    scale_embeddings();
    positions();
    align();
    for (const std::string side : {"source", "target"}) {
      const std::string name = side == "source" ? "encoder" : "decoder";
      if (!in_.has(name + "/layernorm_embedding/gamma")) continue;
      c.embedding_norm = true;
      in_.norm(name + "/layernorm_embedding/gamma", name + "/layernorm_embedding/beta",
               side + "/norm");
    }
  }

  int64_t own_heads(const std::string& side) {
    const double older = file_.specification == "TransformerBig" ? 16 : 8;
    const double both = in_.scalar("num_heads").value_or(older),
                 count = in_.scalar(side + "/num_heads").value_or(both);
    const int64_t size = model_.config.size;
    require(count >= 1 && count <= double(size) && size % static_cast<int64_t>(count) == 0,
            in_.what(), ": ", count, " heads of size ", size);
    return static_cast<int64_t>(count);
  }
  int64_t heads_of(const std::string& side) const {
    return side == "encoder" ? model_.config.heads : decoder_heads(model_.config);
  }

  // As many heads of keys and values as each of the attentions says; 0: as of queries.
  int64_t key_heads() {
    const ModelConfig& c = model_.config;
    const bool one = of_sides("multi_query_attention").value_or(0) != 0;
    std::optional<double> heads;
    bool each = true;  // has a key of its own
    for (const std::string side : {"encoder", "decoder"})
      for (int64_t i = 0; i < (side == "encoder" ? c.encoder_layers : c.decoder_layers); ++i)
        for (const char* part : {"/self_attention/", "/attention/"}) {
          const std::string at = side + "/layer_" + std::to_string(i) + part;
          if (!in_.has(at + "linear_0/weight")) continue;
          const int64_t queries = heads_of(side);
          const double size = in_.scalar(at + "head_dim").value_or(double(c.size / queries));
          require(size == double(c.size / queries), in_.what(), ": heads of size ", size,
                  ", which is not the size ", c.size, " over ", queries, " heads");
          const double own = in_.scalar(at + "num_heads_kv").value_or(one ? 1 : double(queries));
          require(own >= 1 && own <= double(queries), in_.what(), ": ", own, " heads of keys");
          each = each && own == double(queries);
          require(each || heads.value_or(own) == own, in_.what(), ": '", at, "num_heads_kv' is ",
                  own, ", and ", heads.value_or(0), " before; heed has one number for all");
          heads = own;
        }
    return each ? 0 : static_cast<int64_t>(*heads);
  }

  void scale_embeddings() {
    std::optional<double> scale = of_sides("scale_embeddings");
    for (const char* old : {"embeddings/", "embeddings_0/"})
      if (const auto given = of_sides(old + std::string("multiply_by_sqrt_depth")); !scale)
        scale = given;
    // A flag, or the factor itself.
    model_.config.embedding_scale = !scale ? 0 : *scale == 0 ? 1 : *scale;
    const auto flag = file_.arrays.find("encoder/scale_embeddings");
    const bool factor = flag != file_.arrays.end() && factors_.contains("encoder/scale_embeddings");
    if (scale && *scale == 1 && !factor) model_.config.embedding_scale = 0;
  }

  void positions() {
    ModelConfig& c = model_.config;
    const std::string name = "/position_encodings/encodings";
    const bool encoder = in_.has("encoder" + name), decoder = in_.has("decoder" + name);
    require(encoder == decoder, in_.what(), ": one side alone has a table of positions");
    if (!encoder) {
      c.position = "sinusoidal_from_one";
      model_.notes.push_back("positions: no table in the file, so sines from position 1 on");
      return;
    }
    const Array table = in_.take("encoder" + name, 2);
    require(in_.take("decoder" + name, 2).values == table.values, in_.what(),
            ": encoder and decoder have tables of positions that differ; heed has one");
    require(table.shape[1] == c.size, in_.what(), ": positions of size ", table.shape[1],
            " in a model of size ", c.size);
    c.position = position_named(table);
    if (c.position != "learned") {
      model_.notes.push_back("positions: the table in the file is " + c.position);
      return;
    }
    c.positions = table.shape[0];
    in_.put("positions/table", table, "encoder" + name);
  }

  void align() {
    const auto layer = static_cast<int64_t>(of_sides("alignment_layer").value_or(-1));
    const auto heads = static_cast<int64_t>(of_sides("alignment_heads").value_or(1));
    const bool some = heads > 1 && heads < decoder_heads(model_.config);
    model_.alignment = {
        .layer = layer, .head = heads == 1 ? 0 : -1, .shift = 0, .mean_of = some ? heads : 0};
  }

  void embeddings() {
    ModelConfig& c = model_.config;
    const std::string target = "decoder/embeddings/weight", output = "decoder/projection/weight";
    const Array source_table = in_.take(source_name_, 2), target_table = in_.take(target, 2);
    const auto same = [&](const std::string& a, const std::string& b) {
      return in_.at(a).shape == in_.at(b).shape && in_.at(a).values == in_.at(b).values;
    };
    c.shared_embeddings = same(source_name_, target);
    in_.put("source/table", source_table, source_name_);
    if (!c.shared_embeddings) in_.put("target/table", target_table, target);
    c.tied = same(output, target);
    if (!c.tied) in_.put("output/weight", in_.weight(output), output);
    c.output_bias = in_.has("decoder/projection/bias");
    if (c.output_bias)
      in_.put("output/bias", in_.take("decoder/projection/bias", 1), "decoder/projection/bias");
  }

  // Queries, keys and values that stand under one name, by rows.
  void split(const std::string& from, const std::vector<std::pair<std::string, int64_t>>& parts) {
    const Array w = in_.take(from + "/weight", 2);
    std::optional<Array> b;
    if (in_.has(from + "/bias")) b = in_.take(from + "/bias", 1);
    int64_t first = 0;
    for (const auto& [to, rows] : parts) {
      require(first + rows <= w.shape[0] && (!b || b->shape[0] == w.shape[0]), in_.what(), ": '",
              from, "' has ", w.shape[0], " rows");
      in_.put(to + "/weight", transposed(rows_of(w, first, rows)), from + "/weight");
      in_.put(to + "/bias",
              b ? rows_of(*b, first, rows)
                : Array{{rows}, std::vector<float>(static_cast<size_t>(rows))},
              b ? from + "/bias" : "zeros");
      first += rows;
    }
    require(first == w.shape[0], in_.what(), ": '", from, "' has ", w.shape[0],
            " rows, wanted: ", first);
  }

  void layer(const std::string& from, const std::string& to, bool decoder) {
    const ModelConfig& c = model_.config;
    const int64_t D = c.size, heads = decoder ? decoder_heads(c) : c.heads,
                  kv = D / heads * (c.key_heads ? c.key_heads : heads);
    const auto scale = [&](const std::string& part) {
      const auto given = in_.scalar(from + part + "/queries_scale");
      const double own = 1 / std::sqrt(double(D / heads));
      require(!given || std::abs(*given - own) < 1e-6, in_.what(), ": '", from, part,
              "/queries_scale' is ", given.value_or(0), ", not 1 over the root of a head's size");
    };
    const auto norm = [&](const std::string& part, const std::string& name) {
      in_.norm(from + part + "/layer_norm/gamma", from + part + "/layer_norm/beta", to + name);
    };
    scale("/self_attention");
    split(from + "/self_attention/linear_0",
          {{to + "/self/query", D}, {to + "/self/key", kv}, {to + "/self/value", kv}});
    split(from + "/self_attention/linear_1", {{to + "/self/output", D}});
    norm("/self_attention", "/self_norm");
    if (decoder) {
      scale("/attention");
      split(from + "/attention/linear_0", {{to + "/cross/query", D}});
      split(from + "/attention/linear_1", {{to + "/cross/key", kv}, {to + "/cross/value", kv}});
      split(from + "/attention/linear_2", {{to + "/cross/output", D}});
      norm("/attention", "/cross_norm");
    }
    split(from + "/ffn/linear_0",
          {{to + "/feed_forward/inner", decoder ? decoder_inner(c) : c.inner}});
    split(from + "/ffn/linear_1", {{to + "/feed_forward/outer", D}});
    norm("/ffn", "/inner_norm");
  }

  void tokenizers(bool zero_begin) {
    const bool shared = std::filesystem::exists(folder_ / "shared_vocabulary.json") ||
                        std::filesystem::exists(folder_ / "shared_vocabulary.txt");
    std::vector<std::string> source = vocabulary(
                                 folder_, shared ? "shared_vocabulary" : "source_vocabulary"),
                             target = vocabulary(
                                 folder_, shared ? "shared_vocabulary" : "target_vocabulary");
    const auto complete = [&](std::vector<std::string>& pieces, const std::string& table) {
      if (id_of(pieces, of_file_.unknown) < 0) pieces.push_back(of_file_.unknown);
      const int64_t rows = in_.at(table).shape[0];
      require(std::ssize(pieces) == rows, folder_.string(), ": a vocabulary has ", pieces.size(),
              " entries where the table '", table, "' has ", rows, " rows");
    };
    complete(source, source_name_), complete(target, "decoder/embeddings/weight");
    const Id end = id_of(target, of_file_.end);
    require(end >= 0, folder_.string(), ": its target vocabulary has no '", of_file_.end,
            "', which ends a sentence");
    SpecialIds special{.unknown = id_of(target, of_file_.unknown), .end = end};
    if (zero_begin) {
      special.begin = static_cast<Id>(target.size());
      target.push_back(new_begin(target));
      if (model_.config.shared_embeddings) source.push_back(new_begin(source));
    } else {
      require(of_file_.start.has_value(), folder_.string(),
              ": its decoder has no start of its own (decoder_start_token is null): a language is "
              "to be given in its place, which heed cannot do");
      special.begin = id_of(target, *of_file_.start);
      require(special.begin >= 0, folder_.string(), ": its target vocabulary has no '",
              *of_file_.start, "', which a decoder begins with");
    }
    special.pad = special.begin;
    // Marian's models, which alone begin from zeros, want the end; Hugging Face's tokenizer puts it
    // there, which the folder does not tell.
    const bool source_end = options_.source_end.value_or(of_file_.source_end || zero_begin);
    model_.notes.push_back(std::string("sources: read ") + (source_end ? "with" : "without") +
                           " an end" +
                           (options_.source_end   ? ", as was asked for"
                            : of_file_.source_end ? ", as config.json says"
                            : zero_begin          ? ", as Marian's models, which begin from zeros"
                                                  : "; --source-end if the model wants one"));
    const auto or_any = [](Id id) { return id < 0 ? 0 : id; };
    SpecialIds of_source{.unknown = id_of(source, of_file_.unknown),
                         .begin = or_any(id_of(source, of_file_.begin)),
                         .end = or_any(id_of(source, of_file_.end)),
                         .source_begin = of_file_.source_begin,
                         .source_end = source_end};
    of_source.pad = of_source.begin;
    require(!source_end || id_of(source, of_file_.end) >= 0, folder_.string(),
            ": its source vocabulary has no '", of_file_.end, "', which is to end a sentence");
    const CutterPair cutters = piece_cutters(folder_, options_);
    if (!cutters.source)
      model_.notes.push_back(
          "text: no SentencePiece model beside the folder: pieces are to be given with spaces "
          "between (--source-pieces, --target-pieces)");
    model_.tokenizers.source =
        piece_table({std::move(source), of_source, cutters.source}, folder_.string());
    model_.tokenizers.target =
        piece_table({std::move(target), special, cutters.target}, folder_.string());
  }

  std::filesystem::path folder_;
  const ImportOptions& options_;
  Ctranslate2File file_;
  Conversion in_;
  Ct2Config of_file_;
  std::set<std::string> factors_ = file_.factors;
  std::string source_name_;
  ForeignModel model_;
};

}  // namespace

Ctranslate2File parse_ctranslate2(std::string_view bytes, const std::string& what) {
  Bytes in(bytes, what);
  Ctranslate2File out;
  out.version = in.number<uint32_t>("the version");
  require(out.version >= 2 && out.version <= 6, what, ": binary version ", out.version,
          "; heed reads CTranslate2's versions 2 to 6");
  out.specification = text(in);
  out.revision = in.number<uint32_t>("the revision");
  const auto count = in.number<uint32_t>("the number of variables");
  std::map<std::string, Variable> all;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = text(in);
    Variable v = variable(in, out.version);
    require(all.emplace(name, std::move(v)).second, what, ": variable '", name, "' comes twice");
  }
  if (out.version >= 3) {
    const auto aliases = in.number<uint32_t>("the number of aliases");
    for (uint32_t i = 0; i < aliases; ++i) {
      const std::string alias = text(in), name = text(in);
      require(all.contains(name), what, ": alias '", alias, "' names '", name,
              "', which is not there");
      if (!alias.ends_with("_scale") || !all.contains(alias)) out.aliases[alias] = name;
    }
    // Where all words share one table, it has three names.
    uint64_t named = 0;
    for (const auto& [alias, name] : out.aliases) named += all.at(name).data.size();
    require(named <= 4 * bytes.size(), what, ": its aliases name more than the file holds");
  }
  require(in.left() == 0, what, ": ", in.left(), " bytes after its end");
  for (const auto& [name, v] : all) {
    const bool scale = name.ends_with("_scale") && all.contains(name.substr(0, name.size() - 6));
    if (v.shape.empty() && v.type == Stored::f32) out.factors.insert(name);
    if (!scale) out.arrays[name] = as_array(name, v, all, what);
  }
  std::erase_if(out.aliases, [&](const auto& a) { return !out.arrays.contains(a.second); });
  return out;
}

ForeignModel read_ctranslate2(const std::filesystem::path& folder, const ImportOptions& options) {
  return Reader(folder, options).read();
}

}  // namespace heed
