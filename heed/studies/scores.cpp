// Every score of the table on one task: sentences of the grammar, whose true alignment is known.
#include <chrono>
#include <limits>

#include "heed/attention/score.h"
#include "heed/base/check.h"
#include "heed/studies/study.h"
#include "heed/studies/translators.h"
#include "heed/tensor/context.h"
#include "heed/training/loss.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

struct Cost {
  double words_a_second = 0;  // of the target, forward and back
  double bytes = 0;           // the most that a step held
};

// Of steps on one batch, the same for every score; the fastest of them, since a machine may have
// other things to do.
Cost cost_of(const ModelFolder& model, const CorpusFiles& files) {
  Corpus corpus(files, model.tokenizers);
  const Batch batch = batches_once(corpus, {.tokens = 1024}).front();
  const auto arena = Arena::make();
  const UseArena use(*arena);
  double fastest = std::numeric_limits<double>::infinity();
  for (uint64_t i = 0; i < 12; ++i) {
    const auto since = std::chrono::steady_clock::now();
    Tape tape(i);
    tape.backward(batch_loss(*model.model, batch, {.smoothing = 0}).total);
    model.params.clear_gradients();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - since;
    fastest = std::min(fastest, spent.count());
  }
  return {double(batch.target_tokens()) / fastest, double(arena->peak())};
}

// What looks at positions alone, whatever stands there.
bool blind(const std::string& score) { return score == "static" || score == "location"; }

}  // namespace

Study scores_study(const StudyOptions& o) {
  require(std::filesystem::is_directory(o.grammar), o.grammar.string(),
          ": no such folder; the grammar's words are in data/grammar of heed's sources, which "
          "--grammar can name");
  const Grammar grammar(o.grammar);
  const Pairs all = o.small ? grammar_pairs(grammar, 60'000, o.seed, /*words=*/100)
                            : grammar_pairs(grammar, 20'000, o.seed);
  const size_t held_out = o.small ? 150 : 1000;
  const Pairs test = all.part(0, held_out);
  const TemporaryFolder work;
  const CorpusFiles corpus = as_files(all.part(held_out, all.size()), work.path());

  Study study;
  StudyTable table{
      .name = "scores",
      .title = std::to_string(all.size() - held_out) + " sentences of the grammar to learn from, " +
               std::to_string(held_out) + " to test on",
      .columns = {"score", "BLEU", "AER", "words_a_second", "MB_a_step", "parameters"}};
  std::vector<std::string> names{"none"};
  for (const ScoreRow& row : score_table()) names.emplace_back(row.name);
  for (const std::string& name : names) {
    Lesson lesson = small_lesson(o.small ? 48 : 96, o.small ? 250 : 1000, o.seed);
    lesson.model.score = name;
    if (!o.small)
      lesson.training.rate = 4e-3, lesson.training.batch_tokens = 1024,
      lesson.training.warmup = 200;
    const ModelFolder model = train_translator(corpus, lesson, work.path() / name, name, o);
    const Cost cost = cost_of(model, corpus);
    StudyTable::Entry error = "-";
    if (name != "none") error = alignment_error(model, test);
    table.rows.push_back({name, bleu(model, test), error, cost.words_a_second, cost.bytes / 1e6,
                          double(model.params.count())});
  }
  const std::vector<double> quality = table.numbers("BLEU"), errors = table.numbers("AER");
  BarChart chart{.title = "Every score on the grammar's corpus",
                 .y_label = "BLEU, and 100 - AER",
                 .groups = names,
                 .series = {{"BLEU", quality}, {"alignment (100 - AER)", {}}}};
  double reads = 100, looks_away = 100, worst = 100;  // the best errors, the least quality
  for (size_t i = 0; i < names.size(); ++i) {
    chart.series[1].values.push_back(100 - errors[i]);
    if (i == 0) continue;
    (blind(names[i]) ? looks_away : reads) =
        std::min(blind(names[i]) ? looks_away : reads, errors[i]);
    worst = std::min(worst, quality[i]);
  }
  BarChart speed{.title = "What a score costs in training",
                 .y_label = "thousand words a second",
                 .groups = names,
                 .series = {{"", table.numbers("words_a_second")}}};
  for (double& value : speed.series[0].values) value /= 1000;
  study.claims = {
      {"every score does better than none", worst > quality[0]},
      {"the best score that compares what stands there aligns better than the best that knows "
       "positions alone",
       reads < looks_away}};
  study.pictures = {{"scores", draw_svg(chart)}, {"scores-speed", draw_svg(speed)}};
  study.tables.push_back(std::move(table));
  return study;
}

}  // namespace heed
