#include "heed/training/run_corpora.h"

#include <algorithm>
#include <cstring>

#include "heed/base/check.h"
#include "heed/data/text.h"
#include "heed/metrics/metrics.h"
#include "heed/training/loss.h"

namespace heed {
namespace {

// What `corpus` is of: files of its own, or what is held out.
ValidSet read_valid(Corpus& corpus) {
  ValidSet valid;
  const std::shared_ptr<const HeldOut>& held_out = corpus.options().held_out;
  PairReader reader = corpus.index().at(0);
  for (int64_t line = held_out ? held_out->first() : 1; line <= corpus.lines();
       line += held_out ? held_out->each() : 1) {
    corpus.index().go(reader, line - 1);
    const std::optional<TextPair> pair = reader.next();
    if (!pair) break;
    if (encoding_trouble(pair->source) || encoding_trouble(pair->target)) continue;
    valid.sources.push_back(pair->source);
    valid.targets.push_back(pair->target);
  }
  valid.batches =
      batches_once(corpus, {.tokens = std::max<int64_t>(4096, corpus.options().max_length + 1)});
  return valid;
}

double tokens_of(const std::vector<Batch>& batches) {
  double tokens = 0;
  for (const Batch& batch : batches) tokens += double(batch.target_tokens());
  return tokens;
}

}  // namespace

RunCorpora read_corpora(const std::shared_ptr<const CorpusIndex>& files,
                        const std::shared_ptr<const CorpusIndex>& valid,
                        const TokenizerPair& tokenizers, CorpusOptions cleaning,
                        const TrainConfig& training) {
  const CorpusOptions plain = cleaning;
  cleaning.sampling = training.sampling, cleaning.seed = training.seed;
  const auto corpus = std::make_shared<Corpus>(files, tokenizers, cleaning);
  RunCorpora out{.corpus = corpus, .found = corpus->look()};
  out.doubts = doubts_of(*corpus, out.found);
  const bool own = valid != nullptr;
  if (!own && !cleaning.held_out) return out;
  CorpusOptions options = plain;
  if (own)
    options.held_out = nullptr;
  else
    options.part = CorpusOptions::Part::held_out;
  out.valid_corpus =
      std::make_shared<Corpus>(own ? valid : files->without_links(), tokenizers, options);
  out.valid = read_valid(*out.valid_corpus);
  if (!own) return out;
  // The wrong way round, all its words are unknown: that is no doubt of its own.
  std::vector<CorpusDoubt> more = swapped_sides(*corpus, *out.valid_corpus);
  if (more.empty()) more = doubts_of(*out.valid_corpus, out.valid_corpus->report());
  out.doubts.insert(out.doubts.end(), more.begin(), more.end());
  more = known_pairs(*corpus, *out.valid_corpus);
  out.doubts.insert(out.doubts.end(), more.begin(), more.end());
  return out;
}

// A token that is searched for costs as much as some that are learnt from: on a GPU, which is far
// from busy with one token a sentence, as much as many.
double validation_cost(const ValidSet& valid, Device device) {
  return tokens_of(valid.batches) * (device == Device::cuda ? 100 : 3);
}

namespace {

// Nothing where it is not wanted any more.
std::optional<double> loss_while(const Model& model, const std::vector<Batch>& batches,
                                 Ranks& ranks, const std::function<bool()>& wanted) {
  const auto n = static_cast<size_t>(ranks.count()), own = static_cast<size_t>(ranks.rank());
  std::string mine;  // of every n-th
  for (size_t i = own; i < batches.size(); i += n) {
    if (wanted && !wanted()) return std::nullopt;
    const double loss = negative_log_likelihood(model, batches[i]);
    mine.append(reinterpret_cast<const char*>(&loss), sizeof loss);
  }
  const std::vector<std::string> all = ranks.gather("the validation's loss", mine);
  double sum = 0, loss = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    std::memcpy(&loss, all[i % n].data() + i / n * sizeof loss, sizeof loss);
    sum += loss;
  }
  return sum / std::max(tokens_of(batches), 1.0);
}

}  // namespace

double loss_of(const Model& model, const std::vector<Batch>& batches, Ranks& ranks) {
  return *loss_while(model, batches, ranks, {});
}

std::optional<Validation> validate(const Translator& translator, const ValidSet& valid,
                                   Ranks& ranks, const ValidateOptions& options) {
  const std::optional<double> loss =
      loss_while(*translator.model().model, valid.batches, ranks, options.wanted);
  if (!loss) return std::nullopt;
  // Every rank translates some of them.
  const auto n = static_cast<size_t>(ranks.count()), own = static_cast<size_t>(ranks.rank());
  std::vector<std::string> sources, mine, found;
  for (size_t i = own; i < valid.sources.size(); i += n) sources.push_back(valid.sources[i]);
  TranslateOptions translate{.search = {.beam = 1}};
  translate.progress = options.progress;
  bool given_up = false;
  if (options.wanted)
    translate.wanted = [&] { return given_up ? false : !(given_up = !options.wanted()); };
  try {
    for (const Translation& t : translator.translate(sources, translate))
      mine.push_back(t.best().text);
  } catch (const Error&) {
    if (given_up) return std::nullopt;
    throw;
  }
  const auto all = ranks.gather("the validation's translations", mine);
  for (size_t i = 0; i < valid.sources.size(); ++i) found.push_back(all[i % n][i / n]);
  const auto metric = make_bleu({.tokenizer = options.tokenize});
  return Validation{
      .loss = *loss,
      .bleu = metric->score(sum_statistics(statistics(*metric, found, {valid.targets})))};
}

}  // namespace heed
