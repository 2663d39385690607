// The bottleneck: without attention one vector must hold the whole source, and quality falls with
// the sentence's length; with attention it does not (Bahdanau et al., 2015, figure 2).
#include <cmath>

#include "heed/base/words.h"
#include "heed/studies/study.h"
#include "heed/studies/translators.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

// BLEU counts up to four words in a row: what is shorter has none.
constexpr uint32_t kShortest = 4;

struct Bucket {
  size_t from, to;  // words of the source
  Pairs pairs;
};

// `test` by source length.
std::vector<Bucket> by_length(const Pairs& test, size_t width, size_t longest) {
  std::vector<Bucket> out;
  for (size_t from = kShortest; from <= longest; from += width)
    out.push_back({from, from + width - 1, {}});
  for (size_t i = 0; i < test.size(); ++i) {
    const size_t n = split_words(test.source[i]).size();
    for (Bucket& b : out)
      if (n >= b.from && n <= b.to) b.pairs.add(test.source[i], test.target[i]);
  }
  // Too few sentences say nothing.
  std::erase_if(out, [](const Bucket& b) { return b.pairs.size() < 10; });
  return out;
}

// What is learned from and what is tested on.
struct Task {
  std::string name, title, picture;
  CorpusFiles corpus;
  std::vector<Bucket> buckets;
  Lesson lesson;
  std::string tokenizer;  // of BLEU
};

// Trains without and with attention; adds a table and a picture.
void compare(const Task& task, const std::filesystem::path& work, const StudyOptions& o,
             Study& study) {
  StudyTable table{.name = task.name,
                   .title = task.title,
                   .columns = {"attention", "from", "to", "sentences", "BLEU"}};
  LineChart chart{.title = task.title, .x = {"words in the source"}, .y = {"BLEU"}};
  for (const char* score : {"none", "additive"}) {
    Lesson lesson = task.lesson;
    lesson.model.score = score;
    const ModelFolder model =
        train_translator(task.corpus, lesson, work / (task.name + "-" + score),
                         task.name + ", attention " + score, o);
    LineChart::Line line{
        std::string(score) == "none" ? "without attention" : "with attention", {}, {}};
    for (const Bucket& b : task.buckets) {
      const double quality = bleu(model, b.pairs, task.tokenizer);
      table.rows.push_back({score, double(b.from), double(b.to), double(b.pairs.size()), quality});
      line.x.push_back(double(b.from + b.to) / 2), line.y.push_back(quality);
    }
    chart.lines.push_back(line);
  }
  study.pictures.push_back({task.picture, draw_svg(chart)});
  study.tables.push_back(std::move(table));
}

// Throws Error where the two do not belong together, or one cannot be read.
void check_pairs(const CorpusFiles& files) { CorpusIndex{files}; }

Pairs read_pairs(const CorpusFiles& files) {
  Pairs out;
  PairReader reader(files);
  while (const auto pair = reader.next()) out.add(pair->source, pair->target);
  return out;
}

Task copying(const StudyOptions& o, const std::filesystem::path& work) {
  Random random(o.seed);
  const uint32_t letters = 20, longest = o.small ? 18 : 39, width = o.small ? 3 : 4;
  const Pairs train = copies({letters, 2, longest}, 20'000, random);
  Pairs test;  // as many of each length
  for (uint32_t from = kShortest; from < longest; from += width) {
    const Pairs some = copies({letters, from, from + width - 1}, o.small ? 40 : 100, random);
    for (size_t i = 0; i < some.size(); ++i) test.add(some.source[i], some.target[i]);
  }
  return {.name = "copy",
          .title = "Copying random letters",
          .picture = "bottleneck",
          .corpus = as_files(train, work),
          .buckets = by_length(test, width, longest),
          .lesson = small_lesson(o.small ? 48 : 64, o.small ? 600 : 2000, o.seed),
          .tokenizer = "none"};
}

Task real_text(const StudyOptions& o) {
  Lesson lesson = small_lesson(96, 1500, o.seed);
  lesson.model.dropout = 0.1;
  lesson.tokens = {.kind = "unigram", .size = 3000};
  TrainConfig& t = lesson.training;
  t.rate = 4e-3, t.warmup = 200, t.batch_tokens = 1024, t.smoothing = 0.1, t.average = 0.999;
  check_pairs(o.text), check_pairs(o.test);
  const auto buckets = by_length(read_pairs(o.test), 4, 200);
  require(!buckets.empty(), "bottleneck: ", o.test.source.name(),
          ": of no length are there enough sentences to test on; give a larger test set");
  return {.name = "text",
          .title = "Real text",
          .picture = "bottleneck-text",
          .corpus = o.text,
          .buckets = buckets,
          .lesson = lesson,
          .tokenizer = "13a"};
}

}  // namespace

Study bottleneck_study(const StudyOptions& o) {
  const TemporaryFolder work;
  Study study;
  // Before anything is trained: its files may not be there.
  std::optional<Task> text;
  if (!o.text.source.empty()) text = real_text(o);
  compare(copying(o, work.path()), work.path(), o, study);
  const auto quality = [&](const char* table, const char* attention) {
    return study.table(table).numbers("BLEU", {{"attention", attention}});
  };
  const std::vector<double> without = quality("copy", "none"), with = quality("copy", "additive");
  study.claims = {{"without attention, BLEU on the longest sources is less than a third of that on "
                   "the shortest",
                   without.back() < without.front() / 3},
                  {"with attention it is at least nine tenths", with.back() >= 0.9 * with.front()},
                  {"on the longest sources attention is more than twice as good",
                   with.back() > 2 * without.back()}};
  if (!text) return study;
  compare(*text, work.path(), o, study);
  const std::vector<double> poor = quality("text", "none"), rich = quality("text", "additive");
  bool better = true;
  for (size_t i = 0; i < poor.size(); ++i) better = better && rich[i] > poor[i];
  study.claims.push_back({"real text: attention is better at every length", better});
  return study;
}

}  // namespace heed
