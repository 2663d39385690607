// heed embed: a vector for each word in its sentence.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/inference.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/files/npy.h"
#include "heed/files/safetensors.h"
#include "heed/language/senses.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, input = "-", layer, output, word, senses;
  std::vector<std::string> compare;
  BadLines bad;
  Inference machine;
};

// All vectors as one matrix, word after word, and where each comes from.
struct Matrix {
  int64_t size = 0;
  std::vector<float> values;
  std::vector<int32_t> lines, words;  // from 0
};

Matrix matrix_of(const std::vector<WordVectors>& all) {
  Matrix m;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].words.empty()) continue;
    m.size = all[i].size;
    m.values.insert(m.values.end(), all[i].values.begin(), all[i].values.end());
    for (size_t k = 0; k < all[i].words.size(); ++k) {
      m.lines.push_back(static_cast<int32_t>(i));
      m.words.push_back(static_cast<int32_t>(k));
    }
  }
  return m;
}

void write_matrix(const Options& o, const Matrix& m, const std::string& layer) {
  const int64_t rows = static_cast<int64_t>(m.lines.size());
  const std::vector<int64_t> shape{rows, m.size};
  if (o.output.ends_with(".npy")) return write_npy(o.output, shape, m.values);
  const auto bytes = [](const auto& v) { return std::as_bytes(std::span(v)); };
  const std::vector<TensorEntry> entries{
      {.name = "vectors", .dtype = StoredDtype::F32, .shape = shape, .bytes = bytes(m.values)},
      {.name = "line", .dtype = StoredDtype::I32, .shape = {rows}, .bytes = bytes(m.lines)},
      {.name = "word", .dtype = StoredDtype::I32, .shape = {rows}, .bytes = bytes(m.words)}};
  write_safetensors(o.output, entries, {{"layer", layer}});
}

void print_json(const std::vector<WordVectors>& all) {
  for (const WordVectors& v : all) {
    nlohmann::ordered_json out{{"words", v.words}, {"vectors", nlohmann::ordered_json::array()}};
    for (size_t k = 0; k < v.words.size(); ++k)
      out["vectors"].push_back(std::vector<float>(v[k].begin(), v[k].end()));
    std::printf("%s\n", out.dump().c_str());
  }
}

void print_senses(const Options& o, const Embedder& embedder, Layer layer) {
  const std::vector<SenseSentence> test = read_senses(o.senses);
  const SenseResult here = nearest_senses(embedder, test, layer);
  const SenseResult table = nearest_senses(embedder, test, Layer::at(0));
  std::printf("%-12s %10s %10s\n", "word", "in context", "table");
  for (const auto& [word, share] : here.by_word)
    std::printf("%-12s %9.1f%% %9.1f%%\n", word.c_str(), 100 * share, 100 * table.by_word.at(word));
  std::printf("%-12s %9.1f%% %9.1f%%  nearest neighbour of the same sense, %lld sentences\n", "all",
              100 * here.same_sense, 100 * table.same_sense,
              static_cast<long long>(here.sentences));
}

void embed(Options o) {
  want(!o.folder.empty(),
       "--model is required, a folder that 'heed lm train' or 'heed train' made");
  want(o.compare.empty() == o.word.empty(), o.word.empty()
                                                ? "--compare wants --word, the word to compare"
                                                : "--word wants --compare, two sentences");
  want(o.output.empty() || o.output.ends_with(".npy") || o.output.ends_with(".safetensors"),
       "--output wants a name that ends in .npy or .safetensors, given '" + o.output + "'");
  want(o.output.empty() || (o.compare.empty() && o.senses.empty()),
       "--output writes the vectors of --input; --compare and --senses print");
  want(o.compare.empty() || o.senses.empty(), "--compare and --senses are two questions; ask one");
  std::optional<Layer> chosen;
  if (!o.layer.empty()) chosen = as_usage([&] { return layer_from(o.layer); });
  want_writable(o.output);
  use(o.machine);
  const Embedder embedder(opened(o.folder, o.machine));
  const Layer layer = chosen.value_or(embedder.usual());
  if (!o.senses.empty()) return print_senses(o, embedder, layer);
  if (!o.compare.empty()) {
    const Nearness n = compare(embedder, o.compare[0], o.compare[1], o.word, layer);
    std::printf("in context %.4f\ntable      %.4f\n", n.contextual, n.table);
    return;
  }
  const std::vector<std::string> lines = read_text(o.input, o.bad.told());
  o.bad.sum_up();
  const std::vector<WordVectors> all = embedder.embed(lines, layer);
  if (o.output.empty()) return print_json(all);
  write_matrix(o, matrix_of(all), layer.number ? std::to_string(*layer.number) : "mix");
}

}  // namespace

void add_embed(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "embed",
      "a vector for each word in its sentence, from a bidirectional language model or a "
      "translator\n"
      "Examples:\n"
      "  echo 'dogs may bark' | heed embed --model m            JSON: words and vectors\n"
      "  heed embed --model m --input text --output text.npy    a row for each word\n"
      "  heed embed --model m --compare 'dogs may bark' 'trees shed bark' --word bark\n"
      "  heed embed --model m --senses data/senses/senses.tsv\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--input", o->input, "lines of text (plain or packed); -: standard input");
  command->add_option(
      "--layer", o->layer,
      "a number, 0 being the table, or mix (default: mix, of a translator the last)");
  command->add_option("--output", o->output, "write a matrix: a .npy or .safetensors file");
  command->add_option("--compare", o->compare, "two sentences: how near is --word in them?")
      ->expected(2)
      ->default_str("");
  command->add_option("--word", o->word, "the word to compare");
  command->add_option(
      "--senses", o->senses,
      "a file of words in several senses: how often is the nearest one of the same?");
  o->bad.add_flag(*command);
  add_inference_flags(*command, o->machine);
  command->callback([o] { embed(*o); });
}

}  // namespace heed::apps
