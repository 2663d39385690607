// Corpora made in memory, and translators trained on them: for studies that compare models.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/studies/grammar.h"
#include "heed/studies/study.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"

namespace heed {

// A folder of its own, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Pairs {
  std::vector<std::string> source, target;
  std::vector<std::string> links = {};  // Pharaoh's form; empty: not known

  size_t size() const { return source.size(); }
  void add(const std::string& from, const std::string& to, const std::string& linked = "");
  // Pairs [begin, end).
  Pairs part(size_t begin, size_t end) const;
};

// Random letters, to be copied: a task whose length can be turned up.
struct CopyTask {
  uint32_t letters = 20, shortest = 2, longest = 20;
};
Pairs copies(const CopyTask& task, size_t count, Random& random);

// Sentences of the grammar, no two alike, with their true alignment; with `words` above 0 only
// those made of that many of its most frequent English words.
Pairs grammar_pairs(const Grammar& grammar, int64_t count, uint64_t seed, size_t words = 0);

struct Lesson {
  ModelConfig model;
  TrainConfig training;
  TokenizerOptions tokens = {.kind = "words"};
};
// What a run of small models trains by: no dropout, no smoothing, no average.
Lesson small_lesson(int64_t size, int64_t steps, uint64_t seed);

// Trains to the end, tells of it under this name, and throws Error if it is to stop.
void train(Trainer& trainer, const TrainConfig& config, const std::string& name,
           const StudyOptions& options);
// Trains a new translator in `folder`.
ModelFolder train_translator(const CorpusFiles& corpus, const Lesson& lesson,
                             const std::filesystem::path& folder, const std::string& name,
                             const StudyOptions& options);
// The pairs as files in `folder`.
CorpusFiles as_files(const Pairs& pairs, const std::filesystem::path& folder);

// BLEU of greedy translations, 0 to 100; `tokenizer` as metrics know it ("none": words are what
// stands between spaces).
double bleu(const ModelFolder& model, const Pairs& test, const std::string& tokenizer = "none");
// AER, 0 to 100, of the weights that would produce the true targets.
double alignment_error(const ModelFolder& model, const Pairs& test);

}  // namespace heed
