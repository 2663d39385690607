#include "heed/studies/translators.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/files/atomic_file.h"
#include "heed/metrics/metrics.h"

namespace heed {
namespace {

std::string as_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// The words that the most pairs have.
std::set<std::string, std::less<>> most_frequent(const std::vector<AlignedPair>& pairs,
                                                 size_t count) {
  std::map<std::string, int64_t, std::less<>> counts;
  for (const AlignedPair& pair : pairs)
    for (const std::string_view word : split_words(pair.english)) ++counts[std::string(word)];
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [word, n] : counts) order.emplace_back(-n, word);
  std::sort(order.begin(), order.end());
  std::set<std::string, std::less<>> out;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) out.insert(order[i].second);
  return out;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "heed-study-XXXXXX").string();
  require(mkdtemp(pattern.data()) != nullptr, "study: cannot make a folder like ", pattern,
          "; set TMPDIR to where one can be made");
  path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code error;  // what cannot be removed stays
  std::filesystem::remove_all(path_, error);
}

void Pairs::add(const std::string& from, const std::string& to, const std::string& linked) {
  source.push_back(from);
  target.push_back(to);
  if (!linked.empty()) links.push_back(linked);
}

Pairs Pairs::part(size_t begin, size_t end) const {
  const auto cut = [&](const std::vector<std::string>& lines) {
    return lines.empty()
               ? lines
               : std::vector<std::string>(lines.begin() + static_cast<std::ptrdiff_t>(begin),
                                          lines.begin() + static_cast<std::ptrdiff_t>(end));
  };
  return {cut(source), cut(target), cut(links)};
}

Pairs copies(const CopyTask& task, size_t count, Random& random) {
  Pairs out;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t n = task.shortest + random.below(task.longest - task.shortest + 1);
    std::string line;
    for (uint32_t k = 0; k < n; ++k)
      line += std::string(k ? " " : "") + static_cast<char>('a' + random.below(task.letters));
    out.add(line, line);
  }
  return out;
}

Pairs grammar_pairs(const Grammar& grammar, int64_t count, uint64_t seed, size_t words) {
  const std::vector<AlignedPair> all = grammar.pairs(count, seed);
  const auto kept = most_frequent(all, words);
  Pairs out;
  for (const AlignedPair& pair : all) {
    const std::vector<std::string_view> english = split_words(pair.english);
    if (words == 0 || std::all_of(english.begin(), english.end(),
                                  [&](std::string_view word) { return kept.contains(word); }))
      out.add(pair.english, pair.french, to_pharaoh(pair.links));
  }
  return out;
}

Lesson small_lesson(int64_t size, int64_t steps, uint64_t seed) {
  Lesson lesson;
  lesson.model.size = size;
  lesson.model.dropout = 0;
  lesson.model.positions = 128;
  TrainConfig& t = lesson.training;
  t.rate = 8e-3, t.warmup = 30, t.batch_tokens = 512, t.smoothing = 0, t.average = 0;
  t.steps = steps, t.validate_every = t.save_every = steps, t.seed = seed;
  return lesson;
}

void train(Trainer& trainer, const TrainConfig& config, const std::string& name,
           const StudyOptions& options) {
  Trainer::Hooks hooks;
  if (options.tell) {
    options.tell(name);
    hooks.log = [&](const Progress& p) {
      char line[96];
      std::snprintf(line, sizeof line, ": step %lld of %lld  loss %.3f",
                    static_cast<long long>(p.step), static_cast<long long>(config.steps), p.loss);
      options.tell(name + line);
    };
  }
  hooks.stop = options.stop;
  require(trainer.run(hooks) != Trainer::End::stopped, "study: stopped; nothing of it is kept");
}

ModelFolder train_translator(const CorpusFiles& files, const Lesson& lesson,
                             const std::filesystem::path& folder, const std::string& name,
                             const StudyOptions& options) {
  const TokenizerPair tokenizers{learn_tokenizer(texts(files, Side::source), lesson.tokens),
                                 learn_tokenizer(texts(files, Side::target), lesson.tokens)};
  const ModelFolder model = create_model(folder, lesson.model, lesson.training, tokenizers);
  CorpusOptions cleaning;
  if (const auto most = longest_sentence(lesson.model))
    cleaning.max_length = std::min(cleaning.max_length, *most);
  Trainer trainer(*model.model, model.params, std::make_shared<Corpus>(files, tokenizers, cleaning),
                  lesson.training, folder);
  train(trainer, lesson.training, name, options);
  return open_model(folder);  // the parameters that were kept: their average, if one was asked for
}

CorpusFiles as_files(const Pairs& pairs, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const CorpusFiles files{.source = (folder / "source").string(),
                          .target = (folder / "target").string()};
  write_file(files.source[0], as_lines(pairs.source));
  write_file(files.target[0], as_lines(pairs.target));
  return files;
}

double bleu(const ModelFolder& model, const Pairs& test, const std::string& tokenizer) {
  std::vector<std::string> lines;
  for (const Translation& t : Translator(model).translate(test.source, {.search = {.beam = 1}}))
    lines.push_back(t.best().text);
  const auto metric = make_bleu({.tokenizer = tokenizer});
  return metric->score(sum_statistics(statistics(*metric, lines, {test.target})));
}

double alignment_error(const ModelFolder& model, const Pairs& test) {
  std::vector<std::string> lines;
  for (const Translation& t :
       Translator(model).score(test.source, test.target, {.search = {.want_weights = true}}))
    lines.push_back(to_pharaoh(word_alignment(
        {model.tokenizers, t.source, t.best().target, t.best().weights}, {.how = Extract::best})));
  const auto metric = make_aer();
  return metric->score(sum_statistics(statistics(*metric, lines, {test.links})));
}

}  // namespace heed
