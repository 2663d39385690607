// Other toolkits' models: a trained one of CTranslate2's against what CTranslate2 itself says of
// it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/base/random.h"
#include "heed/data/opus_text.h"
#include "heed/data/piece_table.h"
#include "heed/data/sentencepiece_file.h"
#include "heed/exchange/bytes.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/exchange/hugging_face.h"
#include "heed/exchange/import.h"
#include "heed/exchange/marian.h"
#include "heed/exchange/torch_file.h"
#include "heed/exchange/yaml.h"
#include "heed/exchange/zip.h"
#include "heed/nn/layers.h"
#include "heed/translation/shortlist.h"
#include "heed/translation/translator.h"
#include "tests/folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Where models lie that may not be part of the project, if they are there.
std::optional<fs::path> models_folder() {
  const char* const given = std::getenv("HEED_DATA");
  const fs::path folder =
      (given ? fs::path(given)
             : fs::path(__FILE__).parent_path().parent_path().parent_path() / "shared" / "data") /
      "models";
  if (!fs::is_directory(folder)) return {};
  return folder;
}

Json read_cases(const fs::path& file) {
  std::ifstream in(file);
  return Json::parse(in);
}

// An imported model, and what the cases ask of it.
class Imported {
 public:
  Imported(const fs::path& from, const fs::path& to) {
    write_model(read_foreign(from), from, to);
    model_ = LoadedModel::open(to);
  }

  const ModelFolder& folder() const { return model_->folder(); }

  Source source(const Words& words) const {
    const Tokenizer& t = *folder().tokenizers.source;
    const std::vector<Id> all = framed(ids_of(t, words), t.special());
    return {ids(all, {1, std::ssize(all)}), {static_cast<Id>(all.size())}};
  }
  static std::string line_of(const Words& words) {
    std::string line;
    for (const std::string& w : words) line += w + " ";
    return line;
  }
  static std::vector<Id> ids_of(const Tokenizer& t, const Words& words) {
    return t.encode(line_of(words)).ids;
  }
  Translator translator() const { return Translator(model_); }
  Words words_of(const std::vector<Id>& ids) const {
    return folder().tokenizers.target->pieces(ids);
  }

  // As CTranslate2 has them by default.
  SearchOptions defaults() const {
    const SpecialIds s = folder().tokenizers.target->special();
    SearchOptions o{.begin = s.begin, .end = s.end, .pad = s.pad, .unknown = s.unknown};
    folder().search.fill(o, {});
    o.layer = folder().alignment.layer, o.head = folder().alignment.head;
    return o;
  }

  std::vector<Hypothesis> search_for(const Words& words, const SearchOptions& o) const {
    if (words.empty()) return {{}};  // as Translator has it
    const LoadedModel::Turn turn(*model_);
    return search(*folder().model, source(words), o)[0];
  }

  std::vector<double> token_scores(const Words& words, const Words& target) const {
    const LoadedModel::Turn turn(*model_);
    std::vector<Id> in = ids_of(*folder().tokenizers.target, target), out = in;
    in.insert(in.begin(), folder().tokenizers.target->special().begin);
    out.push_back(folder().tokenizers.target->special().end);
    const TeacherForced forced =
        folder().model->forward(source(words), ids(in, {1, std::ssize(in)}), false);
    const Tensor all = log_softmax(folder().model->logits(forced.hidden));
    const std::vector<double> values = all.values();
    std::vector<double> scores;
    for (size_t t = 0; t < out.size(); ++t)
      scores.push_back(values[t * static_cast<size_t>(all.size(2)) + static_cast<size_t>(out[t])]);
    return scores;
  }

  std::vector<std::vector<float>> attention(const Words& words, const Words& target,
                                            int64_t head) const {
    const LoadedModel::Turn turn(*model_);
    SearchOptions o = defaults();
    o.want_weights = true, o.layer = -1, o.head = head;
    return score_targets(*folder().model, source(words),
                         {ids_of(*folder().tokenizers.target, target)}, o)[0]
        .weights;
  }

  std::vector<double> encoder(const Words& words) const {
    const LoadedModel::Turn turn(*model_);
    return folder().model->word_layers(source(words), 0).layers.back().values();
  }

 private:
  std::shared_ptr<const LoadedModel> model_;
};

int64_t number_of(const Json& value, int64_t beam) {
  return value.is_string() ? beam : value.get<int64_t>();
}

// The ids of words that must be in the target's vocabulary, as its options want them.
std::vector<Id> known(const Imported& model, const Words& words) {
  const Tokenizer& target = *model.folder().tokenizers.target;
  const std::vector<Id> found = Imported::ids_of(target, words);
  require(std::ranges::find(found, target.special().unknown) == found.end(),
          "a word that the vocabulary does not have");
  return found;
}

// CTranslate2's options, by heed's names.
SearchOptions options_of(const Imported& model, const Json& c, int64_t beam) {
  const Json options = c.value("options", Json::object());
  const Tokenizer& target = *model.folder().tokenizers.target;
  SearchOptions o = model.defaults();
  o.beam = options.value("beam_size", beam);
  o.best = options.contains("num_hypotheses") ? number_of(options["num_hypotheses"], o.beam) : 1;
  o.min_length = options.value("min_decoding_length", o.min_length);
  o.max_extra = options.value("max_decoding_length", o.max_extra);
  o.want_weights = options.value("return_attention", false);
  o.repetition_penalty = options.value("repetition_penalty", 1.0);
  o.prefix_bias = options.value("prefix_bias_beta", 0.0);
  o.alternatives = options.value("return_alternatives", false);
  for (const Json& run : options.value("suppress_sequences", Json::array()))
    o.suppress.push_back(known(model, run.get<Words>()));
  if (options.contains("end_token"))
    o.end = known(model, {options["end_token"].get<std::string>()}).at(0);
  if (c.contains("prefix") && !c["prefix"].empty())
    o.prefixes = {Imported::ids_of(target, c["prefix"].get<Words>())};
  if (options.value("use_vmap", false)) {
    // Always: the unknown, the begin, the end, the prefix, and what the map gives for nothing.
    std::vector<Id> list = known(model, c["vmap"][""].get<Words>());
    list.insert(list.end(), {o.unknown, o.begin, o.end});
    if (!o.prefixes.empty()) list.insert(list.end(), o.prefixes[0].begin(), o.prefixes[0].end());
    std::ranges::sort(list);
    list.erase(std::ranges::unique(list).begin(), list.end());
    o.shortlists = {list};
  }
  if (!o.alternatives) o.beam = std::max(o.beam, o.best);
  return o;
}

void check_translation(const Imported& model, const Json& c, int64_t beam) {
  const Json options = c.value("options", Json::object()), expect = c["expect"];
  Words words = c.at("source").get<Words>();
  const size_t given = words.size();
  const SearchOptions o = options_of(model, c, beam);
  if (options.contains("max_input_length"))
    words.resize(std::min(words.size(), options["max_input_length"].get<size_t>()));
  const std::vector<Hypothesis> found = model.search_for(words, o);
  const auto hypothesis = [&](size_t i) { return model.words_of(found.at(i).ids); };
  const Json best = expect.value("hypotheses", Json::array());
  for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(hypothesis(i), best[i].get<Words>());
  for (size_t i = 0; i < 2; ++i)
    if (const std::string key = "hypothesis_" + std::to_string(i); expect.contains(key)) {
      Words said = hypothesis(i);
      if (options.value("return_end_token", false)) said.push_back("</s>");
      EXPECT_EQ(said, expect[key].get<Words>()) << key;
    }
  if (expect.contains("length")) {
    EXPECT_EQ(std::ssize(found.at(0).ids), expect["length"].get<int64_t>());
  }
  if (expect.contains("num_hypotheses")) {
    EXPECT_EQ(std::ssize(found), number_of(expect["num_hypotheses"], beam));
  }
  if (expect.contains("tokens_after_prefix_differ")) {
    std::set<Id> firsts;
    for (const Hypothesis& h : found) firsts.insert(h.ids.at(o.prefixes[0].size()));
    EXPECT_EQ(firsts.size(), found.size());
  }
  if (expect.contains("all_tokens_differ")) {
    const std::vector<Id>& said = found.at(0).ids;
    EXPECT_EQ(std::set<Id>(said.begin(), said.end()).size(), said.size());
  }
  if (expect.contains("attention_shape")) {
    // Ours has a row for the end, too.
    EXPECT_EQ(std::ssize(found.at(0).weights), expect["attention_shape"][0].get<int64_t>() + 1);
    EXPECT_EQ(std::ssize(found.at(0).weights.at(0)), expect["attention_shape"][1].get<int64_t>());
  }
  // Theirs have zeros where words were cut off, ours end there.
  if (expect.contains("attention_columns")) {
    EXPECT_EQ(given, expect["attention_columns"].get<size_t>());
  }
  if (expect.contains("attention_zero_from_column")) {
    EXPECT_EQ(std::ssize(found.at(0).weights.at(0)),
              expect["attention_zero_from_column"].get<int64_t>());
  }
  if (expect.contains("each_length"))
    for (const Hypothesis& h : found) {
      EXPECT_EQ(std::ssize(h.ids), expect["each_length"].get<int64_t>());
      EXPECT_NE(h.score, 0);
      EXPECT_EQ(std::ssize(h.weights), expect["each_attention_rows"].get<int64_t>() + 1);
      const Words begins = expect["begins_with"].get<Words>(), all = model.words_of(h.ids);
      for (size_t i = 0; i < begins.size(); ++i) EXPECT_EQ(all.at(i), begins[i]);
    }
}

void check_property(const Imported& model, const Json& c, int64_t beam) {
  const std::string id = c["id"];
  const Words words = c["source"].get<Words>();
  SearchOptions o = model.defaults();
  o.beam = beam;
  if (id == "length-normalization") {
    const Hypothesis one = model.search_for(words, o)[0];
    o.normalize = 0;
    const Hypothesis none = model.search_for(words, o)[0];
    EXPECT_NEAR(one.score, none.score / double(one.ids.size() + 1), 1e-6);
  } else if (id == "greedy-and-beam-score") {
    o.beam = 1;
    const double greedy = model.search_for(words, o)[0].score;
    o.beam = 2;
    EXPECT_NEAR(greedy, model.search_for(words, o)[0].score, 1e-5);
  } else {
    check_translation(model, c, beam);
  }
}

void check_score(const Imported& model, const Json& c) {
  const Words source = c["source"].get<Words>(), target = c["target"].get<Words>();
  const Json& expect = c["expect"];
  if (expect.contains("tokens")) {  // cut, and the end counts there
    TranslateOptions o;
    o.max_length = c["options"]["max_input_length"].get<int64_t>() - 1;
    const auto found =
        model.translator().score({Imported::line_of(source)}, {Imported::line_of(target)}, o);
    Words said = model.words_of(found.at(0).best().target.ids);
    said.push_back("</s>");
    EXPECT_EQ(said, expect["tokens"].get<Words>());
    return;
  }
  const auto wanted = expect["token_log_probabilities"].get<std::vector<double>>();
  if (source.empty()) {  // what is empty is certain
    const auto found = model.translator().score({""}, {Imported::line_of(target)});
    EXPECT_NEAR(found.at(0).best().log_probability, wanted.at(0), 0);
    return;
  }
  const auto found = model.token_scores(source, target);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], expect["abs"].get<double>());
}

void check_attention(const Imported& model, const Json& c) {
  const auto wanted = c["expect"]["weights"].get<std::vector<std::vector<double>>>();
  const auto found = model.attention(c["source"].get<Words>(), c["target"].get<Words>(), c["head"]);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t t = 0; t < wanted.size(); ++t)
    for (size_t s = 0; s < wanted[t].size(); ++s)
      EXPECT_NEAR(double(found[t].at(s)), wanted[t][s], 1e-4);
}

void check_encoder(const Imported& model, const Json& c) {
  const auto wanted = c["expect"]["first_4_of_each_row"].get<std::vector<std::vector<double>>>();
  const std::vector<double> found = model.encoder(c["source"].get<Words>());
  const size_t size = found.size() / wanted.size();
  for (size_t t = 0; t < wanted.size(); ++t)
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[t * size + i], wanted[t][i], 1e-4);
}

TEST(Exchange, Ctranslate2SaysWhatItSaysItself) {
  const std::optional<fs::path> data = models_folder();
  if (!data) GTEST_SKIP() << "no models; say where they are with HEED_DATA";
  const Json all = read_cases(*data / "cases.json");
  Folder folder;
  std::map<std::string, std::unique_ptr<Imported>> models;
  int checked = 0;
  for (const char* part : {"cases", "derived"})
    for (const Json& c : all[part]) {
      const std::string id = c["id"], kind = c["kind"], name = c["models"][0];
      SCOPED_TRACE(id);
      if (!models[name])
        models[name] = std::make_unique<Imported>(*data / name, folder.path() / name);
      const Imported& model = *models[name];
      ++checked;
      if (kind == "score") {
        check_score(model, c);
      } else if (kind == "attention") {
        check_attention(model, c);
      } else if (kind == "encoder") {
        check_encoder(model, c);
      } else if (id == "empty-batch") {
        EXPECT_EQ(model.translator().translate({}).size(), c["expect"]["results"].get<size_t>());
      } else {
        for (const int64_t beam : c.value("beam_sizes", std::vector<int64_t>{2}))
          if (kind == "error")
            EXPECT_THROW(model.search_for(c["source"].get<Words>(), options_of(model, c, beam)),
                         Error);
          else
            kind == "property" ? check_property(model, c, beam) : check_translation(model, c, beam);
      }
    }
  EXPECT_EQ(checked, 59);
}

// A model.bin, byte by byte as CTranslate2 writes it.
class BinaryWriter {
 public:
  explicit BinaryWriter(uint32_t version, uint32_t revision = 7) : version_(version) {
    put(version), text("TransformerSpec"), put(revision);
  }
  template <class T>
  void put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    put(static_cast<uint16_t>(value.size() + 1));
    bytes.append(value.c_str(), value.size() + 1);
  }
  // `type` as versions from 4 on number them; before, the size of an item tells.
  template <class T>
  void variable(const std::string& name, const std::vector<uint32_t>& shape, uint8_t type,
                const std::vector<T>& values) {
    text(name), put(static_cast<uint8_t>(shape.size()));
    for (const uint32_t n : shape) put(n);
    if (version_ >= 4)
      put(type), put(static_cast<uint32_t>(values.size() * sizeof(T)));
    else
      put(static_cast<uint8_t>(sizeof(T))), put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }
  std::string bytes;

 private:
  uint32_t version_;
};

TEST(Exchange, Ctranslate2OfEveryVersionAndType) {
  // Numbers that every type holds exactly, by the rows' scales.
  const std::vector<float> wanted = {1, -0.5, 0.25, 2, -1, 0};
  const std::vector<uint32_t> shape = {2, 3};
  for (uint32_t version = 2; version <= 6; ++version)
    for (const std::string type : {"f32", "f16", "bf16", "int8", "int16", "int16 of old"}) {
      SCOPED_TRACE(type + " in version " + std::to_string(version));
      if (version < 4 && type.find("f16") != std::string::npos) continue;  // told by their size
      BinaryWriter out(version);
      const bool scaled = type == "int8" || type == "int16";
      out.put(uint32_t{scaled ? 3u : 2u});
      if (type == "f32") out.variable("w/weight", shape, 0, wanted);
      if (type == "f16")
        out.variable<uint16_t>("w/weight", shape, 4, {0x3C00, 0xB800, 0x3400, 0x4000, 0xBC00, 0});
      if (type == "bf16")
        out.variable<uint16_t>("w/weight", shape, 5, {0x3F80, 0xBF00, 0x3E80, 0x4000, 0xBF80, 0});
      if (type == "int8") {
        out.variable<int8_t>("w/weight", shape, 1, {64, -32, 16, 32, -16, 0});
        out.variable<float>("w/weight_scale", {2}, 0, {64, 16});
      }
      if (type == "int16") {
        out.variable<int16_t>("w/weight", shape, 2, {512, -256, 128, 1024, -512, 0});
        out.variable<float>("w/weight_scale", {}, 0, {512});
      }
      if (type == "int16 of old")
        out.variable<int16_t>("w/weight", shape, 2, {1000, -500, 250, 2000, -1000, 0});
      if (version >= 4)
        out.variable<int16_t>("z", {}, 2, {8});
      else
        out.variable<float>("z", {}, 0, {8});
      if (version >= 3) out.put(uint32_t{1}), out.text("a/weight"), out.text("w/weight");
      const Ctranslate2File file = parse_ctranslate2(out.bytes, "written");
      EXPECT_EQ(file.version, version);
      EXPECT_EQ(file.arrays.at("w/weight").shape, (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(file.arrays.at("w/weight").values, wanted);
      EXPECT_EQ(file.arrays.at("z").values, std::vector<float>{8});
      EXPECT_FALSE(file.arrays.contains("w/weight_scale"));
      EXPECT_EQ(file.aliases.size(), version >= 3 ? 1u : 0u);
    }
}

// A folder of one layer a side, with the attributes that converters wrote at the time: in versions
// before 6 among the variables, then in config.json; with flags, all zero, of what came later.
fs::path small_ctranslate2(const fs::path& folder, uint32_t version) {
  fs::create_directories(folder);
  constexpr uint32_t D = 8, F = 12, V = 6;
  struct Item {
    std::vector<uint32_t> shape;
    uint8_t type = 0;
    std::vector<float> values = {};
  };
  std::map<std::string, Item> items;
  uint64_t place = 0;
  const auto drawn = [&](const std::string& name, std::vector<uint32_t> shape) {
    Item& item = items[name];
    item.shape = std::move(shape);
    uint32_t count = 1;
    for (const uint32_t n : item.shape) count *= n;
    for (uint32_t i = 0; i < count; ++i)
      item.values.push_back(static_cast<float>(Random(7, 4 * place++).normal()) / 2);
  };
  const auto linear = [&](const std::string& name, uint32_t out, uint32_t in) {
    drawn(name + "/weight", {out, in}), drawn(name + "/bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    drawn(name + "/gamma", {D}), drawn(name + "/beta", {D});
  };
  for (const std::string side : {"encoder", "decoder"}) {
    const std::string layer = side + "/layer_0/";
    drawn(side + (version > 4 && side == "encoder" ? "/embeddings_0" : "/embeddings") + "/weight",
          {V, D});
    linear(layer + "self_attention/linear_0", 3 * D, D);
    linear(layer + "self_attention/linear_1", D, D);
    norm(layer + "self_attention/layer_norm");
    if (side == "decoder") {
      linear(layer + "attention/linear_0", D, D), linear(layer + "attention/linear_1", 2 * D, D);
      linear(layer + "attention/linear_2", D, D), norm(layer + "attention/layer_norm");
    }
    linear(layer + "ffn/linear_0", F, D), linear(layer + "ffn/linear_1", D, F);
    norm(layer + "ffn/layer_norm");
  }
  linear("decoder/projection", V, D);
  const auto flag = [&](const std::string& name, float value) { items[name] = {{}, 1, {value}}; };
  const auto spelling = [&](const char* name, const std::string& piece) {
    items[name] = {{static_cast<uint32_t>(piece.size())}, 1, {piece.begin(), piece.end()}};
  };
  if (version >= 6) {
    for (const std::string side : {"encoder/", "decoder/"})
      flag(side + "num_heads", 2), flag(side + "pre_norm", 0), flag(side + "activation", 2),
          flag(side + "scale_embeddings", 1);
    flag("decoder/alignment_layer", 0), flag("decoder/alignment_heads", 0);
    flag("encoder/embeddings_merge", 0), flag("encoder/multi_query_attention", 0);
    for (const char* name : {"alibi", "alibi_use_positive_positions", "scale_alibi"})
      flag(std::string("decoder/") + name, 0);
    std::ofstream(folder / "config.json")
        << R"({"unk_token": "\u00fc", "bos_token": "B", "eos_token": "E", "decoder_start_token": "E",
              "add_source_bos": false, "add_source_eos": true})";
  } else {
    flag("num_heads", 2), flag("pre_norm", 0), flag("activation", 2);
    flag("alignment_layer", 0), flag("alignment_heads", 0), flag("embeddings_merge", 0);
    flag("with_relative_position", 0), flag("layernorm_embedding", 0);
    flag("with_source_bos", 0), flag("with_source_eos", 1), flag("with_target_bos", 0);
    flag("user_decoder_start_tokens", 0);
    spelling("unk_token", "\u00fc"), spelling("bos_token", "B"), spelling("eos_token", "E");
    for (const std::string side : {"encoder", "decoder"})
      flag(side + "/scale_embeddings", 1), flag(side + "/embeddings/multiply_by_sqrt_depth", 1);
  }
  BinaryWriter out(version, version < 6 ? 4 : 7);
  out.put(static_cast<uint32_t>(items.size()));
  for (const auto& [name, item] : items)
    if (item.type == 0)
      out.variable(name, item.shape, 0, item.values);
    else
      out.variable<int8_t>(name, item.shape, 1, {item.values.begin(), item.values.end()});
  if (version >= 3) out.put(uint32_t{0});
  std::ofstream(folder / "model.bin", std::ios::binary) << out.bytes;
  for (const char* name : {"source_vocabulary.txt", "target_vocabulary.txt"})
    std::ofstream(folder / name) << "B\nE\na\nb\nc\n";  // the unknown comes last by itself
  return folder;
}

TEST(Exchange, Ctranslate2AttributesOfEveryVersion) {
  Folder folder;
  std::optional<ForeignModel> first;
  for (uint32_t version = 2; version <= 6; ++version) {
    SCOPED_TRACE("version " + std::to_string(version));
    const fs::path from = small_ctranslate2(folder.path() / std::to_string(version), version);
    const ForeignModel model = read_foreign(from);
    EXPECT_EQ(model.config.heads, 2);
    EXPECT_EQ(model.config.norm, "post");
    EXPECT_EQ(model.config.activation, "swish");
    EXPECT_EQ(model.config.embedding_scale, 0);  // the root of the size
    EXPECT_EQ(model.alignment.layer, 0);
    EXPECT_EQ(model.alignment.head, -1);
    const SpecialIds source = model.tokenizers.source->special(),
                     target = model.tokenizers.target->special();
    EXPECT_TRUE(source.source_end);
    EXPECT_FALSE(source.source_begin);
    EXPECT_EQ(target.begin, 1);
    EXPECT_EQ(target.end, 1);
    EXPECT_EQ(target.unknown, 5);
    EXPECT_EQ(as_piece_table(*model.tokenizers.target)->pieces.at(5), "\u00fc");
    if (!first) first = read_foreign(from);
    for (const auto& [name, array] : first->parameters)
      EXPECT_EQ(model.parameters.at(name).values, array.values) << name;
    // It begins with what ends it, and ends all the same.
    const fs::path to = folder.path() / ("m" + std::to_string(version));
    write_model(model, from, to);
    EXPECT_NO_THROW(Translator(LoadedModel::open(to)).translate({"a b c"}));
  }
}

// Members that share their bytes, tensors that share their numbers, aliases without end: a short
// file must not ask for more memory than it can fill.
TEST(Exchange, ArchivesHoldNoMoreThanTheirBytes) {
  BinaryWriter out(6);
  out.put(uint32_t{1});
  out.variable("w", {100}, 0, std::vector<float>(100));
  out.put(uint32_t{50});
  for (int i = 0; i < 50; ++i) out.text("a" + std::to_string(i)), out.text("w");
  try {
    parse_ctranslate2(out.bytes, "many");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("aliases"), std::string::npos) << error.what();
  }
  // An archive whose directory names its one member twice, under two names.
  const std::string member(400, 'x');
  std::string zip = zip_of(std::vector<std::pair<std::string, std::string>>{{"a", member}});
  const size_t directory = zip.find("PK\x01\x02"), end = zip.find("PK\x05\x06");
  std::string again = zip.substr(directory, end - directory);
  again[46] = 'b';  // the name stands after 46 bytes
  zip.insert(end, again);
  zip[zip.size() - 12] = zip[zip.size() - 14] = 2;
  try {
    Zip(zip, "twice");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("more bytes than the file"), std::string::npos)
        << error.what();
  }
}

// An array without elements may be [0, 50000], not so large that going through its rows has no end.
TEST(Exchange, EmptyArraysHaveSizesThatEnd) {
  EXPECT_EQ(elements_of({0, 50000}, 0, "empty"), 0);
  EXPECT_EQ(elements_of({3, 4}, 12, "whole"), 12);
  EXPECT_THROW(elements_of({3, 5}, 12, "large"), Error);
  EXPECT_THROW(elements_of({int64_t{1} << 61, 0}, 12, "empty"), Error);
  EXPECT_THROW(elements_of({int64_t{1} << 20, 0, int64_t{1} << 20}, 12, "empty"), Error);
}

TEST(Exchange, TextsAreMadePlainAsOpusMtDoes) {
  const auto plain = [](const char* text) { return opus_text(text).text; };
  EXPECT_EQ(plain("“Ｈi”，said 《x》…"), "\"Ｈi\",said \"x\"...");
  EXPECT_EQ(plain("一。二． 三１"), "一. 二. 三\"");
  EXPECT_EQ(plain("  a\u200b\tb \u00ad c  "), "a b c");
  const PlainText found = opus_text("a…b");
  EXPECT_EQ(found.text, "a...b");
  EXPECT_EQ(found.from, (std::vector<size_t>{0, 1, 1, 1, 4, 5}));
}

TEST(Exchange, ShortlistsAreRead) {
  const auto u64 = [](std::string& to, uint64_t value) {
    to.append(reinterpret_cast<const char*>(&value), 8);
  };
  std::string bytes;
  const std::vector<uint64_t> offsets = {0, 2, 2, 3};
  const std::vector<uint32_t> entries = {4, 9, 7};
  for (const uint64_t n : {uint64_t{0xF11A48D5013417F5}, uint64_t{0}, uint64_t{2}, uint64_t{2},
                           uint64_t{offsets.size()}, uint64_t{entries.size()}})
    u64(bytes, n);
  for (const uint64_t n : offsets) u64(bytes, n);
  bytes.append(reinterpret_cast<const char*>(entries.data()), 4 * entries.size());
  const Shortlist list(bytes, "lex");
  EXPECT_EQ(list.of(std::vector<Id>{2, 0, 2}), (std::vector<Id>{0, 1, 4, 7, 9}));
  EXPECT_EQ(list.of(std::vector<Id>{1, 50}), (std::vector<Id>{0, 1}));
  EXPECT_EQ(list.largest(), 9);
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(Shortlist(bytes.substr(0, n), "cut"), Error);
}

// Marian's vocabularies have every quoting that there is.
TEST(Exchange, VocabulariesInYamlAreReadAsMarianReadsThem) {
  const std::optional<fs::path> data = models_folder();
  if (!data) GTEST_SKIP() << "no models; say where they are with HEED_DATA";
  const auto text = [&](const char* name) {
    std::ifstream in(*data / "marian-vocab" / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::string found;
  for (const std::string& piece : parse_yaml_vocabulary(text("vocab.yml"), "vocab.yml"))
    if (!piece.empty()) found += piece + "\n";
  EXPECT_EQ(found, text("vocab.expected.txt"));
}

TEST(Exchange, VocabulariesMayHaveGaps) {
  EXPECT_EQ(placed_by_id({{"b", 2}, {"a", 0}}, "v"), (Words{"a", "", "b"}));
  EXPECT_THROW(placed_by_id({}, "v"), Error);
  EXPECT_THROW(placed_by_id({{"a", 1}, {"b", 1}}, "v"), Error);
  EXPECT_THROW(placed_by_id({{"a", -1}}, "v"), Error);
  EXPECT_THROW(placed_by_id({{"a", int64_t{1} << 40}}, "v"), Error);
}

// The real files of an OPUS-MT model: pieces by SentencePiece, ids by the table.
TEST(Exchange, PiecesHaveTheIdsOfTheTable) {
  const std::optional<fs::path> data = models_folder();
  if (!data) GTEST_SKIP() << "no models; say where they are with HEED_DATA";
  const TokenizerPair pair = read_marian_mt_tokenizers(*data / "hf-opus-mt-en-mg", 54688, 54688);
  for (const auto& [tokenizer, missing] :
       {std::pair{pair.source, 94}, std::pair{pair.target, 161}}) {
    EXPECT_EQ(tokenizer->special(),
              (SpecialIds{.pad = 54687, .unknown = 1, .begin = 54687, .end = 0}));
    std::set<std::string> table;
    for (const std::string& piece : as_piece_table(*tokenizer)->pieces) table.insert(piece);
    int absent = 0;
    for (const ScoredPiece& piece : scored_pieces(as_piece_table(*tokenizer)->cutter->file()))
      absent += !table.contains(std::string(piece.text));
    EXPECT_NEAR(absent, missing, 3);  // with <s>, <unk>, </s>, or without
  }
  const std::string line = "The dog is in the garden.";
  const Sentence s = pair.source->encode(line);
  EXPECT_EQ(pair.source->decode(s.ids).text, line);
  EXPECT_EQ(s.word.back(), 5);
  // What a text spells is that piece, and ends no word before it.
  const std::vector<Id> dog = pair.source->encode("dog").ids;
  std::vector<Id> spelt = dog;
  spelt.insert(spelt.end(), {0, 54687, 1});
  spelt.insert(spelt.end(), dog.begin(), dog.end());
  EXPECT_EQ(pair.source->encode("dog </s> <pad><unk>dog").ids, spelt);
  // A target language is one piece, here of a table that has none.
  EXPECT_EQ(pair.source->encode(">>fra<< dog").ids.front(), 1);
}

// The four tables of positions, as their toolkits compute them (D = 8).
TEST(Exchange, SinusoidsAreThoseOfTheirToolkits) {
  const auto row = [](Sinusoid kind, int64_t at) {
    return sinusoidal_positions(1, 8, at, Type::f64, kind).values();
  };
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6);
  };
  const std::vector<double> a1 = {0.841471, 0.046399, 0.002154, 0.0001,
                                  0.540302, 0.998923, 0.999998, 1};
  expect(row(Sinusoid::closed, 0), {0, 0, 0, 0, 1, 1, 1, 1});
  expect(row(Sinusoid::closed, 1), a1);
  expect(row(Sinusoid::from_one, 0), a1);
  expect(row(Sinusoid::from_one, 1),
         {0.909297, 0.092699, 0.004309, 0.0002, -0.416147, 0.995694, 0.999991, 1});
  expect(row(Sinusoid::halves, 1),
         {0.841471, 0.099833, 0.01, 0.001, 0.540302, 0.995004, 0.99995, 1});
  expect(row(Sinusoid::interleaved, 1),
         {0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1});
}

TEST(Exchange, GeluByErf) {
  std::vector<double> x, wanted;
  for (double v = -6; v <= 6; v += 0.25)
    x.push_back(v), wanted.push_back(v / 2 * std::erfc(-v / std::sqrt(2.0)));
  const std::vector<double> found = gelu_erf(tensor(x, {std::ssize(x)}, Type::f64)).values();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 5e-7);
}

// Every cut of every archive ends in a sentence.
TEST(Exchange, CutArchivesAreRefused) {
  const fs::path seeds = fs::path(__FILE__).parent_path() / "fuzz" / "corpus";
  ASSERT_TRUE(fs::exists(seeds)) << seeds;
  const auto bytes = [&](const char* name) {
    std::ifstream in(seeds / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto all_cuts = [&](const char* name, auto parse) {
    const std::string whole = bytes(name);
    EXPECT_NO_THROW(parse(whole)) << name;
    for (size_t n = 0; n < whole.size(); ++n)
      EXPECT_THROW(parse(whole.substr(0, n)), Error) << name << " cut at " << n;
  };
  for (const char* name : {"ctranslate2/ct2_v2", "ctranslate2/ct2_v6"})
    all_cuts(name, [](const std::string& b) { parse_ctranslate2(b, "cut"); });
  for (const char* name : {"npz/npz", "marian_bin/marian_bin"})
    all_cuts(name, [](const std::string& b) { parse_marian(b, "cut"); });
  for (const char* name : {"torch/torch_zip", "torch/torch_legacy"})
    all_cuts(name, [](const std::string& b) { parse_torch(b, "cut"); });
}

// A pickle that wants to run something is refused by name.
TEST(Exchange, PicklesRunNothing) {
  const std::string magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);
  const std::string small("\x80\x02K\x01.", 5);
  try {
    parse_torch(magic + small + small + "\x80\x02" + "cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
                "evil");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'os.system'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heed
