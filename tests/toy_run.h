// Small models to train on a toy corpus.
#pragma once

#include "heed/training/trainer.h"
#include "tests/toy.h"

namespace heed {

inline ModelConfig toy_rnn() {
  ModelConfig c;
  c.size = 32, c.dropout = 0;
  return c;
}
inline ModelConfig toy_transformer() {
  ModelConfig c = toy_rnn();
  c.family = "transformer", c.score = "scaled_dot", c.heads = 2, c.inner = 64;
  return c;
}

// A model to train on a toy corpus, in a folder of its own.
struct ToyRun {
  Params params;
  std::unique_ptr<Model> model;
  std::shared_ptr<Corpus> corpus;
  TrainConfig config;
  std::filesystem::path folder;
  std::unique_ptr<Trainer> trainer;
};

inline ToyRun begin(std::shared_ptr<Corpus> corpus, const ModelConfig& model,
                    const TrainConfig& config, const std::filesystem::path& folder) {
  const TokenizerPair& t = corpus->tokenizers();
  Params params(config.seed);
  ToyRun run{params, make_model(params, model, {t.source->size(), t.target->size()}),
             corpus, config,
             folder, nullptr};
  run.trainer = std::make_unique<Trainer>(*run.model, params, corpus, config, folder);
  return run;
}

inline double loss_of(const ToyRun& run) {
  double sum = 0, words = 0;
  for (const Batch& b : batches_once(*run.corpus, {}))
    sum += negative_log_likelihood(*run.model, b), words += double(b.target_tokens());
  return sum / words;
}

}  // namespace heed
