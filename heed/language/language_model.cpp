#include "heed/language/language_model.h"

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/data/text.h"

namespace heed {
namespace {

// Nothing is translated: a source of no words.
Source no_source(int64_t rows) {
  return {ids(std::vector<Id>(), {rows, 0}), std::vector<Id>(static_cast<size_t>(rows), 0)};
}

int64_t characters(std::string_view text) {
  return static_cast<int64_t>(split_characters(text).size());
}

int64_t words(std::string_view text) { return static_cast<int64_t>(split_words(text).size()); }

}  // namespace

double TextScore::perplexity_by_piece() const { return std::exp(nats_per_piece()); }
double TextScore::perplexity_by_word() const { return std::exp(-log_probability / double(words)); }

TextScore& TextScore::operator+=(const TextScore& o) {
  log_probability += o.log_probability, pieces += o.pieces, words += o.words;
  characters += o.characters, unknown += o.unknown;
  return *this;
}

LanguageModel::LanguageModel(std::shared_ptr<const LoadedModel> model) : model_(std::move(model)) {
  require(is_language_model(this->model().config), this->model().path.string(),
          ": a translator, not a language model; see 'heed translate'");
}
LanguageModel::LanguageModel(const std::filesystem::path& folder)
    : LanguageModel(LoadedModel::open(folder)) {}
LanguageModel::LanguageModel(const ModelFolder& folder)
    : LanguageModel(LoadedModel::borrow(folder)) {}

// ---- scoring

std::vector<double> LanguageModel::log_probabilities(const std::vector<Row>& rows) const {
  const LoadedModel::Turn turn(*model_);
  const SpecialIds special = tokenizer().special();
  size_t longest = 0;
  for (const Row& r : rows) longest = std::max(longest, r.out.size());
  std::vector<Id> in;
  for (const Row& r : rows) {
    in.push_back(special.begin);
    in.insert(in.end(), r.out.begin(), r.out.end() - 1);
    in.insert(in.end(), longest - r.out.size(), special.pad);
  }
  const int64_t B = static_cast<int64_t>(rows.size()), T = static_cast<int64_t>(longest);
  const TeacherForced forced = model().model->forward(no_source(B), ids(in, {B, T}), false);
  const Tensor all = to(contiguous(log_softmax(model().model->logits(forced.hidden))), Device::cpu);
  const float* at = all.data<float>();
  std::vector<double> out;
  for (const Row& r : rows) {
    double sum = 0;
    for (size_t t = r.from; t < r.out.size(); ++t)
      sum += double(at[static_cast<int64_t>(t) * all.size(2) + r.out[t]]);
    out.push_back(sum);
    at += T * all.size(2);
  }
  return out;
}

// Rows of the stream overlap, so that all but its first pieces have a past.
template <class Next>
TextScore LanguageModel::score_stream(Next next_line, const ScoreOptions& o,
                                      const Place& place) const {
  const size_t most = static_cast<size_t>(context());
  const size_t stride =
      o.stride > 0 ? static_cast<size_t>(o.stride) : std::max<size_t>(1, most / 2);
  require(stride <= most, "score: a stride of ", stride, " is more than the context of ", most);
  TextScore score;
  std::vector<Id> waiting;  // the past that the next row has, and what is not scored yet
  size_t past = 0;
  std::vector<Row> rows;
  const auto run = [&] {
    if (rows.empty()) return;
    for (const double p : log_probabilities(rows)) score.log_probability += p;
    rows.clear();
    if (o.progress) o.progress(score);
  };
  const auto cut = [&](bool all) {
    while (true) {
      const size_t end = std::min(waiting.size(), past == 0 ? most : past + stride);
      if (end <= past || (!all && waiting.size() < (past == 0 ? most : past + stride))) return;
      rows.push_back({{waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(end)}, past});
      score.pieces += static_cast<int64_t>(end - past);
      const size_t keep = std::min(end, most - stride);
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(end - keep));
      past = keep;
      if (rows.size() == static_cast<size_t>(o.batch)) run();
      if (keep == 0 && waiting.empty()) return;
    }
  };
  for (int64_t number = place.line; std::optional<std::string> given = next_line(); ++number) {
    const std::string line = as_text(std::move(*given), place.at(number), o.bad);
    const Sentence s = tokenizer().encode(line);
    waiting.insert(waiting.end(), s.ids.begin(), s.ids.end());
    score.unknown += std::ranges::count(s.ids, tokenizer().special().unknown);
    if (const auto newline = tokenizer().newline()) waiting.push_back(*newline);
    score.words += words(line), score.characters += characters(line) + 1;
    if (waiting.size() > 64 * most) cut(false);
  }
  cut(true);
  run();
  return score;
}

TextScore LanguageModel::score(const TextPart& part, const ScoreOptions& o) const {
  require(o.batch > 0, "score: batches want at least one row, given ", o.batch);
  const TextStream lines = texts(part);
  TextScore score;
  Place place{.before = name_of_input(part.path) + ": ", .line = part.first + 1};
  if (of_lines()) {
    constexpr size_t kChunk = 2000;
    std::vector<std::string> chunk;
    const auto run = [&] {
      for (const TextScore& s : score_lines(chunk, o, place)) score += s;
      place.line += std::ssize(chunk);
      chunk.clear();
      if (o.progress) o.progress(score);
    };
    while (std::optional<std::string> line = lines()) {
      chunk.push_back(std::move(*line));
      if (chunk.size() == kChunk) run();
    }
    run();
  } else {
    score = score_stream(lines, o, place);
  }
  require(score.pieces > 0, name_of_input(part.path), ": has no text");
  return score;
}

TextScore LanguageModel::score(const std::string& text, const ScoreOptions& o) const {
  require(o.batch > 0, "score: batches want at least one row, given ", o.batch);
  std::vector<std::string> lines;
  for (const std::string_view line : split_fields(text, '\n')) lines.emplace_back(line);
  if (lines.back().empty()) lines.pop_back();
  require(!lines.empty(), "score: there is no text");
  if (!of_lines()) {
    size_t at = 0;
    return score_stream(
        [&]() -> std::optional<std::string> {
          if (at == lines.size()) return std::nullopt;
          return lines[at++];
        },
        o, {});
  }
  TextScore all;
  for (const TextScore& s : score_lines(lines, o)) all += s;
  return all;
}

std::vector<TextScore> LanguageModel::score_lines(const std::vector<std::string>& lines,
                                                  const ScoreOptions& o) const {
  return score_lines(lines, o, {});
}

std::vector<TextScore> LanguageModel::score_lines(const std::vector<std::string>& lines,
                                                  const ScoreOptions& o, const Place& place) const {
  require(o.batch > 0, "score: batches want at least one row, given ", o.batch);
  require(of_lines(),
          "score: a model of a stream does not know where lines end; score whole texts");
  std::vector<TextScore> out(lines.size());
  std::vector<Row> rows(lines.size());
  std::vector<size_t> order(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = place.at(place.line + static_cast<int64_t>(i));
    const std::string line = as_text(lines[i], where, o.bad);
    rows[i].out = tokenizer().encode(line).ids;
    require(static_cast<int64_t>(rows[i].out.size()) <= context(), where, " has ",
            rows[i].out.size(), " pieces; the model's context holds ", context());
    const auto unknown = std::ranges::count(rows[i].out, tokenizer().special().unknown);
    rows[i].out.push_back(tokenizer().special().end);
    out[i] = {.pieces = static_cast<int64_t>(rows[i].out.size()),
              .words = words(line) + 1,
              .characters = characters(line) + 1,
              .unknown = unknown};
    order[i] = i;
  }
  // Lines of similar length waste little.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].out.size() > rows[b].out.size(); });
  for (size_t at = 0; at < order.size(); at += static_cast<size_t>(o.batch)) {
    const size_t end = std::min(order.size(), at + static_cast<size_t>(o.batch));
    std::vector<Row> some;
    for (size_t i = at; i < end; ++i) some.push_back(rows[order[i]]);
    const std::vector<double> p = log_probabilities(some);
    for (size_t i = at; i < end; ++i) out[order[i]].log_probability = p[i - at];
  }
  return out;
}

ReadText LanguageModel::read(const std::string& text, bool want_weights, int64_t line) const {
  require(is_utf8(text), "line ", line, ": not UTF-8");
  const SpecialIds special = tokenizer().special();
  ReadText r{.in = {special.begin}, .out = tokenizer().encode(text).ids, .log_probability = {}};
  require(!r.out.empty(), "line ", line, ": there is no text");
  require(static_cast<int64_t>(r.out.size()) <= context(), "line ", line, " has ", r.out.size(),
          " pieces; the model's context holds ", context());
  if (of_lines()) r.out.push_back(special.end);
  r.in.insert(r.in.end(), r.out.begin(), r.out.end() - 1);
  const int64_t T = static_cast<int64_t>(r.in.size());
  {
    const LoadedModel::Turn turn(*model_);
    TeacherForced forced = model().model->forward(no_source(1), ids(r.in, {1, T}), want_weights);
    const Tensor all =
        to(contiguous(log_softmax(model().model->logits(forced.hidden))), Device::cpu);
    for (int64_t t = 0; t < T; ++t)
      r.log_probability.push_back(
          double(all.data<float>()[t * all.size(2) + r.out[static_cast<size_t>(t)]]));
    r.weights = std::move(forced.weights);
    for (Weights& w : r.weights) w.values = to(contiguous(w.values), Device::cpu);
  }
  for (Weights& w : r.weights) w.values = received(w.values);
  return r;
}

// ---- generation

namespace {

struct Text {
  std::vector<Id> ids;
  int64_t number = 0;  // of the draw
  double log_probability = 0;
  bool over = false;
};

}  // namespace

std::vector<Generated> LanguageModel::generate(const std::string& prompt,
                                               const GenerateOptions& o) const {
  require(o.length > 0 && o.count > 0, "generate: wants a length and a count above 0, given ",
          o.length, " and ", o.count);
  require(o.search.sample || o.count <= o.search.beam, "generate: a beam of ", o.search.beam,
          " cannot give ", o.count, " texts; widen it, or sample");
  require(is_utf8(prompt), "generate: the prompt is not UTF-8");
  const std::vector<Id> begun = tokenizer().encode(prompt).ids;
  const int64_t most = model().config.positions - 1;  // begin has a position too
  std::vector<Text> all;
  for (int64_t i = 0; i < (o.search.sample ? o.count : 1); ++i)
    all.push_back({.ids = begun, .number = i});
  int64_t left = o.length;
  for (uint64_t round = 0; left > 0; ++round) {
    std::vector<Text> next, going;
    for (Text& t : all) (t.over ? next : going).push_back(std::move(t));
    all = std::move(next);
    if (going.empty()) break;
    // All that goes on is equally long. Where there is no room for more, the last half is the past.
    const auto size = static_cast<int64_t>(going[0].ids.size());
    const int64_t past = size < most ? size : most / 2, now = std::min(left, most - past);
    const SpecialIds special = tokenizer().special();
    SearchOptions s = o.search;
    s.begin = special.begin, s.end = special.end, s.pad = special.pad, s.unknown = special.unknown;
    s.max_ratio = 0, s.max_extra = past + now, s.max_length = 0;
    s.open_end = true;
    if (!of_lines()) s.min_length = past + now;  // a stream never ends
    s.best = !s.sample && round == 0 ? o.count : 1;
    s.want_weights = false, s.coverage = 0;
    s.seed = o.search.seed + round * 0x9E3779B97F4A7C15ull;
    s.prefixes.clear(), s.numbers.clear();
    std::vector<Row> pasts;
    std::vector<Engine::Request> requests;
    for (const Text& t : going) {
      pasts.push_back({.out = {t.ids.end() - past, t.ids.end()}});
      requests.push_back({.source = {},
                          .options = s,
                          .prefix = pasts.back().out,
                          .number = t.number,
                          .slots = std::max<int64_t>(32, std::ssize(going)),
                          .wanted = o.wanted});
    }
    const std::vector<double> known =
        past > 0 ? log_probabilities(pasts) : std::vector<double>(going.size());
    const std::vector<Engine::Result> found = model_->engine().decode(std::move(requests));
    for (size_t i = 0; i < going.size(); ++i)
      for (const Hypothesis& h : found[i].hypotheses) {
        Text t = going[i];
        t.over = static_cast<int64_t>(h.ids.size()) < past + now;
        t.ids.insert(t.ids.end(), h.ids.begin() + past, h.ids.end());
        t.log_probability += h.log_probability - known[i];
        all.push_back(std::move(t));
      }
    left -= now;
  }
  const auto mean = [&](const Text& t) {
    return t.log_probability / std::pow(double(t.ids.size() + 1), o.search.normalize);
  };
  std::stable_sort(all.begin(), all.end(), [&](const Text& a, const Text& b) {
    return o.search.sample ? a.number < b.number : mean(a) > mean(b);
  });
  std::vector<Generated> out;
  for (Text& t : all)
    out.push_back({tokenizer().decode(t.ids).text, std::move(t.ids), t.log_probability});
  return out;
}

}  // namespace heed
