// What the commands that run a trained model share: the machine, and in what numbers it computes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/flags.h"
#include "heed/translation/loaded_model.h"

namespace heed::apps {

struct Inference : Machine {
  std::string compute = "auto", shortlist;
};
void add_inference_flags(CLI::App& app, Inference& inference);
// Of commands that search: --shortlist.
void add_shortlist_flag(CLI::App& app, Inference& inference);
// How models are loaded, on the device in use. Throws what is told as a mistake in the arguments.
LoadedModel::Options load_options(const Inference& inference);
// The model in a folder, on the device in use.
std::shared_ptr<const LoadedModel> opened(const std::string& folder, const Inference& inference);

}  // namespace heed::apps
