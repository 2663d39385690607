// What the commands that run a translator share: its flags, and how a translation is printed.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "apps/inference.h"
#include "heed/alignment/aligner.h"
#include "heed/translation/translator.h"

namespace heed::apps {

// How the model's makers search with it, where the command's flags do not say otherwise.
void take_search_defaults(TranslateOptions& options, const CLI::App& command,
                          const ModelFolder& model);

struct TranslatorFlags {
  std::string folder, alignment;  // "", "pharaoh" or "soft"
  TranslateOptions translate;
  bool json = false, scores = false;
  Inference machine;
  const CLI::App* command = nullptr;  // which has these flags
};

void add_translator_flags(CLI::App& command, const std::shared_ptr<TranslatorFlags>& flags);
// --extract and --threshold: how links are made of weights.
void add_extract_flags(CLI::App& command, ExtractOptions& extract);
// A threshold that was given is an aligner's, too.
void take_threshold(AlignerOptions& options, const ExtractOptions& extract);
// Throws what is told as a mistake in the arguments; then uses the machine that is wanted.
void prepare(const TranslatorFlags& flags);

// "0.91,0.05,... 0.1,...": for each target piece, and the end, the weights on all source pieces and
// the end.
std::string soft(const std::vector<std::vector<float>>& weights);

nlohmann::ordered_json to_json(const ModelFolder& model, const Translation& t,
                               const ExtractOptions& extract);

// Says on stderr which lines were too long; `first` stands before the first of them.
std::string told_of_cuts(const std::vector<Translation>& found, int64_t first, int64_t most);

}  // namespace heed::apps
