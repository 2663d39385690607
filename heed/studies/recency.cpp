// What an encoder's last state still knows of each source position: the size of its gradient with
// respect to the word vector there, for each cell, in one direction and in two. Without attention
// that state is all that a decoder gets.
#include <cmath>

#include "heed/models/recurrent.h"
#include "heed/ops/into.h"
#include "heed/studies/study.h"
#include "heed/studies/translators.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

struct Encoder {
  const char* name;
  Cell cell;
  bool bidirectional;
};
constexpr Encoder kEncoders[] = {
    {"rnn", Cell::rnn, false}, {"gru", Cell::gru, false}, {"lstm", Cell::lstm, false},
    {"rnn", Cell::rnn, true},  {"gru", Cell::gru, true},  {"lstm", Cell::lstm, true},
};

// sqrt of the mean over sentences and directions r of |d (r . last state) / d x_j|^2 for each
// position j: the Jacobian's norm, averaged. `params` are those of a recurrent translator.
std::vector<double> gradients(const Encoder& e, const Params& params, const std::vector<Id>& words,
                              int64_t length) {
  const Tensor& table = params.at("source.table").value;
  const int64_t size = table.size(1), batch = static_cast<int64_t>(words.size()) / length;
  // The same encoder once more, to be called alone.
  const Params copy(1);
  const RecurrentStack stack(
      copy / "encoder",
      {.cell = e.cell, .in = size, .size = size, .bidirectional = e.bidirectional});
  for (const Parameter& p : copy.all()) copy_into(params.at(p.name).value, p.value.detached());
  const Tensor x =
      as_parameter(embedding(table.detached(), ids(words, {batch, length})).detached());
  Tape tape;
  std::vector<Tensor> last;
  for (const CellState& state : stack(x).finals) last.push_back(state.h);
  const Tensor state = concat(last, 1);  // [B, n or 2 n]
  Random random(7);
  tape.backward(sum(state * normal(state.shape(), 1, random)));
  const std::vector<double> squares =
      sum(square(*x.parameter_state()->grad), -1).values();  // [B, T]
  std::vector<double> out(static_cast<size_t>(length));
  for (size_t i = 0; i < squares.size(); ++i) out[i % out.size()] += squares[i] / double(batch);
  for (double& value : out) value = std::sqrt(value);
  return out;
}

}  // namespace

Study recency_study(const StudyOptions& o) {
  const int64_t length = o.small ? 16 : 30;
  const CopyTask task{.letters = 20, .shortest = 2, .longest = static_cast<uint32_t>(length)};
  Random random(o.seed);
  const TemporaryFolder work;
  const CorpusFiles corpus = as_files(copies(task, o.small ? 4000 : 20000, random), work.path());
  std::vector<Id> words;  // as ids: any words do
  for (int64_t i = 0; i < 64 * length; ++i)
    words.push_back(static_cast<Id>(4 + random.below(task.letters)));

  Study study;
  StudyTable table{.name = "positions",
                   .title =
                       "Gradient of the last state by source position, at first and after "
                       "learning to copy without attention",
                   .columns = {"cell", "directions", "position", "at_first", "trained"}};
  LineChart first{.title = "Last state by source position, at first",
                  .x = {"source position"},
                  .y = {"gradient, last position = 1", Scale::log}};
  LineChart trained = first;
  trained.title = "Last state by source position, after training without attention";
  for (const Encoder& e : kEncoders) {
    const std::string name = std::string(e.name) + (e.bidirectional ? ", two directions" : "");
    Lesson lesson = small_lesson(48, o.small ? 200 : 1500, o.seed);
    lesson.model.cell = e.name, lesson.model.bidirectional = e.bidirectional;
    lesson.model.score = "none";
    lesson.training.rate = 2e-3;  // plain cells learn by small steps
    const std::filesystem::path folder = work.path() / (e.name + std::to_string(e.bidirectional));
    const ModelFolder model = train_translator(corpus, lesson, folder, name, o);
    const Params fresh(o.seed);
    make_model(
        fresh, lesson.model,
        {.source = model.tokenizers.source->size(), .target = model.tokenizers.target->size()});
    const std::vector<double> before = gradients(e, fresh, words, length);
    const std::vector<double> after = gradients(e, model.params, words, length);
    LineChart::Line a{name, {}, {}}, b{name, {}, {}};
    for (size_t j = 0; j < before.size(); ++j) {
      table.rows.push_back(
          {e.name, e.bidirectional ? 2.0 : 1.0, double(j + 1), before[j], after[j]});
      a.x.push_back(double(j + 1)), b.x.push_back(double(j + 1));
      a.y.push_back(before[j] / before.back()), b.y.push_back(after[j] / after.back());
    }
    first.lines.push_back(a), trained.lines.push_back(b);
  }
  for (const char* cell : {"rnn", "gru", "lstm"}) {
    const auto column = [&](const char* name, const char* directions) {
      return table.numbers(name, {{"cell", cell}, {"directions", directions}});
    };
    const std::vector<double> one = column("at_first", "1"), two = column("at_first", "2");
    const std::vector<double> later = column("trained", "1");
    const size_t middle = one.size() / 2;
    study.claims.push_back({std::string(cell) +
                                ", at first: the last position's gradient is more than twice the "
                                "first's, and larger than the middle's",
                            one.back() > 2 * one.front() && one.back() > one[middle]});
    study.claims.push_back({std::string(cell) +
                                ", two directions, at first: both ends have a larger gradient than "
                                "the middle",
                            std::min(two.front(), two.back()) > two[middle]});
    study.claims.push_back(
        {std::string(cell) + ", trained: the first position, whose letter is wanted first, has "
                             "gained on the last; the middle is still behind the last",
         later.front() / later.back() > one.front() / one.back() && later[middle] < later.back()});
  }
  study.pictures = {{"recency", draw_svg(first)}, {"recency-trained", draw_svg(trained)}};
  study.tables.push_back(std::move(table));
  return study;
}

}  // namespace heed
