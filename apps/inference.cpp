#include "apps/inference.h"

namespace heed::apps {

void add_inference_flags(CLI::App& app, Inference& inference) {
  add_machine_flags(app, inference);
  app.add_option("--compute", inference.compute,
                 "f32, bf16 (half the memory; fast with AVX-512 BF16 and on a GPU), int8 (faster, "
                 "a quarter of "
                 "the memory, hardly worse; on a CPU), or auto: as the model's folder has it");
}

void add_shortlist_flag(CLI::App& app, Inference& inference) {
  app.add_option("--shortlist", inference.shortlist,
                 "which pieces translations may have: of a file, Marian's or a lexicon ('align "
                 "--keep-case --lexicon'), or none: all pieces (default: as the model's folder has "
                 "it, 'heed shortlist')")
      ->default_str("");
}

LoadedModel::Options load_options(const Inference& inference) {
  return {.device = current_arena().device(),
          .index = Context::current().index(),
          .threads = inference.threads,
          .compute = as_usage([&] { return compute_named(inference.compute); }),
          .shortlist = inference.shortlist};
}

std::shared_ptr<const LoadedModel> opened(const std::string& folder, const Inference& inference) {
  return LoadedModel::open(folder, load_options(inference));
}

}  // namespace heed::apps
