#include "heed/training/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/limits.h"
#include "heed/models/config_json.h"
#include "heed/models/tensor_file.h"
#include "heed/ops/bf16.h"
#include "heed/ops/into.h"
#include "heed/tensor/context.h"
#include "heed/translation/config_file.h"
#include "heed/version.h"

namespace heed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostMicroBatches = 4096;  // whose losses are read at once

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// The gradient that is the largest, or non-finite: what to look at first.
struct Worst {
  double size = -1;  // infinity: there is a number that is none
  int64_t parameter = -1;
};
void look_at(const Tensor& gradient, size_t parameter, Worst& worst) {
  double size = 0;
  for (const double g : gradient.values())
    size = std::isfinite(g) ? std::max(size, std::abs(g)) : std::numeric_limits<double>::infinity();
  if (size > worst.size) worst = {size, static_cast<int64_t>(parameter)};
}

std::vector<Range> pieces_of(const Shards& shards, const Params& params) {
  std::vector<Range> out;
  for (size_t i = 0; i < params.all().size(); ++i) out.push_back(shards.piece(i));
  return out;
}

// All that the memory of a micro-batch depends on.
StepGraphs::Shape shape_of(const Batch& b) {
  return {b.rows, b.source_width, b.target_width, b.links.empty() ? 0 : 1};
}

}  // namespace

void check(const TrainConfig& c) {
  const std::vector<std::string> kinds = schedule_kinds();
  if (std::find(kinds.begin(), kinds.end(), c.schedule) == kinds.end())
    fail(unknown_name("schedule", c.schedule, kinds));
  if (c.stop_on != "bleu" && c.stop_on != "loss")
    fail(unknown_name("stop_on", c.stop_on, {"bleu", "loss"}));
  if (c.precision != "auto" && c.precision != "f32" && c.precision != "bf16")
    fail(unknown_name("precision", c.precision, {"auto", "f32", "bf16"}));
  require(c.rate > 0 && std::isfinite(c.rate), "training: the rate wants a number above 0, given ",
          c.rate);
  if (c.wire != "f32" && c.wire != "bf16") fail(unknown_name("wire", c.wire, {"f32", "bf16"}));
  const auto at_least = [](const char* name, auto value, auto least) {
    require(value >= least && std::isfinite(double(value)), "training: ", name,
            " wants a number of at least ", least, ", given ", value);
  };
  at_least("batch_tokens", c.batch_tokens, 1), at_least("accumulate", c.accumulate, 1);
  require(c.accumulate <= kMostMicroBatches, "training: accumulate wants a number of at most ",
          kMostMicroBatches, ", given ", c.accumulate);
  at_least("validate_every", c.validate_every, 0), at_least("save_every", c.save_every, 0);
  at_least("steps", c.steps, 0), at_least("epochs", c.epochs, 0), at_least("minutes", c.minutes, 0);
  at_least("patience", c.patience, 0), at_least("warmup", c.warmup, 0);
  at_least("clip", c.clip, 0), at_least("decay", c.decay, 0), at_least("guided", c.guided, 0);
  at_least("rdrop", c.rdrop, 0);
  require(c.hold_out >= 0 && c.hold_out != 1,
          "training: hold_out wants 0 or a number of at least 2, given ", c.hold_out);
  require(c.smoothing >= 0 && c.smoothing < 1,
          "training: smoothing wants a share in [0, 1), given ", c.smoothing);
  require(c.sampling >= 0 && c.sampling <= 1, "training: sampling wants a number in [0, 1], given ",
          c.sampling);
  require(c.average >= 0 && c.average < 1, "training: average wants a factor in [0, 1), given ",
          c.average);
  require(c.average_last >= 0, "training: average_last wants a number of at least 0, given ",
          c.average_last);
  require(c.steps > 0 || c.epochs > 0 || c.minutes > 0 || c.patience > 0,
          "training: nothing would end it; give steps, epochs, minutes or patience");
  require(c.schedule != "cosine" || c.steps > c.warmup || (c.steps == 0 && c.minutes > 0),
          "training: the cosine schedule wants a number of steps beyond the warm-up's ", c.warmup,
          ", or minutes");
}

std::string to_json(const TrainConfig& config) { return config_to_json(config); }
TrainConfig train_config(const std::string& json, const std::string& where) {
  return config_from_json<TrainConfig>(json, where);
}

Trainer::Trainer(const Model& model, Params params, std::shared_ptr<Examples> examples,
                 const TrainConfig& config, std::filesystem::path folder,
                 std::shared_ptr<Ranks> ranks)
    : model_((check(config), model)),
      params_(std::move(params)),
      examples_(std::move(examples)),
      identity_(examples_->identity()),
      ranks_(std::move(ranks)),
      config_(config),
      folder_(std::move(folder)),
      tensor_options_(tensor_options(folder_)),
      // Gradients of bf16 to all are fewer bytes than parameters.
      shards_(params_, *ranks_, config.wire == "f32"),
      adam_(params_, {.decay = config.decay, .clip_norm = config.clip},
            pieces_of(shards_, params_)),
      arena_(Arena::make(current_arena().device())),
      graphs_(arena_),
      losses_(zeros({std::max<int64_t>(1, share().last - share().first)})),
      watch_(examples_->tokenizers().target->size(), config.warmup) {
  const bool on_gpu = arena_->device() == Device::cuda;
  require(
      config_.precision != "bf16" || !on_gpu || model.trains_in_bf16(),
      "training: on a GPU precision bf16 is for Transformers, and for an rnn with one decoder "
      "layer "
      "of gru cells, one head of additive attention before the state with soft weights (no "
      "temperature, no dropout of them) and a size that is a multiple of 64 up to 4096; this is "
      "another model; use --precision f32 or auto");
  require(config_.precision != "bf16" || on_gpu || bf16_products_are_fast(),
          "training: precision bf16 wants a CPU with AVX-512 BF16 (VDPBF16PS), without which it "
          "would be slower than f32; this one has none; use --precision f32 or auto");
  for (const Parameter& p : params_.all())
    p.value.parameter_state()->compute_copy = nullptr;  // another trainer's
  // Mixed precision: the parameters stay f32, as master weights.
  if (config_.precision != "f32" && on_gpu && model.trains_in_bf16()) params_.keep_compute_copies();
  if (config_.average > 0 || config_.average_last > 0)
    for (size_t i = 0; i < params_.all().size(); ++i) {
      average_.push_back(empty_like(piece(i)));
      copy_into(piece(i), average_.back());
    }
}

// What this rank has of a parameter.
Tensor Trainer::piece(size_t parameter) const {
  const Tensor w = params_.all()[parameter].value.detached();
  const Range own = shards_.piece(parameter);
  return slice(reshape(w, {w.count()}), 0, own.first, own.last);
}

void Trainer::swap_average() {
  for (size_t i = 0; i < average_.size(); ++i) {
    const Tensor w = piece(i), kept = empty_like(w);
    copy_into(w, kept);
    copy_into(average_[i], w);
    copy_into(kept, average_[i]);
  }
}

// While `work` is done, the parameters are the averaged ones, on all ranks.
void Trainer::with_average(const std::function<void()>& work) {
  const auto swap = [&] {
    swap_average();
    if (!average_.empty()) shards_.gather(params_, *ranks_, gpus_.get());
    if (gpus_) gpus_->wait(gpus_->put());
  };
  swap();
  try {
    work();
  } catch (...) {
    swap_average();  // the others may be gone
    throw;
  }
  swap();
}

// ---- ranks

// The first rank's clock, and whether anyone asks to stop.
Trainer::Moment Trainer::agreed(bool stop) {
  if (ranks_->count() == 1) return {Clock::now(), stop};
  struct Seen {
    int64_t ticks;
    bool stop;
  };
  Moment moment{};
  const std::vector<Seen> all =
      ranks_->gather("step " + std::to_string(state_.step),
                     Seen{static_cast<int64_t>(Clock::now().time_since_epoch().count()), stop});
  moment.now = Time(Clock::duration(all[0].ticks));
  for (const Seen& seen : all) moment.stop = moment.stop || seen.stop;
  return moment;
}

// All begin alike, or not at all.
void Trainer::meet() {
  require(ranks_->count() <= config_.accumulate, "training: ", ranks_->count(),
          " ranks have nothing to share of an update of ", config_.accumulate,
          " micro-batches; start at most so many, or give --accumulate ", ranks_->count());
  if (ranks_->count() == 1) return;
  ranks_->want_same("the version of heed", kVersion);
  ranks_->want_same("the training's configuration", to_json(config_));
  ranks_->want_same("the corpus", identity_);
  ranks_->want_same("the step to go on from", std::to_string(state_.step));
  ranks_->want_same("the device", name(arena_->device()));
  if (arena_->device() == Device::cuda) gpus_ = join_gpus(*ranks_);
  if (state_.step > 0) return;  // all have read the same checkpoint
  for (size_t i = 0; i < params_.all().size(); ++i) {
    const Tensor w = params_.all()[i].value.detached();
    const Tensor here = to(w, Device::cpu);  // itself, if it is there
    const std::span<std::byte> bytes(static_cast<std::byte*>(here.raw()),
                                     static_cast<size_t>(w.count()) * size_of(w.type()));
    ranks_->broadcast("first values", bytes);
    if (gpus_) set_numbers(w, bytes);
    if (!average_.empty()) copy_into(piece(i), average_[i]);
  }
  params_.refresh_compute_copies();
}

// ---- one update

// Of one micro-batch, the `at`-th of the update: its gradients, and its loss [1], by token.
Tensor Trainer::backward(const Batch& batch, int64_t at) {
  // A capture that was given up leaves gradients that were never computed.
  if (arena_->device() == Device::cuda) params_.clear_gradients();
  // Mixed precision on a CPU; on a GPU parameters have copies of bf16.
  const UseBf16Products products(config_.precision == "bf16" && arena_->device() == Device::cpu);
  // What is drawn is a function of the seed, the update and the micro-batch within it.
  Tape tape(config_.seed * 0x9E3779B97F4A7C15ull +
            static_cast<uint64_t>(state_.step * config_.accumulate + at));
  const BatchLoss loss = batch_loss(
      model_, batch,
      {.smoothing = config_.smoothing, .guided = config_.guided, .rdrop = config_.rdrop});
  const int64_t all = config_.accumulate;
  tape.backward(all > 1 ? loss.total * (1 / double(all)) : loss.total);
  return loss.cross_entropy.view({1}, {1});
}

// Of several micro-batches, of all ranks. Each is a graph of its own, whose shape comes back often;
// where they are summed differs from one to the next.
SummedGradients Trainer::gradients(const std::vector<Batch>& now) {
  GradientSum sum(params_, shards_, config_.accumulate,
                  config_.wire == "bf16" ? Type::bf16 : Type::f32);
  for (size_t i = 0; i < now.size(); ++i) {
    const Batch& batch = now[i];
    const auto own = static_cast<int64_t>(i);
    const int64_t at = share().first + own;
    Tensor loss;
    graphs_.run(shape_of(batch), [&] { loss = backward(batch, at); });
    copy_into(loss, slice(losses_, 0, own, own + 1));
    sum.take(at);
    // From here on the host may have to wait for what was launched before the last update's end.
    if (i == 0 && gpus_) gpus_->wait(gpus_->put());
  }
  return sum.give(*ranks_, gpus_.get());
}

// What every rank knows of its own micro-batches, to all.
template <class T>
void Trainer::give_to_all(const std::string& what, std::vector<T>& of_micro_batches) const {
  std::vector<Ranks::Sent> to;
  std::vector<Ranks::Received> from;
  for (int r = 0; r < ranks_->count(); ++r) {
    const auto of = [&](const Share& s) {
      return std::span(of_micro_batches)
          .subspan(static_cast<size_t>(s.first), static_cast<size_t>(s.last - s.first));
    };
    to.push_back(std::as_bytes(of(share())));
    from.push_back(std::as_writable_bytes(of(share_of(r, ranks_->count(), config_.accumulate))));
  }
  ranks_->exchange(what, to, from);
}

void Trainer::share_counts(Update& update) const {
  update.micro.resize(static_cast<size_t>(config_.accumulate));
  for (size_t i = 0; i < update.batches.size(); ++i) {
    const Batch& b = update.batches[i];
    update.micro[static_cast<size_t>(share().first) + i] = {
        .tokens = b.target_tokens(), .line = b.lines.front(), .after = b.after};
  }
  give_to_all("words of step " + std::to_string(update.step), update.micro);
}

// On a GPU sizes are rounded up, so that few shapes come back often (heed/tensor/graph.h).
Batch Trainer::on_device(Batch batch) const {
  if (losses_.device() == Device::cpu) return batch;
  const TokenizerPair& tokenizers = examples_->tokenizers();
  return rounded_up(batch, tokenizers.source->special().pad, tokenizers.target->special().pad);
}

// The largest batch there may be, before all others: that there is not enough memory is found in
// the first seconds, and on all ranks, whichever will meet it. Nothing of the run changes.
void Trainer::try_longest(Batches& batches) {
  const bool limited = arena_->device() == Device::cuda || ranks_->count() > 1 ||
                       addresses_limited() || cgroup_limits().memory;
  if (!limited) return;  // a batch's time is saved where all of the machine's memory is there
  const Batch batch = on_device(batches.longest());
  try {
    GradientSum sum(params_, shards_, config_.accumulate);
    const int64_t last = share().last - 1;
    // All that an update adds up beside its last micro-batch.
    for (int64_t at = share().first; at < last; ++at) sum.take(at);
    const UseArena use(*arena_);
    backward(batch, last).item();  // on a GPU: waits
    if (config_.accumulate > 1) sum.take(last);
  } catch (const OutOfMemory& error) {
    fail<OutOfMemory>("training: ", batch.rows, " of the longest sentences of the corpus, ",
                      batch.source_width, " and ", batch.target_width,
                      " tokens each, do not fit into memory; give --batch-tokens less than ",
                      config_.batch_tokens, ", or leave out the longest by --max-length (",
                      error.what(), ")");
  }
  params_.clear_gradients();
}

void Trainer::update(Batches& batches, Window& window) {
  Update now{.step = state_.step + 1, .batches = {}, .micro = {}};
  for (int64_t i = share().first; i < share().last; ++i)
    now.batches.push_back(on_device(batches.next()));
  const double rate = rate_at(schedule(), now.step);
  const bool moving = !average_.empty() && config_.average_last == 0;
  // At first the mean is of few steps: a factor that grows up to the one asked for.
  const double t = double(now.step), factor = std::min(config_.average, (1 + t) / (10 + t));
  const RunningMean mean{.of = moving ? &average_ : nullptr, .factor = factor};
  if (config_.accumulate > 1) {
    adam_.step(rate, mean, gradients(now.batches));
    shards_.gather(params_, *ranks_, gpus_.get());
  } else {
    const Batch& batch = now.batches.front();
    graphs_.run(shape_of(batch), [&, before = adam_.steps()] {
      adam_.set_steps(before);
      copy_into(backward(batch, 0), losses_);
      adam_.step(rate, mean);
    });
  }
  share_counts(now);
  state_.position = now.micro.back().after;
  state_.step = now.step;
  if (gpus_) now.exchanges = gpus_->put();
  now.report = StepReport::take(losses_, adam_.squares());
  flush_report(window);  // what was launched before: a GPU is never waited for without work
  under_way_ = std::move(now);
  if (losses_.device() == Device::cpu) flush_report(window);
}

// Reads what the last update came to.
void Trainer::flush_report(Window& window) {
  if (!under_way_) return;
  const Update done = std::move(*under_way_);
  under_way_.reset();
  const char* const advice =
      " The last good checkpoint is kept. Try a lower --rate, a longer --warmup or a smaller "
      "--clip";
  if (gpus_) gpus_->wait(done.exchanges);
  const StepReport::Values found = StepReport::read(done.report);
  std::vector<float> losses(done.micro.size());
  std::copy_n(found.losses.begin(), done.batches.size(), losses.begin() + share().first);
  give_to_all("losses of step " + std::to_string(done.step), losses);
  double loss = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < done.micro.size(); ++i) {
    const MicroBatch& b = done.micro[i];
    if (!std::isfinite(losses[i]))
      fail("training: the loss is no longer a number at step ", done.step, " (lines ", b.line,
           " and others).", advice);
    loss += losses[i] * double(b.tokens);
    tokens += b.tokens;
  }
  window.loss += loss, window.tokens += tokens;
  const double norm = std::sqrt(found.squares);
  if (!std::isfinite(norm)) {
    state_.step = done.step - 1;  // Adam moved nothing: the gradients come out as before
    fail("training: a gradient is no longer a number at step ", done.step,
         "; the first is that of '", worst_gradient(done), "'.", advice);
  }
  ++window.updates;
  window.norm += norm;
  if (const auto trouble =
          watch_.add(done.step, loss / double(std::max<int64_t>(tokens, 1)), tokens))
    fail("training: at step ", done.step, ", ", *trouble, ".", advice);
}

// Of an update whose gradients are made again.
std::string Trainer::worst_gradient(const Update& update) {
  const UseArena use(*arena_);
  params_.clear_gradients();
  Worst worst;
  if (config_.accumulate > 1) {
    const SummedGradients sum = gradients(update.batches);
    for (size_t i = 0; i < sum.pieces.size(); ++i)
      if (sum.pieces[i]) look_at(*sum.pieces[i], i, worst);
  } else {
    backward(update.batches.front(), 0);
    for (size_t i = 0; i < params_.all().size(); ++i)
      if (const auto& grad = params_.all()[i].value.parameter_state()->grad)
        look_at(*grad, i, worst);
  }
  for (const Worst& other : ranks_->gather("the worst gradient", worst))
    if (other.size > worst.size || (other.size == worst.size && other.parameter < worst.parameter))
      worst = other;
  if (worst.parameter < 0) return "none";
  const std::string& name = params_.all()[static_cast<size_t>(worst.parameter)].name;
  return std::isfinite(worst.size) ? name : name + " (not a number)";
}

// The mean over the last validations. Each one's parameters are a file of their own: neither memory
// nor the checkpoint grows with their number, and a mean is a function of files, however often the
// run was killed between them.
void Trainer::take_recent_mean() {
  if (config_.average_last == 0) return;
  if (ranks_->first()) save_parameters(params_, recent_path(state_.step));
  ranks_->meet("the parameters of a validation");  // all read what the first has written
  std::vector<int64_t>& recent = state_.recent;
  recent.push_back(state_.step);
  if (static_cast<int64_t>(recent.size()) > config_.average_last) recent.erase(recent.begin());
  TensorParts one;
  for (size_t i = 0; i < average_.size(); ++i) {
    const Parameter& p = params_.all()[i];
    one.emplace(p.name,
                TensorPart{empty_like(average_[i]), p.value.shape(), shards_.piece(i).first});
  }
  for (size_t n = 0; n < recent.size(); ++n) {
    load_tensors(one, recent_path(recent[n]), tensor_options_);
    for (size_t i = 0; i < average_.size(); ++i) {
      const Tensor& x = one.at(params_.all()[i].name).part;
      if (n == 0)
        copy_into(x, average_[i]);
      else
        blend(average_[i], double(n) / double(n + 1), x, 1 / double(n + 1));
    }
  }
}

// ---- the loop

Schedule Trainer::schedule() const {
  const Plan& plan = state_.plan;
  Schedule out{.kind = config_.schedule,
               .rate = config_.rate,
               .warmup = plan.warmup > 0 ? plan.warmup : config_.warmup,
               .steps = plan.steps > 0 ? plan.steps : config_.steps,
               .factor = state_.rate_factor};
  if (out.kind == "cosine" && out.steps == 0)
    out.kind = "constant";  // in the warm-up: not known yet
  // A plan that was shortened, on a machine that became slow, may end within the warm-up.
  if (plan.steps > 0) out.warmup = std::min(out.warmup, out.steps - 1);
  return out;
}

bool Trainer::validation_is_due() const {
  if (config_.validate_every > 0) return state_.step % config_.validate_every == 0;
  const Plan& plan = state_.plan;
  return plan.validate_every > 0 && (state_.step - plan.since) % plan.validate_every == 0;
}

bool Trainer::reached_limit() const {
  const int64_t steps = schedule().steps;
  return (steps > 0 && state_.step >= steps) ||
         (config_.epochs > 0 && state_.position.epoch >= config_.epochs) ||
         (config_.minutes > 0 && state_.plan.steps == 0 && state_.step > 0 &&
          state_.seconds + validation_seconds_ >= 60 * config_.minutes);  // else by the plan
}

// ---- the plan

namespace {
constexpr int64_t kStepsToMeasure = 100;  // without a limit of time: when the first look is due
constexpr double kShareToMeasure = 0.08;  // of the time to train, at most
constexpr int64_t kUpdatesToMeasure = 8;  // at least
constexpr double kShareOfWarmup = 1.0 / 12;
constexpr double kShareToValidate = 0.1;  // of the time, at most
constexpr int64_t kValidations = 20;      // as many are enough
constexpr double kReserve = 0.01;         // of the time, for what is slower than expected
constexpr double kWorthAPlan = 0.03;      // a number of steps that differs by less stays
}  // namespace

// Is it time to see how fast it goes? At the end of the warm-up, whose rates do not depend on the
// number of steps; where the warm-up would take a large share of the time, earlier.
bool Trainer::wants_plan(const Hooks& hooks) const {
  const Plan& plan = state_.plan;
  const bool in_time = config_.minutes > 0 && config_.steps == 0;
  const bool validations = config_.validate_every == 0 && looks(hooks) && plan.validate_every == 0;
  if (!(in_time && plan.steps == 0) && !validations) return false;
  if (!in_time) return state_.step >= kStepsToMeasure;
  return knows_its_pace();
}

double Trainer::update_seconds() const {
  const int64_t measured = std::max<int64_t>(1, updates_.step - earlier_.step);
  return std::max(1e-9, (updates_.seconds - earlier_.seconds) / double(measured));
}

// Whether enough was measured to say when a run ends that --steps may take beyond --minutes: as for
// a plan, at the end of the warm-up or earlier.
bool Trainer::knows_its_pace() const {
  return updates_.step >= kUpdatesToMeasure &&
         (state_.step >= config_.warmup ||
          state_.seconds - begun_ >= kShareToMeasure * (60 * config_.minutes - begun_));
}

// A warm-up that would take too large a share of them ends earlier, but not at once.
int64_t Trainer::warmup_of(int64_t steps) const {
  return std::min(config_.warmup, std::max<int64_t>(int64_t(kShareOfWarmup * double(steps)),
                                                    std::min(2 * state_.step, steps - 1)));
}

// Between validations: where the time would be over before the plan is, or before --steps are, it
// ends earlier. A run is never cut off before the rate is at its end.
void Trainer::shorten_plan(const Hooks& hooks) {
  Plan& plan = state_.plan;
  const bool first = plan.steps == 0;
  const int64_t more = (first ? config_.steps : plan.steps) - state_.step;
  if (config_.minutes == 0 || more <= 1 || (first && !knows_its_pace())) return;
  const int64_t every = config_.validate_every > 0 ? config_.validate_every : plan.validate_every;
  const int64_t looks_left = looks(hooks) && every > 0 ? (more + every - 1) / every : 1;
  const double left = 60 * config_.minutes * (1 - kReserve) - state_.seconds -
                      double(looks_left) * validation_seconds_;
  if (left > 0 && updates_.step - earlier_.step < kUpdatesToMeasure) return;
  const int64_t fit = std::max<int64_t>(1, int64_t(left / update_seconds()));
  if (double(more - fit) <= kWorthAPlan * double(more)) return;
  plan.steps = state_.step + fit;
  plan.minutes = config_.minutes;
  if (first) plan.warmup = warmup_of(plan.steps);
}

// Of the time that is left, at most a tenth is for validations, the rest for updates. Made again at
// later validations where it would not come true: machines are shared.
void Trainer::make_plan(const Hooks& hooks) {
  Plan plan = state_.plan;
  const int64_t measured = std::max<int64_t>(1, updates_.step - earlier_.step);
  const double update = update_seconds();
  const double look = std::max(1e-9, validation_seconds_);
  plan.since = state_.step;
  if (config_.minutes == 0 || config_.steps > 0) {
    if (config_.validate_every > 0 || plan.validate_every > 0) return;
    const double tokens = double(config_.batch_tokens * config_.accumulate);
    const double every = hooks.validation_cost / kShareToValidate / tokens;
    plan.validate_every = kStepsToMeasure * (1 + int64_t(every / kStepsToMeasure));
    plan.minutes = config_.minutes;
    state_.plan = plan;
    return;
  }
  const bool again = plan.steps > 0;
  if (!again && !wants_plan(hooks)) return;
  if (again && (state_.step >= plan.steps || measured < kUpdatesToMeasure)) return;
  const double left = 60 * config_.minutes * (1 - kReserve) - state_.seconds;
  int64_t most = 1;  // validations to come, the last one among them
  if (again && plan.validate_every > 0)
    most = std::max<int64_t>(1, (plan.steps - state_.step) / plan.validate_every);
  else if (looks(hooks))
    most = std::clamp<int64_t>(int64_t(kShareToValidate * left / look), 1, kValidations);
  const double updates = config_.validate_every > 0 && looks(hooks)
                             ? left / (update + look / double(config_.validate_every))
                             : (left - double(most) * look) / update;
  if (config_.validate_every == 0) {
    plan.validate_every = std::max<int64_t>(1, int64_t(updates / double(most)));
    plan.steps = state_.step + plan.validate_every * most;
  } else {
    plan.steps = state_.step + std::max<int64_t>(1, int64_t(updates));
  }
  plan.minutes = config_.minutes;
  if (!again) plan.warmup = warmup_of(plan.steps);
  const double before = double(state_.plan.steps - state_.step),
               after = double(plan.steps - state_.step);
  if (!again || std::abs(after - before) > kWorthAPlan * before) state_.plan = plan;
}

Trainer::Window Trainer::new_window(Time since) const {
  return {.since = since, .waited = waited(), .replayed = graphs_.replayed()};
}

Progress Trainer::progress(const Window& w) const {
  const double seconds = std::max(1e-9, seconds_since(w.since));
  Progress p{.epoch = state_.position.epoch + 1,
             .step = state_.step,
             .updates = w.updates,
             .loss = w.tokens ? w.loss / double(w.tokens) : 0,
             .words_a_second = double(w.tokens) / seconds,
             .waiting = (waited() - w.waited) / seconds,
             .rate = rate_at(schedule(), state_.step),
             .gradient_norm = w.updates ? w.norm / double(w.updates) : 0,
             .seconds = state_.seconds};
  const auto sooner = [&](double left) { p.left = std::min(p.left.value_or(left), left); };
  if (config_.minutes > 0) sooner(60 * config_.minutes - state_.seconds);
  if (arena_->device() == Device::cuda && w.updates > 0)
    p.replayed = double(graphs_.replayed() - w.replayed) /
                 double(w.updates * (share().last - share().first));
  if (const int64_t steps = schedule().steps; steps > 0 && state_.step > 0)
    sooner(state_.seconds / double(state_.step) * double(steps - state_.step));
  return p;
}

bool Trainer::out_of_patience() const {
  return config_.patience > 0 && state_.since_best >= config_.patience;
}

Trainer::End Trainer::run(const Hooks& hooks) {
  require(hooks.validate || config_.steps > 0 || config_.epochs > 0 || config_.minutes > 0,
          "training: nothing would end it; patience wants sentences to validate on");
  require(hooks.validate || !std::isfinite(state_.best), "training: the model in ",
          folder_.string(), " is the best of this run's validations, and ",
          "without one the last would take its place; give the sentences to validate on again");
  meet();
  std::error_code error;
  std::filesystem::create_directories(checkpoint_path().parent_path(), error);
  require(!error, checkpoint_path().parent_path().string(), ": cannot be made: ", error.message());
  if (hooks.begun) hooks.begun();
  keep_or_forget_best(hooks);
  Batches batches(examples_,
                  {.tokens = config_.batch_tokens,
                   .seed = config_.seed,
                   .every = config_.accumulate,
                   .first = share().first,
                   .last = share().last},
                  state_.position);
  auto last = now(), saved = last;
  Window window = new_window(last);
  bool unsaved = false;
  double save_seconds = 0;
  const bool means = config_.average_last > 0;
  double spent = hooks.spent;
  ranks_->broadcast("the time", std::as_writable_bytes(std::span(&spent, 1)));
  begun_ = state_.seconds += spent;
  if (state_.plan.minutes != config_.minutes) state_.plan = {};  // other minutes, another plan
  updates_ = earlier_ = later_ = {};
  constexpr double kSecondsALine = 5, kSecondsACheckpoint = 30;
  // All time counts.
  const auto seconds_between = [](Time from, Time to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const auto count_time_until = [&](Time to) {
    const double seconds = seconds_between(last, to);
    state_.seconds += seconds;
    last = to;
    return seconds;
  };
  const auto count_time = [&] { return count_time_until(now()); };
  const auto save_is_due = [&] {
    return config_.save_every > 0 ? state_.step % config_.save_every == 0
                                  : seconds_between(saved, last) >= kSecondsACheckpoint;
  };
  const auto save_now = [&] {
    flush_report(window);
    const Time from = last;
    // Nothing says which is best: the last, or the mean over the last validations, made there.
    if (!hooks.validate && (!means || state_.validated == state_.step))
      with_average([&] { save_model(); });
    save();
    save_seconds = count_time();
    saved = last, unsaved = false;
    window.since += saved - from;  // it does not count as training
  };
  const auto tell = [&](Progress p) {
    if (hooks.log) hooks.log(p);
    window = new_window(last);
  };
  const auto look = [&] {
    flush_report(window);
    count_time();
    const double before = state_.seconds;
    Progress p = progress(window);
    const bool whole = validate(hooks, p);
    count_time();
    if (!whole) return false;
    p.seconds = state_.seconds;
    tell(p);
    unsaved = true;
    validation_seconds_ = state_.seconds - before + save_seconds;
    make_plan(hooks);
    earlier_ = later_ = updates_;
    // Beside a model that was kept lies the checkpoint to go on from.
    if (p.best || ((means || save_is_due()) && !watch_.doubtful())) save_now();
    window.since = last;  // nor does validation
    return true;
  };
  const auto stopped = [&] {
    flush_report(window);
    // What was saved before a loss that is in doubt is what to go on from.
    if (!watch_.doubtful() || !std::filesystem::exists(checkpoint_path())) save_now();
    return End::stopped;
  };
  // Without sentences to validate on there is something to do only for a mean.
  const auto look_is_due = [&] {
    return wants_plan(hooks) || (validation_is_due() && looks(hooks));
  };
  try_longest(batches);
  count_time();
  // One that was given up when the run was stopped.
  if (state_.step > 0 && state_.validated != state_.step && look_is_due() && !look())
    return stopped();
  while (!reached_limit() && !out_of_patience()) {
    update(batches, window);
    unsaved = true;
    ++updates_.step;
    const Moment moment = agreed(hooks.stop && hooks.stop());
    bool stop = moment.stop;
    updates_.seconds += count_time_until(moment.now);
    if (state_.plan.steps == 0 && std::has_single_bit(uint64_t(updates_.step)))
      earlier_ = std::exchange(later_, updates_);
    shorten_plan(hooks);
    if (look_is_due())
      stop = !look() || stop;
    else if (save_is_due() && (flush_report(window), !watch_.doubtful()))
      save_now();  // else what was saved before may be the last that is good
    if (seconds_between(window.since, last) >= kSecondsALine)
      flush_report(window), tell(progress(window));
    if (stop) return stopped();
  }
  // Also where a run that was stopped right here is resumed.
  if (state_.validated != state_.step && !look()) return stopped();
  if (unsaved) save_now();
  return out_of_patience() ? End::patience : End::limit;
}

// Whether it is better than all before; then it is what the next are compared with.
bool Trainer::is_best(const Validation& now) {
  const double score = config_.stop_on == "bleu" && now.bleu ? *now.bleu : -now.loss;
  // At first all BLEU is 0: of equal scores, the lower loss is the better.
  const bool best = score > state_.best || (score == state_.best && now.loss < state_.best_loss);
  if (best) state_.best = score, state_.best_loss = now.loss;
  return best;
}

// Whether it came to its end.
bool Trainer::validate(const Hooks& hooks, Progress& p) {
  const auto before = std::pair(state_.validated, state_.recent);
  state_.validated = state_.step;
  take_recent_mean();
  if (!hooks.validate) return true;  // the model is the last one: saved with a checkpoint
  with_average([&] {
    p.validation = hooks.validate();
    p.best = p.validation && is_best(*p.validation);
    if (p.best) save_model();
  });
  if (!p.validation) {
    std::tie(state_.validated, state_.recent) = before;
    return false;
  }
  if (p.best) {
    state_.since_best = 0;
  } else {
    ++state_.since_best;
    if (config_.schedule == "plateau") state_.rate_factor *= 0.5;
  }
  return true;
}

}  // namespace heed
