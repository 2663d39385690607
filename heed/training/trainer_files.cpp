// What a trainer writes and reads: the best model, checkpoint/, and the way on from there.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/models/config_json.h"
#include "heed/ops/ops.h"
#include "heed/training/trainer.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

constexpr const char *kModel = "model.safetensors", *kCheckpoint = "checkpoint",
                     *kLast = "last.safetensors", *kSeconds = "seconds.json";
constexpr std::string_view kRecent = "step-", kRecentEnd = ".safetensors";

bool is_recent_name(std::string_view name) {
  if (!name.starts_with(kRecent) || !name.ends_with(kRecentEnd)) return false;
  name.remove_prefix(kRecent.size());
  name.remove_suffix(kRecentEnd.size());
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

nlohmann::json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json to_json(const LossWatch::State& s) {
  return {{"loss", s.loss},       {"tokens", s.tokens}, {"updates", s.updates},
          {"uniform", s.uniform}, {"far", s.far},       {"best", finite_or_null(s.best)}};
}

}  // namespace

bool is_checkpoint_name(const std::string& name) {
  return name == kLast || name == kSeconds || is_recent_name(name);
}

std::filesystem::path Trainer::checkpoint_path() const { return folder_ / kCheckpoint / kLast; }
std::filesystem::path Trainer::seconds_path() const { return folder_ / kCheckpoint / kSeconds; }
std::filesystem::path Trainer::recent_path(int64_t step) const {
  return folder_ / kCheckpoint /
         (std::string(kRecent) + std::to_string(step) + std::string(kRecentEnd));
}

void Trainer::save_model() const {
  if (ranks_->first()) save_parameters(params_, folder_ / kModel);
}

// The best of one set says nothing of another, nor BLEU of a loss; and of a model that is gone, the
// best is the next one.
void Trainer::keep_or_forget_best(const Hooks& hooks) {
  const std::string now = config_.stop_on + " of " + hooks.validation_set;
  const bool same = state_.best_of.value_or(now) == now;
  const bool gone = state_.step > 0 && !std::filesystem::exists(folder_ / kModel);
  state_.best_of = now;
  if (gone) state_.validated = 0;  // also where nothing is left to train
  if ((same && !gone) || !std::isfinite(state_.best)) return;
  const RunState none;
  state_.best = none.best, state_.best_loss = none.best_loss, state_.since_best = 0;
  if (hooks.best_begins_anew)
    hooks.best_begins_anew(
        gone ? "the best model so far is gone (" + (folder_ / kModel).string() + ")"
             : "validation is of other sentences than before, or by another measure");
}

// Files that the checkpoint does not name any more; those that it names must be there until the
// next is whole.
void Trainer::forget_old() const {
  if (config_.average_last == 0 || !ranks_->first()) return;
  std::error_code error;  // one that stays is only in the way
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / kCheckpoint, error)) {
    const std::string name = entry.path().filename().string();
    if (is_recent_name(name) && std::ranges::none_of(state_.recent, [&](int64_t s) {
          return entry.path() == recent_path(s);
        }))
      std::filesystem::remove(entry.path(), error);
  }
}

std::map<std::string, Trainer::Stored> Trainer::checkpoint() const {
  std::map<std::string, Stored> out;
  for (size_t i = 0; i < params_.all().size(); ++i) {
    const Parameter& p = params_.all()[i];
    const Shape& shape = p.value.shape();
    const int64_t begin = shards_.piece(i).first;
    out.emplace("parameter." + p.name, Stored{{p.value, shape}, i, false});
    out.emplace("adam_m." + p.name, Stored{{adam_.m()[i], shape, begin}, i, true});
    out.emplace("adam_v." + p.name, Stored{{adam_.v()[i], shape, begin}, i, true});
    if (!average_.empty() && config_.average_last == 0)
      out.emplace("average." + p.name, Stored{{average_[i], shape, begin}, i, true});
  }
  return out;
}

// All of it, at the first rank, in the host's memory; every rank calls it.
Tensor Trainer::collected(const std::string& name, const Stored& stored) const {
  const auto& [part, whole, begin] = stored.part;
  if (!stored.in_pieces || !shards_.shared()) return reshape(part.detached(), whole);
  const UseDevice host(Device::cpu);
  const Tensor mine = to(part, Device::cpu), all(whole, part.type());
  const auto n = static_cast<size_t>(ranks_->count());
  std::vector<Ranks::Sent> to(n);
  std::vector<Ranks::Received> from(n);
  to[0] = bytes_of(mine);
  for (size_t r = 0; ranks_->first() && r < n; ++r) {
    const Range piece = shards_.piece(stored.parameter, static_cast<int>(r));
    from[r] = bytes_of(all).subspan(static_cast<size_t>(piece.first) * size_of(all.type()),
                                    static_cast<size_t>(piece.count()) * size_of(all.type()));
  }
  ranks_->exchange("the checkpoint's " + name, to, from);
  return all;
}

void Trainer::save() const {
  const std::map<std::string, Stored> stored = checkpoint();
  // One tensor at a time: the first rank's memory need not hold what all ranks have.
  if (!ranks_->first()) {
    for (const auto& [name, one] : stored) collected(name, one);
    return;
  }
  std::map<std::string, TensorForm> forms;
  for (const auto& [name, one] : stored)
    forms.emplace(name, TensorForm{one.part.whole, one.part.part.type()});
  const nlohmann::json state{{"step", state_.step},
                             {"adam_steps", adam_.steps()},
                             {"epoch", state_.position.epoch},
                             {"window", state_.position.window},
                             {"batch", state_.position.batch},
                             {"best", finite_or_null(state_.best)},
                             {"best_loss", finite_or_null(state_.best_loss)},
                             {"best_of", *state_.best_of},
                             {"since_best", state_.since_best},
                             {"validated", state_.validated},
                             {"recent", state_.recent},
                             {"rate_factor", state_.rate_factor},
                             {"watch", to_json(watch_.state())},
                             {"plan",
                              {state_.plan.steps, state_.plan.warmup, state_.plan.validate_every,
                               state_.plan.since, state_.plan.minutes}},
                             {"examples", identity_}};
  save_tensors(forms, [&](const std::string& name) { return collected(name, stored.at(name)); },
               checkpoint_path(), {{"state", state.dump()}});
  write_file(seconds_path(),
             with_own_checksum(nlohmann::json{{"seconds", state_.seconds}}.dump(1)));
  forget_old();
}

// Of a checkpoint whose file was lost, the time counts from here.
void Trainer::read_seconds() {
  const std::optional<std::string> text = read_file(seconds_path());
  if (!text) return;
  const std::string file = seconds_path().string();
  try {
    check_own_checksum(*text, file);
  } catch (const Error& error) {
    fail(error.what(), "; without it the time begins at 0");
  }
  const auto json = parse_json<nlohmann::json>(*text);
  const bool whole = json.is_object() && json.contains("seconds") && json["seconds"].is_number();
  require(whole && json["seconds"] >= 0, file, ": has no seconds of a training");
  state_.seconds = json["seconds"];
}

bool Trainer::resume() {
  if (!std::filesystem::exists(checkpoint_path())) return false;
  TensorParts parts;
  for (const auto& [name, one] : checkpoint()) parts.emplace(name, one.part);
  const auto metadata = load_tensors(parts, checkpoint_path(), tensor_options_);
  params_.refresh_compute_copies();
  const auto found = metadata.find("state");
  const auto state = parse_json<nlohmann::json>(found == metadata.end() ? "" : found->second);
  require(state.is_object(), checkpoint_path().string(), ": no state of a training run in it");
  try {
    const bool knows = state.contains("examples");
    const std::string then = knows ? state.at("examples").get<std::string>() : identity_;
    require(then == identity_, checkpoint_path().string(),
            ": where a run is in its corpus means nothing in another: it was [", then,
            "], this is [", identity_, "]; give the corpus of before, or train another model");
    const auto whole = [&](const nlohmann::json& value) {
      require(value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() < 0x1p53,
              checkpoint_path().string(), ": its state has ", value.dump(),
              " where a whole number is wanted; the file is damaged");
      return value.get<int64_t>();
    };
    state_.step = whole(state.at("step"));
    adam_.set_steps(whole(state.at("adam_steps")));
    // Before checkpoints knew their corpus, epochs had other batches: this one begins anew.
    const int64_t batch = knows ? whole(state.at("batch")) : 0;
    state_.position = {whole(state.at("epoch")), whole(state.at("window")), batch};
    if (!state.at("best").is_null()) state_.best = state.at("best");
    if (state.contains("best_loss") && !state.at("best_loss").is_null())
      state_.best_loss = state.at("best_loss");
    if (state.contains("best_of")) state_.best_of = state.at("best_of").get<std::string>();
    state_.since_best = whole(state.at("since_best"));
    state_.validated = whole(state.at("validated"));
    state_.recent.clear();
    if (state.contains("recent"))
      for (const nlohmann::json& step : state.at("recent")) state_.recent.push_back(whole(step));
    if (state.contains("watch")) {
      const nlohmann::json& w = state.at("watch");
      LossWatch::State watch{.loss = w.at("loss"),
                             .tokens = whole(w.at("tokens")),
                             .updates = whole(w.at("updates")),
                             .uniform = whole(w.at("uniform")),
                             .far = whole(w.at("far"))};
      if (!w.at("best").is_null()) watch.best = w.at("best");
      watch_.set_state(watch);
    }
    state_.rate_factor = state.at("rate_factor");
    state_.plan = {};
    if (state.contains("plan")) {
      const nlohmann::json& plan = state.at("plan");
      state_.plan = {whole(plan.at(0)), whole(plan.at(1)), whole(plan.at(2)), whole(plan.at(3)),
                     plan.at(4).get<double>()};
    }
    // Before they had a file of their own.
    if (state.contains("seconds")) state_.seconds = state.at("seconds");
  } catch (const nlohmann::json::exception&) {
    fail(checkpoint_path().string(), ": its state is not one that this version writes");
  }
  read_seconds();
  // Read at the next validation; that one is damaged is told now, before hours of work.
  for (const int64_t step : state_.recent)
    SafetensorsFile::open(recent_path(step), tensor_options_);
  return true;
}

}  // namespace heed
