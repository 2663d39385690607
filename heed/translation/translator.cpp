#include "heed/translation/translator.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/data/alignment.h"

namespace heed {
namespace {

// Sentences with their end, padded.
Source source_of(const std::vector<const Sentence*>& rows, const SpecialIds& special) {
  size_t longest = 0;
  for (const Sentence* s : rows) longest = std::max(longest, s->ids.size() + 1);
  Source out;
  std::vector<Id> all;
  for (const Sentence* s : rows) {
    all.insert(all.end(), s->ids.begin(), s->ids.end());
    all.push_back(special.end);
    all.insert(all.end(), longest - s->ids.size() - 1, special.pad);
    out.lengths.push_back(static_cast<Id>(s->ids.size() + 1));
  }
  out.ids = ids(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)});
  return out;
}

Sentence encoded(const Tokenizer& tokenizer, const std::string& line, int64_t number) {
  require(is_utf8(line), "line ", number, ": not UTF-8");
  return tokenizer.encode(line);
}

bool shorten(Sentence& s, int64_t most) {
  if (static_cast<int64_t>(s.ids.size()) <= most) return false;
  s.ids.resize(static_cast<size_t>(most));
  s.word.resize(static_cast<size_t>(most));
  return true;
}

// Calls body(numbers of lines) for batches of lines that are not empty, long ones first: lines of
// similar length waste little, and memory is largest at the beginning.
template <class Body>
void by_length(const std::vector<Translation>& all, int64_t batch, Body body) {
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].source.ids.empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return all[a].source.ids.size() > all[b].source.ids.size();
  });
  for (size_t at = 0; at < order.size(); at += static_cast<size_t>(batch))
    body(std::vector<size_t>(order.begin() + static_cast<std::ptrdiff_t>(at),
                             order.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                 order.size(), at + static_cast<size_t>(batch)))));
}

Translation::Candidate candidate(const Tokenizer& tokenizer, Hypothesis h) {
  Translation::Candidate c{.target = tokenizer.decode(h.ids),
                           .text = {},
                           .log_probability = h.log_probability,
                           .score = h.score,
                           .weights = std::move(h.weights)};
  c.text = c.target.text;
  return c;
}

}  // namespace

Links word_alignment(const Sentence& source, const Sentence& target,
                     const std::vector<std::vector<float>>& weights) {
  Links links;
  for (size_t t = 0; t < target.ids.size() && t < weights.size(); ++t) {
    const auto& row = weights[t];
    const auto most = std::max_element(row.begin(), row.end()) - row.begin();
    // The source's end stands for no word.
    if (most < static_cast<std::ptrdiff_t>(source.ids.size()))
      links.push_back({static_cast<int32_t>(most), static_cast<int32_t>(t)});
  }
  std::sort(links.begin(), links.end());
  return to_words(links, source.word, target.word);
}

std::vector<Weights> all_weights(const ModelFolder& model, const Translation& t) {
  const NoTape off;
  std::vector<Id> out = t.best().target.ids;
  out.insert(out.begin(), model.tokenizers.target->special().begin);
  const int64_t T = static_cast<int64_t>(out.size());
  return model.model
      ->forward(source_of({&t.source}, model.tokenizers.source->special()), ids(out, {1, T}),
                /*want_weights=*/true)
      .weights;
}

Translator::Translator(const ModelFolder& folder)
    : model_(&folder), decoder_(std::make_unique<Decoder>(*folder.model)) {}

Translator::Translator(const std::filesystem::path& folder)
    : own_(std::make_unique<ModelFolder>(open_model(folder))),
      model_(own_.get()),
      decoder_(std::make_unique<Decoder>(*model_->model)) {
  require(!is_language_model(model_->config), folder.string(),
          ": a language model, not a translator; see 'heed lm'");
}

SearchOptions Translator::of_model(SearchOptions o) const {
  const SpecialIds special = model_->tokenizers.target->special();
  // A translation may not be longer than the model's positions either.
  const std::optional<int64_t> most = longest_sentence(model_->config);
  if (most && (o.max_length == 0 || o.max_length > *most)) o.max_length = *most;
  if (!o.layer && !o.head) o.layer = model_->alignment.layer, o.head = model_->alignment.head;
  o.begin = special.begin, o.end = special.end, o.pad = special.pad, o.unknown = special.unknown;
  return o;
}

int64_t Translator::longest(const TranslateOptions& o) const {
  return std::min(o.max_length, longest_sentence(model_->config).value_or(o.max_length));
}

std::vector<Translation> Translator::translate(const std::vector<std::string>& lines,
                                               const TranslateOptions& o) const {
  require(o.batch > 0, "translate: batches want at least one sentence, given ", o.batch);
  const TokenizerPair& tokenizers = model_->tokenizers;
  std::vector<Translation> out(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    out[i].source = encoded(*tokenizers.source, lines[i], o.first_line + static_cast<int64_t>(i));
    out[i].cut = shorten(out[i].source, longest(o));
    if (out[i].source.ids.empty()) out[i].candidates.emplace_back();
  }
  int64_t done = 0;
  by_length(out, o.batch, [&](const std::vector<size_t>& numbers) {
    SearchOptions search_options = of_model(o.search);
    search_options.numbers.clear(), search_options.prefixes.clear();
    std::vector<const Sentence*> rows;
    for (const size_t i : numbers) {
      rows.push_back(&out[i].source);
      search_options.numbers.push_back(o.first_line + static_cast<int64_t>(i));
      if (!o.search.prefixes.empty()) search_options.prefixes.push_back(o.search.prefixes.at(i));
    }
    if (o.want_tree)
      search_options.record = [&](int64_t b, std::vector<SearchNode> tree) {
        out[numbers[static_cast<size_t>(b)]].tree = std::move(tree);
      };
    auto found = search(*decoder_, source_of(rows, tokenizers.source->special()), search_options);
    for (size_t b = 0; b < numbers.size(); ++b) {
      std::vector<Translation::Candidate>& all = out[numbers[b]].candidates;
      for (Hypothesis& h : found[b]) all.push_back(candidate(*tokenizers.target, std::move(h)));
      if (!all.empty()) continue;
      // None is possible, such as behind a prefix of probability 0.
      Translation::Candidate& none = all.emplace_back();
      none.log_probability = none.score = -std::numeric_limits<double>::infinity();
    }
    done += static_cast<int64_t>(numbers.size());
    if (o.progress) o.progress(done);
  });
  return out;
}

std::vector<Translation> Translator::score(const std::vector<std::string>& sources,
                                           const std::vector<std::string>& targets,
                                           const TranslateOptions& o) const {
  require(o.batch > 0, "score: batches want at least one sentence, given ", o.batch);
  require(sources.size() == targets.size(), "score: ", sources.size(), " sources, ", targets.size(),
          " targets");
  const TokenizerPair& tokenizers = model_->tokenizers;
  std::vector<Translation> out(sources.size());
  std::vector<Sentence> given;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t line = o.first_line + static_cast<int64_t>(i);
    out[i].source = encoded(*tokenizers.source, sources[i], line);
    given.push_back(encoded(*tokenizers.target, targets[i], line));
    out[i].cut = shorten(out[i].source, longest(o));
    out[i].cut = shorten(given[i], longest(o)) || out[i].cut;
    if (!out[i].source.ids.empty()) continue;
    // As translate() has it: an empty line's translation is an empty line, and nothing else.
    const double surely = given[i].ids.empty() ? 0 : -std::numeric_limits<double>::infinity();
    out[i].candidates.push_back({.target = given[i],
                                 .text = given[i].text,
                                 .log_probability = surely,
                                 .score = surely,
                                 .weights = {}});
  }
  int64_t done = 0;
  by_length(out, o.batch, [&](const std::vector<size_t>& numbers) {
    std::vector<const Sentence*> rows;
    std::vector<std::vector<Id>> target_ids;
    for (const size_t i : numbers) {
      rows.push_back(&out[i].source);
      target_ids.push_back(given[i].ids);
    }
    auto found = score_targets(*model_->model, source_of(rows, tokenizers.source->special()),
                               target_ids, of_model(o.search));
    for (size_t b = 0; b < numbers.size(); ++b) {
      Translation::Candidate c{.target = given[numbers[b]],
                               .text = given[numbers[b]].text,
                               .log_probability = found[b].log_probability,
                               .score = found[b].score,
                               .weights = std::move(found[b].weights)};
      out[numbers[b]].candidates.push_back(std::move(c));
    }
    done += static_cast<int64_t>(numbers.size());
    if (o.progress) o.progress(done);
  });
  return out;
}

}  // namespace heed
