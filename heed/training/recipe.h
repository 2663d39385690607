// What 'heed train' chooses where nothing is said: model, vocabulary and training follow from the
// corpus, the device and the time, by the rules of recipe.cpp (docs/decisions/recipe.md). The same
// corpus, device, number of threads and minutes always give the same choice: nothing is measured.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/data/corpus.h"
#include "heed/models/config.h"
#include "heed/tensor/device.h"
#include "heed/training/trainer.h"

namespace heed {

// What a recipe wants to know of a corpus.
struct CorpusFacts {
  int64_t pairs = 0;
  // Between white space; where a script has none, about as many as its characters make.
  int64_t source_words = 0, target_words = 0;
  // Of the characters of both sides, the share that the two have in common: the sum over characters
  // of the lesser of their frequencies. About 0.9 for two languages of one alphabet, 0.2 for two.
  double shared_characters = 0;
  // Of the side that has more of them, the share of characters of scripts without spaces.
  double unspaced_characters = 0;
};
// Lines that are not UTF-8 are passed over; of more than a million, so many here and there are
// read.
CorpusFacts corpus_facts(const CorpusIndex& index);

struct Budget {
  Device device = Device::cpu;
  int threads = 1;
  double minutes = 0;  // 0: as long as it gets better
  int64_t steps = 0;   // 0: as many as fit
  bool bf16 = false;   // a CPU with fast products of bf16, which may be used
};

// What is said of the vocabulary; the rest is chosen.
struct GivenVocabulary {
  std::string kind = {};  // of tokens, or empty
  int64_t size = 0;
  std::optional<bool> joint = {};
  bool from_file = false;  // it is there already
};

struct Recipe {
  std::string preset;  // the model is this one, with another dropout
  ModelConfig model;
  TrainConfig training;
  TokenizerOptions tokenizer;
  bool joint = false;
  std::string why;  // a line for people: what was chosen, and from what
};
// `family` is that of the model, if it is given; else a Transformer.
Recipe recipe_for(const CorpusFacts& facts, const Budget& budget, const std::string& family = "",
                  const GivenVocabulary& given = {});

// The family that the settings of a model ask for, if they do; `given`: which of its fields were.
std::string family_asked(const ModelConfig& config, const std::set<std::string>& given);
// Whether training drops anything: R-Drop compares two draws of it.
bool has_dropout(const ModelConfig& config);
// Whether an attention of its own is to learn the alignment: a Transformer has heads to spare, a
// recurrent model's one attention looks for words that are not known yet.
bool wants_aligner(const ModelConfig& config, const TrainConfig& training);
// Has the model weights that an alignment can teach?
bool can_be_guided(const ModelConfig& config);
// The weight of an alignment's loss, where none is named.
inline constexpr double kGuidance = 0.3;
// Where nothing says when a run ends, it ends by itself.
void end_by_itself(TrainConfig& training, bool validates);

// Where there are no files to validate on, one of so many lines is held out; 0: too few for it.
int64_t hold_out_of(int64_t pairs);

// The rules, a line each: what, and by what.
struct Rule {
  const char *what, *by;
};
std::vector<Rule> recipe_rules();

}  // namespace heed
