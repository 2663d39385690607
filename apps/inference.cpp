#include "apps/inference.h"

namespace heed::apps {

void add_inference_flags(CLI::App& app, Inference& inference) {
  add_machine_flags(app, inference);
  app.add_option("--compute", inference.compute,
                 "f32, int8 (faster, a quarter of the memory, hardly worse; on a CPU), or auto: as "
                 "the model's folder has it");
}

std::shared_ptr<const LoadedModel> opened(const std::string& folder, const Inference& inference) {
  LoadedModel::Options options;
  options.compute = as_usage([&] { return compute_named(inference.compute); });
  return LoadedModel::open(folder, options);
}

}  // namespace heed::apps
