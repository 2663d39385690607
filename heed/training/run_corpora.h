// The corpora of a translator's run: what is learnt from, what is validated on, what speaks against
// them; and a validation itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/data/batch.h"
#include "heed/data/corpus.h"
#include "heed/data/corpus_check.h"
#include "heed/ranks/ranks.h"
#include "heed/training/trainer.h"
#include "heed/translation/translator.h"

namespace heed {

// What is validated on, as ids for the loss and as text for BLEU.
struct ValidSet {
  std::vector<Batch> batches;
  std::vector<std::string> sources, targets;
};

struct RunCorpora {
  std::shared_ptr<Corpus> corpus;
  CleaningReport found;
  std::shared_ptr<Corpus> valid_corpus = {};  // null: there is none
  ValidSet valid = {};
  std::vector<CorpusDoubt> doubts = {};
};
// Reads them. `cleaning` is both corpora's, with what is held out, if anything is; `valid` is null
// where nothing is to be validated on but that.
RunCorpora read_corpora(const std::shared_ptr<const CorpusIndex>& files,
                        const std::shared_ptr<const CorpusIndex>& valid,
                        const TokenizerPair& tokenizers, CorpusOptions cleaning,
                        const TrainConfig& training);

// What a validation costs, as Trainer::Hooks has it.
double validation_cost(const ValidSet& valid, Device device);

// The mean loss of a token of these batches, over all ranks: each computes some, and they are added
// in order.
double loss_of(const Model& model, const std::vector<Batch>& batches, Ranks& ranks);

struct ValidateOptions {
  std::string tokenize = "13a";                     // BLEU's
  std::function<void(int64_t done)> progress = {};  // of translating
  // Asked all the time; of several ranks, none may. False: it is given up.
  std::function<bool()> wanted = {};
};
// Loss and BLEU of greedy search, over all ranks; nothing where it was given up.
std::optional<Validation> validate(const Translator& translator, const ValidSet& valid,
                                   Ranks& ranks, const ValidateOptions& options);

}  // namespace heed
