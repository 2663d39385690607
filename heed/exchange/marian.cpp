#include "heed/exchange/marian.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/data/piece_table.h"
#include "heed/data/sentencepiece_file.h"
#include "heed/exchange/bytes.h"
#include "heed/exchange/marian_settings.h"
#include "heed/exchange/npz.h"
#include "heed/exchange/yaml.h"
#include "heed/exchange/zip.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "special:model.yml";
constexpr const char* kDecoderName = "decoder.yml";

std::string up_to_zero(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find('\0'), text.size())));
}

// Files that a folder has with this ending.
std::vector<fs::path> ending_in(const fs::path& folder, std::initializer_list<const char*> ends) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    for (const char* end : ends)
      if (entry.is_regular_file() && entry.path().filename().string().ends_with(end))
        out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// The files of a model, as decoder.yml names them or, without one, as they are called.
struct Files {
  fs::path folder, weights;
  std::vector<fs::path> vocabularies;  // source, target
  MarianSettings decoder{{}, ""};
  bool from_firefox = false;
};

// decoder.yml; or, as Marian itself writes it, model.npz.decoder.yml: of the file, or the only one
// of a folder.
std::optional<fs::path> decoder_of(const fs::path& path) {
  if (!fs::is_directory(path)) {
    const fs::path own = path.string() + "." + kDecoderName;
    return fs::exists(own) ? std::optional(own) : std::nullopt;
  }
  if (fs::exists(path / kDecoderName)) return path / kDecoderName;
  const std::vector<fs::path> found = ending_in(path, {kDecoderName});
  return found.size() == 1 ? std::optional(found[0]) : std::nullopt;
}

Files files_of(const fs::path& path) {
  Files out;
  const bool folder = fs::is_directory(path);
  out.folder = folder ? path : path.parent_path();
  if (out.folder.empty()) out.folder = ".";
  const bool is_decoder = path.filename().string().ends_with(kDecoderName);
  if (const std::optional<fs::path> decoder = is_decoder ? path : decoder_of(path)) {
    const std::string where = decoder->string();
    out.decoder = MarianSettings(parse_yaml_config(read_whole(where), where), where);
    // Marian writes where they were trained: elsewhere they lie beside it.
    const auto named = [&](const std::string& name) {
      const fs::path there = out.folder / name, here = out.folder / fs::path(name).filename();
      std::error_code error;  // of a name that no file can have
      return !fs::exists(there, error) && fs::exists(here, error) ? here : there;
    };
    const std::vector<std::string> models = out.decoder.list("models");
    require(!models.empty(), where, ": names no models");
    require(models.size() == 1, where, ": names ", models.size(),
            " models, an ensemble; heed imports one");
    out.weights = folder || is_decoder ? named(models[0]) : path;
    for (const std::string& name : out.decoder.list("vocabs"))
      out.vocabularies.push_back(named(name));
  } else if (folder) {
    std::vector<fs::path> found = ending_in(path, {".npz"});
    if (found.empty()) found = ending_in(path, {"alphas.bin", "intgemm8.bin", "model.bin"});
    require(!found.empty(), path.string(), ": has no decoder.yml, .npz or .bin of Marian's");
    require(found.size() == 1, path.string(), ": has ", found.size(),
            " models and no decoder.yml to say which; give the file itself");
    out.weights = found[0];
  } else {
    out.weights = path;
  }
  out.from_firefox = out.weights.filename().string().find("intgemm") != std::string::npos;
  if (out.vocabularies.empty()) {
    std::vector<fs::path> both = ending_in(out.folder, {".spm"});
    const auto with = [&](const char* part) {
      return std::find_if(both.begin(), both.end(), [&](const fs::path& p) {
        return p.filename().string().starts_with(part);
      });
    };
    const auto source = with("srcvocab"), target = with("trgvocab"), one = with("vocab");
    if (source != both.end() && target != both.end())
      out.vocabularies = {*source, *target};
    else if (one != both.end())
      out.vocabularies = {*one, *one};
    else if (const auto yml = ending_in(out.folder, {"vocab.yml", "vocab.json"}); !yml.empty())
      out.vocabularies = {yml.front(), yml.back()};
  }
  require(out.vocabularies.size() == 2, out.folder.string(), ": ", out.vocabularies.size(),
          " vocabularies found; decoder.yml is to name two, the source's and the target's");
  return out;
}

// The pieces of one side, and what cuts texts into them.
PieceTable vocabulary(const fs::path& file, const std::shared_ptr<const PieceCutter>& cutter) {
  PieceTable out;
  const std::string name = file.string(), bytes = read_whole(name);
  require(!name.ends_with(".fsv"), name, ": a vocabulary of factors, which heed does not have");
  if (name.ends_with(".spm")) {
    const auto own = load_sentencepiece(file);
    const auto count = static_cast<Id>(scored_pieces(bytes).size());
    for (Id id = 0; id < count; ++id) out.pieces.push_back(own->piece(id));
    out.special = own->special();
    require(out.special.end < count && out.special.unknown < count, name,
            ": has no piece for the end or for the unknown");
    out.cutter = load_piece_cutter(file);
    return out;
  }
  if (name.ends_with(".json") || bytes.starts_with('{')) {
    const auto json = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
    require(json.is_object(), name, ": not a JSON object of pieces and their ids");
    std::vector<std::pair<std::string, int64_t>> entries;
    for (const auto& [piece, id] : json.items()) {
      require(id.is_number_integer(), name, ": '", piece, "' has the id ", id.dump());
      entries.emplace_back(piece, id.get<int64_t>());
    }
    out.pieces = placed_by_id(std::move(entries), name);
  } else if (name.ends_with(".yml") || name.ends_with(".yaml")) {
    out.pieces = parse_yaml_vocabulary(bytes, name);
  } else {
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = std::min(bytes.find('\n', at), bytes.size());
      out.pieces.push_back(bytes.substr(at, end - at));
      if (out.pieces.back().ends_with('\r')) out.pieces.back().pop_back();
      at = end + 1;
    }
  }
  // Nematus' dictionaries have "eos" and "UNK" there, or nothing.
  const auto id_of = [&](const char* piece, const char* old, size_t place) {
    for (const char* spelt : {piece, old})
      for (size_t i = 0; i < out.pieces.size(); ++i)
        if (out.pieces[i] == spelt) return static_cast<Id>(i);
    require(place < out.pieces.size() && out.pieces[place].empty(), name, ": has no '", piece, "'");
    return static_cast<Id>(place);
  };
  out.special.end = id_of("</s>", "eos", 0), out.special.unknown = id_of("<unk>", "UNK", 1);
  out.cutter = cutter;
  return out;
}

class Reader {
 public:
  Reader(const fs::path& path, const ImportOptions& options)
      : files_(files_of(path)),
        options_(options),
        in_({}, {}, Conversion::Layout::in_out),
        settings_({}, "") {
    const std::string what = files_.weights.string();
    MarianArchive archive = parse_marian(read_whole(what), what);
    settings_ =
        MarianSettings(parse_yaml_config(archive.config, what), what + " (" + kConfigName + ")");
    std::erase_if(archive.arrays, [](const auto& a) {
      return a.first.starts_with("special:") || a.first.ends_with("_QuantMultA") ||
             a.first == "decoder_c_tt" || a.first == "uidx" || a.first == "history_errs";
    });
    recurrent_ = is_recurrent(settings_.text("type", "transformer"));
    if (recurrent_) rename_as_s2s(archive.arrays, settings_);
    in_ = Conversion(what, std::move(archive.arrays), Conversion::Layout::in_out);
  }

  ForeignModel read() {
    model_.format = "Marian";
    const std::string type = settings_.text("type", "transformer");
    require(type == "transformer" || recurrent_, settings_.where(), ": type is '", type,
            "'; heed imports Marian's types 'transformer', 's2s', 'amun' and 'nematus'");
    refuse_unknown();
    if (recurrent_) {
      convert_marian_rnn(in_, settings_, model_);
      embeddings("decoder_ff_logit_l2");
    } else {
      transformer();
    }
    tokenizers();
    in_.finish(model_);
    add_zero_begin(model_);
    search();
    shortlist();
    return std::move(model_);
  }

 private:
  static bool is_recurrent(const std::string& type) {
    return type == "s2s" || type == "amun" || type == "nematus";
  }

  void transformer() {
    configure();
    embeddings("decoder_ff_logit_out");
    for (const std::string side : {"encoder", "decoder"}) {
      const int64_t depth =
          side == "encoder" ? model_.config.encoder_layers : model_.config.decoder_layers;
      for (int64_t i = 0; i < depth; ++i) layer(side, i);
      if (model_.config.norm == "pre")
        in_.norm(side + "_top_ln_scale", side + "_top_ln_bias", side + "/norm");
    }
  }

  void refuse_unknown() const {
    for (const char* key : {"right-left", "ulr", "transformer-no-projection",
                            "transformer-rnn-projection", "lemma-dependency"})
      require(!settings_.flag(key), settings_.where(), ": '", key,
              "' is set, which heed does not have");
    for (const char* key : {"transformer-tied-layers", "factors-combine"})
      require(settings_.list(key).empty() || settings_.text(key, "") == "none" ||
                  settings_.text(key, "") == "sum",
              settings_.where(), ": '", key, "' is set, which heed does not have");
    require(settings_.whole("lemma-dim-emb", 0) == 0, settings_.where(),
            ": 'lemma-dim-emb' is set, which heed does not have");
    for (const char* key : {"transformer-ffn-depth", "transformer-decoder-ffn-depth"}) {
      const int64_t depth = settings_.whole(key, 2);
      require(depth == 2 || depth == 0, settings_.where(), ": '", key, "' is ", depth,
              "; heed has feed-forward layers of depth 2");
    }
  }

  void configure() {
    ModelConfig& c = model_.config;
    c = {};
    c.family = "transformer", c.score = "scaled_dot", c.norm_epsilon = 1e-6;
    c.size = settings_.whole("dim-emb", 512);
    c.encoder_layers = settings_.whole("enc-depth", 1);
    c.decoder_layers = settings_.whole("dec-depth", 1);
    c.heads = settings_.whole("transformer-heads", 8);
    c.inner = settings_.whole("transformer-dim-ffn", 2048);
    const int64_t inner = settings_.whole("transformer-decoder-dim-ffn", 0);
    if (inner != c.inner) c.decoder_inner = inner;
    const std::string activation = settings_.text("transformer-ffn-activation", "swish");
    require(activation == "swish" || activation == "relu" || activation == "gelu",
            settings_.where(), ": 'transformer-ffn-activation' is '", activation, "'");
    c.activation = activation == "gelu" ? "gelu_erf" : activation;
    c.dropout = settings_.number("transformer-dropout", 0.1);
    const auto without_dropout = [&](const char* key, const char* otherwise) {
      std::string s = settings_.text(key, otherwise);
      std::erase(s, 'd');
      return s;
    };
    const std::string before = without_dropout("transformer-preprocess", ""),
                      after = without_dropout("transformer-postprocess", "dan"),
                      top = without_dropout("transformer-postprocess-top", ""),
                      words = without_dropout("transformer-postprocess-emb", "d");
    const bool post = before.empty() && after == "an" && top.empty();
    require(post || (before == "n" && after == "a" && top == "n"), settings_.where(),
            ": layers are put together as '", before, "', '", after, "', '", top,
            "' (transformer-preprocess, -postprocess, -postprocess-top); heed has '', 'an', '' and "
            "'n', 'a', 'n'");
    c.norm = post ? "post" : "pre";
    require(words.empty() || words == "n", settings_.where(),
            ": 'transformer-postprocess-emb' is '", words, "'");
    c.embedding_norm = words == "n";
    if (c.embedding_norm)
      for (const std::string side : {"encoder", "decoder"}) {
        const std::string end = in_.has(side + "_emb_ln_scale_pre") ? "_pre" : "";
        in_.norm(side + "_emb_ln_scale" + end, side + "_emb_ln_bias" + end,
                 (side == "encoder" ? "source" : "target") + std::string("/norm"));
      }
    const std::string autoregression =
        settings_.text("transformer-decoder-autoreg", "self-attention");
    require(autoregression == "self-attention" || autoregression == "rnn", settings_.where(),
            ": 'transformer-decoder-autoreg' is '", autoregression,
            "'; heed has self-attention and rnn");
    if (autoregression == "rnn") {
      const std::string cell = settings_.text("dec-cell", "ssru");
      require(cell == "ssru", settings_.where(), ": 'dec-cell' is '", cell,
              "'; in a Transformer's decoder heed has ssru");
      c.decoder = "ssru";
    }
    c.position = "sinusoidal_marian";
    if (in_.has("Wpos")) {
      const Array table = in_.take("Wpos", 2);
      c.position = "learned", c.positions = table.shape[0], c.embedding_scale = 1;
      in_.put("positions/table", table, "Wpos");
    }
    const char* const key = "transformer-guided-alignment-layer";
    const bool last = settings_.text(key, "last") == "last";
    model_.alignment = {.layer = last ? -1 : settings_.whole(key, 1) - 1, .head = 0, .shift = 0};
  }

  void embeddings(const std::string& out) {
    ModelConfig& c = model_.config;
    const bool all = settings_.flag("tied-embeddings-all");
    c.shared_embeddings = all || settings_.flag("tied-embeddings-src");
    c.tied = all || settings_.flag("tied-embeddings");
    const std::string source = in_.has("encoder_Wemb") ? "encoder_Wemb" : "Wemb";
    in_.put("source/table", in_.take(source, 2), source);
    source_rows_ = target_rows_ = in_.at(source).shape[0];
    if (!c.shared_embeddings) {
      in_.put("target/table", in_.take("decoder_Wemb", 2), "decoder_Wemb");
      target_rows_ = in_.at("decoder_Wemb").shape[0];
    }
    if (!c.tied) {
      const std::string rows = out + "_Wt", columns = out + "_W";
      if (in_.has(rows))
        in_.put("output/weight", transposed(in_.take(rows, 2)), rows);
      else
        in_.put("output/weight", in_.take(columns, 2), columns);
    }
    c.output_bias = in_.has(out + "_b");
    if (c.output_bias) in_.put("output/bias", in_.take(out + "_b", 1), out + "_b");
  }

  void layer(const std::string& side, int64_t i) {
    const std::string from = side + "_l" + std::to_string(i + 1) + "_",
                      to = side + "/" + std::to_string(i) + "/";
    const std::string pre = model_.config.norm == "pre" ? "_pre" : "";
    const auto norm = [&](const std::string& a, const std::string& b) {
      in_.norm(from + a + "_ln_scale" + pre, from + a + "_ln_bias" + pre, to + b);
    };
    const auto attention = [&](const std::string& a, const std::string& b) {
      for (const auto& [theirs, ours] :
           {std::pair{"q", "query"}, {"k", "key"}, {"v", "value"}, {"o", "output"}})
        in_.linear(from + a + "_W" + theirs, from + a + "_b" + theirs, to + b + "/" + ours);
      norm(a + "_Wo", b + "_norm");
    };
    if (side == "decoder" && model_.config.decoder == "ssru") {
      in_.linear(from + "rnn_Wf", from + "rnn_bf", to + "recurrent/forget");
      in_.put(to + "recurrent/input/weight", in_.weight(from + "rnn_W"), from + "rnn_W");
      norm("rnn_ffn", "self_norm");
    } else {
      attention("self", "self");
    }
    if (side == "decoder") attention("context", "cross");
    in_.linear(from + "ffn_W1", from + "ffn_b1", to + "feed_forward/inner");
    in_.linear(from + "ffn_W2", from + "ffn_b2", to + "feed_forward/outer");
    norm("ffn_ffn", "inner_norm");
  }

  void tokenizers() {
    ImportOptions options = options_;
    const bool by_spm = files_.vocabularies[0].string().ends_with(".spm");
    const CutterPair cutters = by_spm ? CutterPair{} : piece_cutters(files_.folder, options);
    const auto side = [&](size_t i, int64_t rows) {
      PieceTable table =
          vocabulary(files_.vocabularies[i], i == 0 ? cutters.source : cutters.target);
      require(std::ssize(table.pieces) <= rows, files_.vocabularies[i].string(), ": has ",
              table.pieces.size(), " entries where the model's table has ", rows, " rows");
      for (size_t n = 0; n < static_cast<size_t>(rows); ++n) {
        if (n >= table.pieces.size()) table.pieces.emplace_back();
        if (table.pieces[n].empty()) table.pieces[n] = "<unused " + std::to_string(n) + ">";
      }
      table.special.source_begin = false;
      table.special.source_end = options_.source_end.value_or(true);
      table.opus_text = makes_plain();
      const bool begins = i == 1 || model_.config.shared_embeddings;
      if (begins) table.pieces.push_back(new_begin(table.pieces));
      table.special.begin = table.special.pad = begins ? static_cast<Id>(rows) : table.special.end;
      return piece_table(std::move(table), files_.vocabularies[i].string());
    };
    model_.tokenizers = {side(0, source_rows_), side(1, target_rows_)};
    if (!by_spm && !cutters.source)
      model_.notes.push_back(
          "text: no SentencePiece model in the folder: pieces are to be given with spaces between "
          "(--source-pieces, --target-pieces)");
    if (splits_by_bpe())
      model_.notes.push_back(
          "text: the package's preprocess.sh splits text with apply_bpe, which heed does not do; "
          "pieces are to be given with spaces between");
    else if (makes_plain())
      model_.notes.push_back("text: punctuation is made plain as the package's preprocess.sh does");
  }

  std::string preprocess() const {
    const fs::path script = files_.folder / "preprocess.sh";
    return fs::exists(script) ? read_whole(script.string()) : std::string();
  }
  bool splits_by_bpe() const { return preprocess().find("apply_bpe") != std::string::npos; }
  // OPUS-MT's script for SentencePiece, by its first replacement.
  bool makes_plain() const { return preprocess().find("s/，/,/g") != std::string::npos; }

  void search() {
    const MarianSettings& d = files_.decoder;
    const bool packaged = !d.where().empty();
    model_.search.beam = std::max<int64_t>(1, d.whole("beam-size", files_.from_firefox ? 1
                                                                   : packaged          ? 12
                                                                                       : 6));
    model_.search.normalize = d.number("normalize", packaged ? 0 : 1);
    model_.search.max_ratio =
        d.number("max-length-factor", files_.from_firefox && !packaged ? 2 : 3);
    model_.search.max_extra = 0;
    model_.search.allow_unknown = d.flag("allow-unk");
    model_.search.open_end = true;
    model_.search.ending = "shrinking";
    if (d.number("word-penalty", 0) != 0)
      model_.notes.push_back("search: decoder.yml has a word-penalty, which heed does not have");
  }

  // lex.*.s2t.bin, as Firefox's folders have it.
  void shortlist() {
    std::vector<fs::path> found = ending_in(files_.folder, {".s2t.bin"});
    std::erase_if(
        found, [](const fs::path& file) { return !file.filename().string().starts_with("lex"); });
    if (found.size() != 1) return;
    const std::string name = found[0].string();
    model_.shortlist = read_whole(name);
    const Shortlist list(model_.shortlist, name);
    require(list.largest() < target_rows_ && list.source_words() <= source_rows_, name,
            ": has words up to ", list.source_words() - 1, " and ", list.largest(),
            ", the model has ", source_rows_, " and ", target_rows_);
    model_.notes.push_back("search: words of the shortlist " + found[0].filename().string() +
                           " alone, by sentence (--shortlist none: all)");
  }

  Files files_;
  const ImportOptions& options_;
  Conversion in_;
  MarianSettings settings_;
  bool recurrent_ = false;
  int64_t source_rows_ = 0, target_rows_ = 0;
  ForeignModel model_;
};

}  // namespace

MarianArchive parse_marian_bin(std::string_view bytes, const std::string& what) {
  Bytes in(bytes, what);
  const auto version = in.number<uint64_t>("the version");
  require(version == 1, what, ": version ", version,
          " of Marian's binary format; heed reads version 1");
  const auto count = in.number<uint64_t>("the number of items");
  require(count <= in.left() / 32, what, ": is cut short: ", count, " items");
  struct Item {
    uint64_t name_size, type, rank, bytes;
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<Item> items(count);
  for (Item& item : items) {
    item.name_size = in.number<uint64_t>("an item"), item.type = in.number<uint64_t>("an item");
    item.rank = in.number<uint64_t>("an item"), item.bytes = in.number<uint64_t>("an item");
    require(item.rank <= 8, what, ": an item of ", item.rank, " sizes");
  }
  for (Item& item : items) item.name = up_to_zero(in.take(item.name_size, "a name"));
  for (Item& item : items)
    for (uint64_t i = 0; i < item.rank; ++i) item.shape.push_back(in.number<int32_t>("a size"));
  in.take(in.number<uint64_t>("the padding"), "the padding");
  MarianArchive out;
  for (const Item& item : items) {
    const std::string_view data = in.take(item.bytes, "an item's numbers");
    const std::string where = what + ": '" + item.name + "'";
    if (item.name == kConfigName) {
      out.config = up_to_zero(data);
      continue;
    }
    if (item.name.ends_with("_QuantMultA")) continue;  // for activations in int8
    const int64_t n = elements_of(item.shape, data.size(), where);
    Array array{item.shape, std::vector<float>(static_cast<size_t>(n))};
    const bool int8 = item.type == 0x10001 || item.type == 0x4101,
               int16 = item.type == 0x10002 || item.type == 0x4102;
    const size_t size = item.type & 0xFF;
    require(item.type == 0x404 || item.type == 0x402 || item.type == 0x101 || int8 || int16, where,
            " is of type ", item.type,
            ", packed for one kind of CPU or unknown; f32, f16 and intgemm8 or 16 of any CPU are "
            "read");
    require(static_cast<uint64_t>(n) * size + (int8 || int16 ? 4 : 0) <= data.size(), where,
            " is cut short");
    const auto read = [&](auto kind) {
      using T = decltype(kind);
      for (size_t i = 0; i < array.values.size(); ++i) {
        T value;
        std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
        array.values[i] = static_cast<float>(value);
      }
    };
    if (item.type == 0x404)
      read(float{});
    else if (size == 1)
      read(int8_t{});
    else if (int16)
      read(int16_t{});
    else
      for (size_t i = 0; i < array.values.size(); ++i) {
        uint16_t bits;
        std::memcpy(&bits, data.data() + 2 * i, 2);
        array.values[i] = from_f16(bits);
      }
    if (int8 || int16) {
      float multiplier;
      std::memcpy(&multiplier, data.data() + static_cast<size_t>(n) * size, 4);
      require(std::isfinite(multiplier) && multiplier != 0, where, " has a multiplier of ",
              multiplier);
      for (float& x : array.values) x /= multiplier;
      // The bytes are the transpose's, but for tables of words in Firefox's fork.
      if (item.shape.size() == 2 && item.name.find("Wemb") == std::string::npos) {
        array.shape = {item.shape[1], item.shape[0]};
        array = transposed(array);
      }
    }
    require(out.arrays.emplace(item.name, std::move(array)).second, where, " comes twice");
  }
  require(!out.config.empty(), what, ": has no '", kConfigName, "', the model's configuration");
  return out;
}

MarianArchive parse_marian(std::string_view bytes, const std::string& what) {
  if (!is_zip(bytes)) return parse_marian_bin(bytes, what);
  Npz archive = parse_npz(bytes, what);
  MarianArchive out{std::move(archive.arrays), ""};
  require(archive.texts.contains(kConfigName), what, ": has no '", kConfigName,
          "', the model's configuration");
  out.config = up_to_zero(archive.texts.at(kConfigName));
  return out;
}

ForeignModel read_marian(const fs::path& path, const ImportOptions& options) {
  return Reader(path, options).read();
}

bool is_marian(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!fs::is_directory(path))
    return name.ends_with(kDecoderName) || name.ends_with(".npz") || name.ends_with(".bin");
  return fs::exists(path / kDecoderName) ||
         !ending_in(path, {".npz", "alphas.bin", "intgemm8.bin"}).empty();
}

}  // namespace heed
