#include "heed/translation/loaded_model.h"

namespace heed {

std::shared_ptr<const LoadedModel> LoadedModel::open(const std::filesystem::path& folder) {
  return open(folder, {});
}

std::shared_ptr<const LoadedModel> LoadedModel::open(const std::filesystem::path& folder,
                                                     const Options& o) {
  const std::shared_ptr<LoadedModel> made(new LoadedModel);
  made->device_ = o.device.value_or(current_arena().device());
  made->context_ = Context::make({.device = made->device_,
                                  .index = o.index,
                                  .threads = o.threads > 0 ? o.threads : threads()});
  const UseContext here(*made->context_);
  ModelFolder loaded = load_model(folder, o.compute);
  if (o.shortlist == "none")
    loaded.shortlist = nullptr;
  else if (!o.shortlist.empty())
    loaded.shortlist =
        std::make_shared<const Shortlist>(read_shortlist(o.shortlist, loaded.tokenizers));
  made->own_ = std::make_unique<const ModelFolder>(std::move(loaded));
  made->folder_ = made->own_.get();
  made->packed_ = std::make_shared<PackedWeights>();
  const bool several = made->device_ == Device::cpu && made->context_->pool().threads() > 1;
  // Weights that stay in a core's caches are read anew by each lane for nothing; of larger ones a
  // step is mostly that reading, which threads had better share.
  constexpr int64_t kInCaches = 4 << 20;  // numbers
  made->engine_ = std::make_unique<Engine>(
      *made->folder_->model,
      Engine::Options{
          .context = made->context_,
          .packed = made->packed_,
          .drives = several || o.own_thread ? Engine::Drives::own_threads : Engine::Drives::callers,
          .worth_a_lane = made->folder_->params.count() <= kInCaches ? 1 : 4});
  return made;
}

std::shared_ptr<const LoadedModel> LoadedModel::borrow(const ModelFolder& folder) {
  const std::shared_ptr<LoadedModel> made(new LoadedModel);
  made->folder_ = &folder;
  made->context_ = Context::current().shared_from_this();
  made->device_ = current_arena().device();
  made->engine_ = std::make_unique<Engine>(*folder.model);
  return made;
}

LoadedModel::Turn::Turn(const LoadedModel& model)
    : turn_(model.engine().turns()),
      context_(*model.context_),
      device_(model.device_),
      packed_(model.packed_ ? model.packed_ : std::make_shared<PackedWeights>()) {}

}  // namespace heed
