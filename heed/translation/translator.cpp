#include "heed/translation/translator.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/data/text.h"

namespace heed {
namespace {

// Sentences as the encoder reads them, padded.
Source source_of(const std::vector<const Sentence*>& rows, const SpecialIds& special) {
  size_t longest = 0;
  for (const Sentence* s : rows) longest = std::max(longest, framed(s->ids, special).size());
  Source out;
  std::vector<Id> all;
  for (const Sentence* s : rows) {
    const std::vector<Id> own = framed(s->ids, special);
    all.insert(all.end(), own.begin(), own.end());
    all.insert(all.end(), longest - own.size(), special.pad);
    out.lengths.push_back(static_cast<Id>(own.size()));
  }
  out.ids = ids(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)});
  return out;
}

// Weights on a source's pieces, then its end, whatever the encoder read: a begin is left out, and
// an end that it did not read weighs nothing.
void as_pieces_and_end(PieceWeights& weights, const SpecialIds& special) {
  for (std::vector<float>& row : weights) {
    if (special.source_begin && !row.empty()) row.erase(row.begin());
    if (!special.source_end) row.push_back(0);
  }
}

Sentence encoded(const Tokenizer& tokenizer, const std::string& line, int64_t number) {
  require(is_utf8(line), "line ", number, ": not UTF-8");
  // Spaces alone are no sentence, even to a tokenizer that keeps them.
  if (split_at_white_space(decode_utf8(line)).empty()) return {.text = line, .ids = {}, .word = {}};
  return tokenizer.encode(line);
}

// f(i) for each line: beside a GPU on all threads of the host, which have nothing else to do. Of
// what goes wrong the first line's is thrown.
template <class F>
void each_line(Device device, size_t count, const F& f) {
  if (device == Device::cpu) {
    for (size_t i = 0; i < count; ++i) f(i);
    return;
  }
  constexpr int64_t kTogether = 64;  // lines are short
  std::mutex telling;
  std::optional<std::pair<size_t, std::exception_ptr>> wrong;
  parallel_for(static_cast<int64_t>(count), kTogether, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); std::cmp_less(i, end); ++i) try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(telling);
        if (!wrong || i < wrong->first) wrong.emplace(i, std::current_exception());
      }
  });
  if (wrong) std::rethrow_exception(wrong->second);
}

bool shorten(Sentence& s, int64_t most) {
  if (static_cast<int64_t>(s.ids.size()) <= most) return false;
  s.ids.resize(static_cast<size_t>(most));
  s.word.resize(static_cast<size_t>(most));
  return true;
}

// The lines that are not empty, long ones first: lines of similar length waste little, and memory
// is largest at the beginning.
std::vector<size_t> by_length(const std::vector<Translation>& all) {
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].source.ids.empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return all[a].source.ids.size() > all[b].source.ids.size();
  });
  return order;
}

void require_batches(const char* who, const TranslateOptions& o) {
  require(!o.batch || *o.batch > 0, who, ": batches want at least one sentence, given ",
          o.batch.value_or(0));
  require(o.batch_tokens > 0, who, ": batches want at least one token, given ", o.batch_tokens);
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

// Writes the candidate anew, with the source's text where a piece is unknown.
void replace_unknown(const TokenizerPair& tokenizers, const Sentence& source,
                     Translation::Candidate& c) {
  const Tokenizer& target = *tokenizers.target;
  const bool spaced = target.kind() == "words";
  std::string text;
  std::vector<size_t> offsets;
  for (size_t i = 0; i < c.target.ids.size(); ++i) {
    if (spaced && i > 0) text += ' ';
    offsets.push_back(text.size());
    const Id id = c.target.ids[i];
    if (id != target.special().unknown) {
      text += target.decode({&id, 1}).text;
      continue;
    }
    const auto& row = c.weights.at(i);  // without the source's end, which has no text
    const auto end = row.begin() + static_cast<std::ptrdiff_t>(source.ids.size());
    const auto most = static_cast<size_t>(std::max_element(row.begin(), end) - row.begin());
    text += text_of_piece(*tokenizers.source, source, most);
  }
  c.target.word = words_at(text, offsets);
  c.target.text = c.text = text;
}

}  // namespace

Translator::Translator(std::shared_ptr<const LoadedModel> model) : model_(std::move(model)) {
  require(!is_language_model(this->model().config), this->model().path.string(),
          ": a language model, not a translator; see 'heed lm'");
}
Translator::Translator(const ModelFolder& folder) : Translator(LoadedModel::borrow(folder)) {}
Translator::Translator(const std::filesystem::path& folder)
    : Translator(LoadedModel::open(folder)) {}

std::vector<Weights> Translator::all_weights(const Translation& t) const {
  return read_again(t, true).cross;
}

Translator::Attentions Translator::attentions(const Translation& t) const {
  return read_again(t, WantWeights::and_self());
}

namespace {

// Heads of queries share those of keys and values, of which there may be fewer.
std::vector<Translator::HeadTerms> terms_of_heads(const AttentionTerms& all) {
  const ScoreTerms& s = all.score;
  const auto head_of = [](const Tensor& x, int64_t h) {
    return slice(slice(x, 0, 0, 1), 1, h, h + 1);
  };
  const int64_t H = s.q.size(1);
  std::vector<Translator::HeadTerms> out;
  for (int64_t h = 0; h < H; ++h) {
    const int64_t g = h * s.k.size(1) / H;
    Translator::HeadTerms head{.form = s.form == ScoreForm::additive  ? "additive"
                                       : s.form == ScoreForm::log_dot ? "log_dot"
                                                                      : "dot",
                               .size = s.q.size(3),
                               .value_size = all.values.size(3),
                               .scale = s.scale,
                               .q = head_of(s.q, h).values(),
                               .k = head_of(s.k, g).values(),
                               .v = {},
                               .bias = {},
                               .values = head_of(all.values, g).values()};
    if (s.v) head.v = slice(*s.v, 0, h, h + 1).values();
    if (s.bias) head.bias = head_of(*s.bias, h).values();
    out.push_back(std::move(head));
  }
  return out;
}

}  // namespace

Translator::Attentions Translator::read_again(const Translation& t,
                                              const WantWeights& wanted) const {
  std::vector<Id> out = t.best().target.ids;
  out.insert(out.begin(), model().tokenizers.target->special().begin);
  const int64_t T = static_cast<int64_t>(out.size());
  Attentions found;
  const auto all = {&found.cross, &found.encoder_self, &found.decoder_self};
  {
    const LoadedModel::Turn turn(*model_);
    const SpecialIds special = model().tokenizers.source->special();
    TeacherForced forced =
        model().model->forward(source_of({&t.source}, special), ids(out, {1, T}), wanted);
    found = {std::move(forced.weights), std::move(forced.encoder_self),
             std::move(forced.decoder_self)};
    // A source is its pieces and an end: a beginning is left out, an end that is not read has 0.
    const auto as_pieces = [&](Tensor& weights, int axis) {
      if (special.source_begin) weights = slice(weights, axis, 1, weights.size(axis));
      if (special.source_end) return;
      Shape end = weights.shape();
      end[axis] = 1;
      weights = concat({weights, zeros(end, weights.type())}, axis);
    };
    for (Weights& w : found.cross) as_pieces(w.values, 3);
    for (Weights& w : found.encoder_self) as_pieces(w.values, 2), as_pieces(w.values, 3);
    for (const AttentionTerms& layer : forced.terms) found.terms.push_back(terms_of_heads(layer));
    found.before = special.source_begin ? 1 : 0;
    for (std::vector<Weights>* layers : all)
      for (Weights& w : *layers) w.values = to(contiguous(w.values), Device::cpu);
  }
  for (std::vector<Weights>* layers : all)
    for (Weights& w : *layers) w.values = received(w.values);
  return found;
}

Links word_alignment(const ModelFolder& model, const Sentence& source, const Sentence& target,
                     const PieceWeights& weights, ExtractOptions options) {
  if (!options.threshold) options.threshold = model.alignment.threshold;
  return word_alignment({model.tokenizers, source, target, weights}, options);
}

void take_search_defaults(TranslateOptions& options, const ModelFolder& model,
                          std::set<std::string> given) {
  if (given.contains("max_ratio")) given.insert("max_extra");
  SearchOptions& s = options.search;
  model.search.fill(s, given);
  options.search_is_whole = true;
  if (!given.contains("beam") && !s.alternatives) s.beam = std::max(s.beam, s.best);
}

SearchOptions Translator::of_model(const TranslateOptions& options) const {
  const SpecialIds special = model().tokenizers.target->special();
  SearchOptions o = options.search;
  const SearchOptions plain;
  std::set<std::string> said{"beam", "normalize", "patience", "max_ratio"};
  if (o.min_length != plain.min_length) said.insert("min_length");
  if (o.allow_unknown != plain.allow_unknown) said.insert("allow_unknown");
  if (o.max_extra != plain.max_extra) said.insert("max_extra");
  if (o.max_length != plain.max_length) said.insert("max_length");
  if (o.ending != plain.ending) said.insert("ending");
  if (o.no_repeat != plain.no_repeat) said.insert("no_repeat");
  if (!options.search_is_whole) model().search.fill(o, said);
  // A translation may not be longer than the model's positions either.
  const std::optional<int64_t> most = longest_sentence(model().config);
  if (most && (o.max_length == 0 || o.max_length > *most)) {
    o.max_length = *most;
    o.min_length = std::min(o.min_length, *most);
  }
  if (!o.layer && !o.head) {
    const AlignmentHead& own = model().alignment;
    o.layer = own.layer, o.head = own.head, o.shift = own.shift, o.mean_of = own.mean_of;
    o.whole = own.whole;
  }
  if (model().tokenizers.target->writes_all()) o.allow_unknown = false;
  o.begin = special.begin, o.end = special.end, o.pad = special.pad, o.unknown = special.unknown;
  return o;
}

int64_t Translator::batch(const TranslateOptions& o) const {
  // A GPU is full with a thousand rows; those of a beam want memory for each.
  const int64_t of_gpu = o.search.beam == 1 ? 1024 : 256;
  return o.batch.value_or(model_->device() == Device::cuda ? of_gpu : 32);
}

int64_t Translator::longest(const TranslateOptions& o) const {
  return std::min(o.max_length, longest_sentence(model().config).value_or(o.max_length));
}

void Translator::check_replacing() const {
  const std::string_view kind = model().tokenizers.target->kind();
  require(kind == "words" || kind == "characters", model().path.string(), ": its target has '",
          kind, "' for pieces; unknown ones are replaced where they are words or characters");
  require(has_attention(model().config), model().path.string(),
          ": a model without attention; it cannot say what an unknown word stands for");
}

std::vector<Translation> Translator::translate(const std::vector<std::string>& lines,
                                               const TranslateOptions& o) const {
  require_batches("translate", o);
  if (o.replace_unknown) check_replacing();
  const TokenizerPair& tokenizers = model().tokenizers;
  std::vector<Translation> out(lines.size());
  each_line(model_->device(), lines.size(), [&](size_t i) {
    out[i].source = encoded(*tokenizers.source, lines[i], o.first_line + static_cast<int64_t>(i));
    out[i].cut = shorten(out[i].source, longest(o));
    if (out[i].source.ids.empty()) out[i].candidates.emplace_back();
  });
  require(o.search.prefixes.empty() || o.search.prefixes.size() == lines.size(),
          "translate: ", o.search.prefixes.size(), " prefixes for ", lines.size(), " lines");
  require(o.search.numbers.empty() || o.search.numbers.size() == lines.size(),
          "translate: ", o.search.numbers.size(), " numbers for ", lines.size(), " lines");
  require(o.search.shortlists.empty() || o.search.shortlists.size() == lines.size(),
          "translate: ", o.search.shortlists.size(), " shortlists for ", lines.size(), " lines");
  SearchOptions search_options = of_model(o);
  if (o.end) search_options.end = *o.end;
  if (o.replace_unknown) search_options.want_weights = true;
  search_options.numbers.clear(), search_options.prefixes.clear();
  search_options.shortlists.clear();
  // A GPU computes all slots, idle ones too: few of them for few lines.
  int64_t slots = batch(o);
  if (!o.batch && model_->device() == Device::cuda)
    slots = std::ssize(lines) <= 8 ? 8 : std::ssize(lines) < slots ? 256 : slots;
  std::vector<size_t> numbers;  // of the requests
  std::vector<Engine::Request> requests;
  std::mutex telling;  // sentences grow on several threads
  for (const size_t i : by_length(out)) {
    numbers.push_back(i);
    Engine::Request& r = requests.emplace_back();
    r.source = framed(out[i].source.ids, tokenizers.source->special());
    r.options = search_options;
    r.number =
        o.search.numbers.empty() ? o.first_line + static_cast<int64_t>(i) : o.search.numbers[i];
    r.slots = slots, r.tokens = o.batch_tokens;
    if (!o.search.prefixes.empty()) r.prefix = o.search.prefixes.at(i);
    if (!o.search.shortlists.empty())
      r.shortlist = o.search.shortlists[i];
    else if (model().shortlist)
      r.shortlist = model().shortlist->of(r.source);
    if (!r.shortlist.empty()) {  // what must be sayable is; a prefix is checked when it is said
      std::ranges::copy_if(r.prefix, std::back_inserter(r.shortlist), [&](Id token) {
        return token >= 0 && token < tokenizers.target->size();
      });
      r.shortlist.push_back(search_options.end);
      std::ranges::sort(r.shortlist);
      r.shortlist.erase(std::ranges::unique(r.shortlist).begin(), r.shortlist.end());
    }
    r.wanted = o.wanted;
    if (o.partial)
      r.progress = [&, i](const SearchProgress& so_far) {
        const std::lock_guard lock(telling);
        o.partial(i, tokenizers.target->decode(so_far.likeliest).text, so_far.grown);
      };
  }
  int64_t done = 0;
  std::function<void(size_t)> told;  // nobody wakes to hear what he does not want to
  if (o.progress) told = [&](size_t) { o.progress(++done); };
  std::vector<Engine::Result> found = model_->engine().decode(std::move(requests), told);
  each_line(model_->device(), numbers.size(), [&](size_t at) {
    Translation& t = out[numbers[at]];
    t.tree = std::move(found[at].tree);
    for (Hypothesis& h : found[at].hypotheses) {
      as_pieces_and_end(h.weights, tokenizers.source->special());
      t.candidates.push_back(candidate(*tokenizers.target, std::move(h)));
      if (o.replace_unknown) replace_unknown(tokenizers, t.source, t.candidates.back());
    }
    if (!t.candidates.empty()) return;
    // None is possible, such as after a prefix of probability 0.
    Translation::Candidate& none = t.candidates.emplace_back();
    none.log_probability = none.score = -std::numeric_limits<double>::infinity();
  });
  return out;
}

std::vector<Translation> Translator::score(const std::vector<std::string>& sources,
                                           const std::vector<std::string>& targets,
                                           const TranslateOptions& o) const {
  require_batches("score", o);
  require(sources.size() == targets.size(), "score: ", sources.size(), " sources, ", targets.size(),
          " targets");
  const TokenizerPair& tokenizers = model().tokenizers;
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
  const std::vector<size_t> order = by_length(out);
  size_t done = 0;
  while (done < order.size()) {
    // As many as --batch and --batch-tokens let in, and one at least.
    size_t longest_side = 0, end = done;
    for (; end < order.size() && std::cmp_less(end - done, batch(o)); ++end) {
      const size_t i = order[end], side = std::max(out[i].source.ids.size(), given[i].ids.size());
      const size_t wider = std::max(longest_side, side + 1);
      if (end > done && std::cmp_greater((end - done + 1) * wider, o.batch_tokens)) break;
      longest_side = wider;
    }
    const auto numbers = std::span(order).subspan(done, end - done);
    std::vector<const Sentence*> rows;
    std::vector<std::vector<Id>> target_ids;
    for (const size_t i : numbers) {
      rows.push_back(&out[i].source);
      target_ids.push_back(given[i].ids);
    }
    done = end;
    auto found = [&] {
      const LoadedModel::Turn turn(*model_);
      return score_targets(*model().model, source_of(rows, tokenizers.source->special()),
                           target_ids, of_model(o));
    }();
    for (size_t b = 0; b < numbers.size(); ++b) {
      as_pieces_and_end(found[b].weights, tokenizers.source->special());
      Translation::Candidate c{.target = given[numbers[b]],
                               .text = given[numbers[b]].text,
                               .log_probability = found[b].log_probability,
                               .score = found[b].score,
                               .weights = std::move(found[b].weights)};
      out[numbers[b]].candidates.push_back(std::move(c));
    }
    if (o.progress) o.progress(static_cast<int64_t>(done));
  }
  return out;
}

}  // namespace heed
