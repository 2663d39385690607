#include "heed/search/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>

#include "heed/ops/cache.h"
#include "heed/ops/tape.h"
#include "heed/search/draw.h"

namespace heed {
namespace {

constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

// The exception that is being handled; one for want of memory says what asked for it.
std::exception_ptr explained(int64_t beam, int64_t sentences) {
  const auto told = [&](const char* what) {
    std::ostringstream message;
    message << "search: out of memory with a beam of " << beam << " and " << sentences
            << (sentences == 1 ? " sentence" : " sentences") << " at a time; a smaller "
            << (beam > 1 ? "--beam" : "--max-length")
            << (sentences > 1 ? ", --batch-tokens or --batch" : "") << " needs less (" << what
            << ")";
    return std::make_exception_ptr(OutOfMemory(message.str()));
  };
  try {
    throw;
  } catch (const OutOfMemory& error) {
    return told(error.what());
  } catch (const std::bad_alloc&) {
    return told("the system has no more");
  } catch (...) {
    return std::current_exception();
  }
}

// Is a sentence still wanted? If so, its caller is told what it is so far.
template <class Asked, class SoFar>
bool goes_on(const Asked& one, SoFar so_far) {
  try {
    if (one.wanted && !one.wanted()) return false;
    if (one.progress) one.progress(so_far());
    return true;
  } catch (...) {  // nobody else's sentences end by it
    return false;
  }
}

std::exception_ptr unwanted() {
  return std::make_exception_ptr(Error("search: not wanted any more"));
}

}  // namespace

Engine::Engine(const Model& model, Options o)
    : model_(model),
      context_(o.context ? std::move(o.context) : Context::current().shared_from_this()),
      device_(context_.get() == &Context::current() ? current_arena().device()
                                                    : context_->device()),
      steps_(o.steps),
      packed_(std::move(o.packed)),
      worth_a_lane_(o.worth_a_lane) {
  lanes_.push_back(std::make_unique<Lane>(context_));
  if (o.drives == Drives::callers) return;
  const bool several = packed_ && device_ == Device::cpu && steps_ != Steps::as_graphs;
  for (int i = 1; several && i < context_->pool().threads(); ++i)
    lanes_.push_back(std::make_unique<Lane>(Context::make({.pool = &context_->pool()})));
  const std::lock_guard lock(mutex_);
  size_t started = 0;
  try {
    for (; started < lanes_.size(); ++started)
      lanes_[started]->thread = std::thread([this, lane = lanes_[started].get()] { drive(*lane); });
  } catch (const std::system_error&) {
    // The system starts no more (ulimit -u): these take the steps or, if there are none, callers.
    lanes_.resize(std::max<size_t>(1, started));
  }
  driver_ = lanes_[0]->thread.get_id();
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  arrived_.notify_all();
  for (const auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
  const auto ended = std::make_exception_ptr(Error("search: the engine has ended"));
  for (const auto& lane : lanes_) {
    // What lies on a GPU is released in its context.
    const UseContext here(*lane->context);
    for (auto& [kind, batch] : lane->batches) end_all(*lane, batch, ended);
    lane->batches.clear();
  }
  for (auto& [kind, waiting] : waiting_)
    for (Pending& p : waiting) tell(p.finished, {}, ended);
}

int64_t Engine::replayed() const {
  int64_t sum = 0;
  for (const auto& lane : lanes_) {
    const std::lock_guard turn(lane->driving);
    for (const auto& [kind, batch] : lane->batches)
      if (batch.slots) sum += batch.slots->replayed();
  }
  return sum;
}

Engine::Load Engine::load() const {
  Load out{.steps = steps_taken_, .sentences = sentences_in_steps_};
  const std::lock_guard lock(mutex_);
  out.waiting = shares().waiting;
  return out;
}

// ---- requests

bool Engine::captures(const Request& r) const {
  return (steps_ == Steps::as_graphs || (steps_ == Steps::by_device && device_ == Device::cuda)) &&
         r.options.beam <= kMaxGroup;
}

Slots::Kind Engine::kind_of(const Request& r) const {
  const SearchOptions& o = r.options;
  Slots::Kind kind{.beam = o.beam};
  // A few more than are wanted, for tokens that may not follow.
  kind.likeliest = o.sample ? tokens_for_draw(o) : 2 * o.beam + 8;
  kind.listed = !r.shortlist.empty() && device_ == Device::cpu && !captures(r);
  kind.normalizer = o.sample && normalizer_for_draw(o) && !kind.listed;
  kind.logits = o.repetition_penalty != 1;
  kind.weights = o.want_weights || o.coverage > 0;
  if (kind.weights)
    kind.layer = o.layer.value_or(-1), kind.head = o.head.value_or(-1), kind.mean_of = o.mean_of;
  if (!captures(r)) return kind;
  kind.slots = Slots::fixed(r.slots);
  // Who keeps searches where the model computes has room for the longest translation allowed.
  constexpr int64_t kLongest = 4096;
  if (r.prefix.empty() && r.shortlist.empty() && !r.progress &&
      longest_target(o, std::ssize(r.source)) <= kLongest)
    kind.resident = ResidentBeams::rules(o);
  return kind;
}

void Engine::check_request(const Request& r) const {
  check(r.options);
  require(r.slots > 0, "search: wants slots for at least one sentence, given ", r.slots);
  const std::optional<int64_t> most = model_.positions();
  require(!most || std::ssize(r.source) <= *most, "search: a source of ", r.source.size(),
          " tokens; the model has ", most.value_or(0), " positions");
  if (r.shortlist.empty()) return;
  const int64_t words = model_.output_weight().size(1);
  Id before = -1;
  for (const Id w : r.shortlist) {
    require(w > before && w < words, "search: a shortlist has token ", w, " after ", before, " of ",
            words, "; wanted: rising, and of the vocabulary");
    before = w;
  }
}

void Engine::submit(Request r, Finished finished) {
  check_request(r);
  std::vector<Pending> one;
  one.push_back({std::move(r), std::move(finished)});
  enqueue(std::move(one));
}

// All at once, so that they join together.
void Engine::enqueue(std::vector<Pending> requests) {
  const std::optional<int64_t> most = model_.positions();
  std::vector<Slots::Kind> kinds;
  for (Pending& p : requests) {
    SearchOptions& o = p.request.options;
    // Begin has a position, too.
    if (most)
      o.max_length =
          std::min(o.max_length > 0 ? o.max_length : *most - 1, std::max<int64_t>(1, *most - 1));
    if (o.sample) o.beam = o.best = 1;
    kinds.push_back(kind_of(p.request));
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    slots_ = requests[i].request.slots;
    waiting_[kinds[i]].push_back(std::move(requests[i]));
  }
  arrived_.notify_one();
}

// A caller that waits sleeps until something of its own is done or the steps become its own to
// take: hundreds of them do not wake at every step of the others.
struct Engine::Call {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<size_t> ready;  // done, not reported yet
  std::vector<Result> results;
  std::exception_ptr error;
  bool drives = false;   // it was told to take the steps; changes with the engine's mutex held
  bool reports = false;  // it wants to know of each that is done
  std::atomic<size_t> left;
};

// With mutex_ held: nobody takes steps. The caller that came last does, who has the most left.
void Engine::hand_over() {
  driver_ = {};
  while (!sleeping_.empty()) {
    const std::shared_ptr<Call> next = std::move(sleeping_.back());
    sleeping_.pop_back();
    const std::lock_guard lock(next->mutex);
    if (next->left == 0) continue;
    next->drives = true;
    next->changed.notify_one();
    return;
  }
}

std::vector<Engine::Result> Engine::decode_alternatives(std::vector<Request> requests,
                                                        const std::function<void(size_t)>& done) {
  // The tokens that may follow the prefix: a search that is one token longer, and cut there.
  std::vector<Request> firsts;
  for (const Request& r : requests) {
    check_request(r);
    Request& first = firsts.emplace_back(r);
    SearchOptions& o = first.options;
    const int64_t tokens = std::ssize(r.prefix) + 1;
    o.alternatives = o.sample = o.want_weights = o.want_tree = false;
    o.beam = o.best, o.normalize = o.coverage = 0;
    o.max_ratio = 0, o.max_extra = o.min_length = tokens, o.max_length = 0;
    o.open_end = o.free_prefix = true, o.free_end = false;
    first.context = std::ssize(r.prefix);
    first.progress = {};
  }
  const std::vector<Result> found = decode(std::move(firsts));
  std::vector<Result> out(requests.size());
  std::vector<Request> rest;
  std::vector<std::pair<size_t, double>> of;  // which request's, and the token's log-probability
  for (size_t i = 0; i < requests.size(); ++i)
    for (const Hypothesis& first : found[i].hypotheses) {
      if (std::exp(first.log_probability) < requests[i].options.least_alternative) break;
      Request& r = rest.emplace_back(requests[i]);
      r.options.alternatives = false, r.options.free_prefix = true, r.options.best = 1;
      r.prefix = first.ids, r.context = std::ssize(first.ids);
      of.emplace_back(i, first.log_probability);
    }
  std::vector<Result> suffixes = decode(std::move(rest));
  for (size_t n = 0; n < suffixes.size(); ++n)
    for (Hypothesis& h : suffixes[n].hypotheses) {
      h.log_probability += of[n].second, h.score += of[n].second;
      out[of[n].first].hypotheses.push_back(std::move(h));
    }
  for (size_t i = 0; i < out.size() && done; ++i) done(i);
  return out;
}

std::vector<Engine::Result> Engine::decode(std::vector<Request> requests,
                                           const std::function<void(size_t)>& done) {
  if (std::ranges::any_of(requests, [](const Request& r) { return r.options.alternatives; }))
    return decode_alternatives(std::move(requests), done);
  const auto call = std::make_shared<Call>();
  call->results.resize(requests.size());
  call->reports = static_cast<bool>(done);
  call->left = requests.size();
  for (const Request& r : requests) check_request(r);  // before any of them runs
  std::vector<Pending> all;
  for (size_t i = 0; i < requests.size(); ++i)
    all.push_back({std::move(requests[i]), [call, i](Result result, std::exception_ptr error) {
                     const std::lock_guard lock(call->mutex);
                     call->results[i] = std::move(result);
                     if (error && !call->error) call->error = error;
                     call->ready.push_back(i);
                     if (--call->left == 0 || call->reports) call->changed.notify_one();
                   }});
  enqueue(std::move(all));
  std::exception_ptr in_done;  // what the caller's own function threw
  const auto report = [&] {
    std::vector<size_t> ready;
    {
      const std::lock_guard lock(call->mutex);
      ready.swap(call->ready);
    }
    if (!done || in_done) return;
    try {
      for (const size_t i : ready) done(i);
    } catch (...) {
      in_done = std::current_exception();
    }
  };
  // Of all callers that wait here one takes the steps. Who does, and calls again from `done`, goes
  // on doing so.
  struct Driver {
    Engine& engine;
    const std::thread::id before;
    ~Driver() {
      const std::lock_guard lock(engine.mutex_);
      if (before == std::thread::id()) engine.hand_over();
    }
  };
  while (call->left > 0) {
    std::unique_lock lock(mutex_);
    if (driver_ == std::thread::id() || driver_ == std::this_thread::get_id()) {
      const Driver driver{*this, std::exchange(driver_, std::this_thread::get_id())};
      lock.unlock();
      while (call->left > 0) {
        take_step(*lanes_[0]);
        report();
      }
      break;
    }
    sleeping_.push_back(call);
    lock.unlock();
    {
      std::unique_lock own(call->mutex);
      call->changed.wait(own, [&] {
        return call->drives || call->left == 0 || (call->reports && !call->ready.empty());
      });
    }
    lock.lock();
    std::erase(sleeping_, call);
    call->drives = false;
    lock.unlock();
    report();
  }
  {
    // It may have been told to take the steps, and its own were done by whoever calls step(): no
    // caller leaves others asleep.
    const std::lock_guard lock(mutex_);
    if (driver_ == std::thread::id()) hand_over();
  }
  report();
  if (in_done) std::rethrow_exception(in_done);
  if (call->error) std::rethrow_exception(call->error);
  return std::move(call->results);
}

bool Engine::step() { return take_step(*lanes_[0]); }

// ---- the loop

// With mutex_ held: how what is under way is shared out.
Engine::Shares Engine::shares() const {
  Shares out;
  for (const auto& [kind, waiting] : waiting_) out.waiting += std::ssize(waiting);
  int64_t all = out.waiting;
  for (const auto& lane : lanes_) all += lane->live, out.busy += lane->live > 0;
  const int64_t at_once = std::min(all, std::min(all, slots_) * lanes());
  out.lanes = std::clamp<int64_t>(at_once / worth_a_lane_, 1, lanes());
  out.each = (all + out.lanes - 1) / out.lanes;
  return out;
}

// With mutex_ held: how many of those that wait the lane may take. As long as some wait, some lane
// may take one.
int64_t Engine::room(const Lane& lane) const {
  const Shares s = shares();
  if (lane.live == 0 && s.busy >= s.lanes) return 0;
  return std::min(s.waiting, s.each - lane.live);
}

// A thread of its own: steps, as long as there is something to do.
void Engine::drive(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [&] { return ending_ || lane.live > 0 || room(lane) > 0; });
    if (ending_) return;
    lock.unlock();
    try {
      take_step(lane);
    } catch (const std::exception&) {  // no memory even to choose who joins: later, perhaps
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    lock.lock();
  }
}

bool Engine::take_step(Lane& lane) {
  const std::lock_guard turn(lane.driving);
  const UseContext here(*lane.context);
  const UseDevice there(device_);
  const NoTape off;
  if (!packed_ && !lane.packed_meanwhile) lane.packed_meanwhile = std::make_shared<PackedWeights>();
  const UsePackedWeights fixed(packed_ ? packed_ : lane.packed_meanwhile);
  std::optional<OnThisThread> alone;
  {
    std::unique_lock lock(mutex_);
    // Where most threads have sentences of their own, none is there to help another one.
    const Shares now = shares();
    if (lanes() > 1 && 2 * std::max(now.busy, now.lanes) > lanes()) alone.emplace();
    // Who waits joins where slots are idle.
    for (auto& [kind, waiting] : waiting_) {
      if (waiting.empty()) continue;
      Batch& batch = lane.batches[kind];
      lock.unlock();  // others may submit while sources are encoded: at the end of a list
      admit(lane, kind, waiting, batch);
      lock.lock();
    }
  }
  bool any = false, left = false;
  for (auto at = lane.batches.begin(); at != lane.batches.end();) {
    Batch& batch = at->second;
    if (batch.live > 0) {
      any = true;
      at->first.resident ? advance_ahead(lane, batch) : advance(lane, batch);
    }
    left = left || batch.live > 0;
    // Memory of a GPU stays where its graphs expect it.
    at = batch.live == 0 && at->first.slots == 0 ? lane.batches.erase(at) : std::next(at);
  }
  if (!left) lane.packed_meanwhile = nullptr;
  return any;
}

void Engine::tell(const Finished& finished, Result result, std::exception_ptr error) {
  try {
    finished(std::move(result), error);
  } catch (...) {  // nobody else's sentences end by it
  }
}

// The result, or what went wrong, goes to whoever asked; the slot is idle then.
void Engine::end(Lane& lane, Batch& batch, int64_t slot, Result result, std::exception_ptr error) {
  const std::unique_ptr<Running> one = std::move(batch.running[static_cast<size_t>(slot)]);
  --batch.live, --lane.live;
  if (one->finished) tell(one->finished, std::move(result), error);
}

void Engine::end_all(Lane& lane, Batch& batch, std::exception_ptr error) {
  for (size_t s = 0; s < batch.running.size(); ++s)
    if (batch.running[s]) end(lane, batch, static_cast<int64_t>(s), {}, error);
}

// Who joins now, if anybody does.
std::vector<Engine::Pending> Engine::choose(Lane& lane, const Slots::Kind& kind,
                                            std::deque<Pending>& waiting, const Batch& batch) {
  const std::lock_guard lock(mutex_);
  const int64_t count = std::min(std::ssize(waiting), room(lane)), among = shares().lanes;
  if (count <= 0) return {};
  constexpr int64_t kWindow = 512;  // who waits longer than others, and is looked at
  const auto length = [&](int64_t i) {
    return std::ssize(waiting[static_cast<size_t>(i)].request.source);
  };
  int64_t slots = kind.slots, tokens = kind.slots == 0 ? 0 : kAnyNumber;
  for (int64_t i = 0; kind.slots == 0 && i < std::min(std::ssize(waiting), kWindow); ++i) {
    const Request& r = waiting[static_cast<size_t>(i)].request;
    slots = std::max(slots, r.slots);
    tokens = std::max(tokens, r.tokens > 0 ? r.tokens : kAnyNumber);
  }
  // A lane that others' threads help has their slots, too.
  if (kind.slots == 0) slots = std::min(slots, batch.live + count) * (lanes() / among);
  // So many sentences of a width may run; one always may.
  const auto at_most = [&](int64_t width) {
    return std::max<int64_t>(1, tokens / among / kind.beam / std::max<int64_t>(1, width));
  };
  int64_t width = batch.live > 0 ? batch.slots->width() : 0;
  slots = std::min(slots, at_most(std::max(width, length(0))));
  // A source alone costs nearly as much to encode as some: where many wait, some join together.
  // Where all slots are computed, idle ones cost as much as busy ones: there they wait for fewer
  // or, where sentences wait encoded, for none.
  int64_t idle = slots - batch.live, together = kind.slots > 0 ? (slots + 3) / 4 : (slots + 1) / 2;
  if (const int64_t wait = Slots::may_wait(kind); wait > 0) {
    idle = std::min(idle + wait, batch.slots ? batch.slots->room() : wait);
    together = wait;
  }
  if (idle < std::min(count, together)) return {};
  // Of those that wait longest, those whose length is nearest to the first one's: little padding.
  const int64_t window = std::min(std::ssize(waiting), std::max(kWindow, slots));
  const int64_t take = std::min(idle, count);
  std::vector<Id> order = in_order(window);
  if (take < window)
    std::stable_sort(order.begin(), order.end(), [&](Id a, Id b) {
      return std::abs(length(a) - length(0)) < std::abs(length(b) - length(0));
    });
  order.resize(static_cast<size_t>(take));
  for (size_t i = 0; i < order.size(); ++i) {  // longer ones than the first may be too many
    width = std::max(width, length(order[i]));
    if (batch.live + static_cast<int64_t>(i) + 1 > at_most(width)) order.resize(i);
  }
  std::ranges::sort(order);
  std::vector<Pending> chosen;
  for (const Id i : order) chosen.push_back(std::move(waiting[static_cast<size_t>(i)]));
  // Those before the last of them that stay move up to it.
  auto kept = order.empty() ? Id{0} : order.back() + 1;
  auto gone = order.rbegin();
  for (Id i = kept - 1; i >= 0; --i) {
    if (gone != order.rend() && *gone == i)
      ++gone;
    else
      waiting[static_cast<size_t>(--kept)] = std::move(waiting[static_cast<size_t>(i)]);
  }
  waiting.erase(waiting.begin(), waiting.begin() + kept);
  lane.live += std::ssize(chosen);
  if (!waiting.empty()) arrived_.notify_one();  // another lane, if it may have some
  return chosen;
}

// Where more can wait encoded than join at a time, again.
void Engine::admit(Lane& lane, const Slots::Kind& kind, std::deque<Pending>& waiting,
                   Batch& batch) {
  while (admit_some(lane, kind, waiting, batch) && kind.resident) {
  }
}

// Has anybody joined?
bool Engine::admit_some(Lane& lane, const Slots::Kind& kind, std::deque<Pending>& waiting,
                        Batch& batch) {
  std::vector<Pending> chosen;
  do {
    chosen = choose(lane, kind, waiting, batch);
    if (chosen.empty()) return false;
    end_unwanted(lane, chosen);
  } while (chosen.empty());
  std::vector<std::vector<Id>> sources, lists;
  std::vector<int64_t> longest;
  for (const Pending& p : chosen) {
    sources.push_back(p.request.source);
    if (kind.listed) lists.push_back(p.request.shortlist);
    if (kind.resident)
      longest.push_back(longest_target(p.request.options, std::ssize(p.request.source)));
  }
  try {
    if (!batch.slots)
      batch.slots = std::make_unique<Slots>(model_, kind, chosen[0].request.options.pad);
    const std::vector<int64_t> slots = batch.slots->join(sources, lists, longest);
    batch.running.resize(static_cast<size_t>(batch.slots->places()));
    for (size_t i = 0; i < chosen.size(); ++i) {
      Request& r = chosen[i].request;
      std::optional<Beam> beam;
      if (!kind.resident)
        beam.emplace(r.options, Beam::Sentence{.length = std::ssize(r.source),
                                               .prefix = std::move(r.prefix),
                                               .number = r.number,
                                               .shortlist = std::move(r.shortlist),
                                               .context = r.context});
      batch.running[static_cast<size_t>(slots[i])] =
          std::make_unique<Running>(Running{std::move(beam), std::move(chosen[i].finished),
                                            std::move(r.wanted), std::move(r.progress)});
      ++batch.live;
    }
    if (kind.resident) begin(batch);
    return true;
  } catch (...) {
    const std::exception_ptr error = explained(kind.beam, batch.live + std::ssize(chosen));
    for (Pending& p : chosen)
      if (p.finished) {
        --lane.live;
        tell(p.finished, {}, error);
      }
    if (batch.slots && batch.slots->whole()) return false;
    // Who joined before shares the memory in which it went wrong.
    end_all(lane, batch, error);
    batch = {};
    return false;
  }
}

// Who waits encoded gets a slot.
void Engine::begin(Batch& batch) {
  for (const auto& [place, slot] : batch.slots->begin()) {
    HEED_ASSERT(!batch.running[static_cast<size_t>(slot)]);
    batch.running[static_cast<size_t>(slot)] = std::move(batch.running[static_cast<size_t>(place)]);
  }
}

// Those that nobody waits for any more are not encoded.
void Engine::end_unwanted(Lane& lane, std::vector<Pending>& pending) {
  std::erase_if(pending, [&](Pending& p) {
    if (goes_on(p.request, [] { return SearchProgress(); })) return false;
    --lane.live;
    tell(p.finished, {}, unwanted());
    return true;
  });
}

void Engine::advance(Lane& lane, Batch& batch) {
  Slots& slots = *batch.slots;
  ++steps_taken_;
  sentences_in_steps_ += static_cast<uint64_t>(batch.live);
  try {
    std::vector<Id> last, from;
    std::vector<double> temperatures;  // of a hypothesis
    for (const auto& one : batch.running) {
      const std::vector<Id> tokens = one ? one->beam->last() : std::vector<Id>();
      last.insert(last.end(), tokens.begin(), tokens.end());
      if (!one) last.resize(last.size() + static_cast<size_t>(slots.beam()), slots.pad());
      temperatures.resize(last.size(), one ? temperature_of_draw(one->beam->options()) : 1);
    }
    slots.step(last, temperatures);
    std::vector<int64_t> gone;
    for (size_t s = 0; s < batch.running.size(); ++s) {
      std::vector<Id> grown = in_order(slots.beam());
      const int64_t slot = static_cast<int64_t>(s);
      if (batch.running[s]) {
        Beam& beam = *batch.running[s]->beam;
        try {
          grown = beam.grow(slots, slot);
        } catch (...) {  // this one's own mistake, such as a prefix that cannot be
          end(lane, batch, slot, {}, explained(slots.beam(), batch.live));
        }
        if (batch.running[s] && beam.over())
          end(lane, batch, slot, {.hypotheses = beam.results(), .tree = beam.tree()}, nullptr);
        if (batch.running[s] && !goes_on(*batch.running[s], [&] { return beam.progress(); }))
          end(lane, batch, slot, {}, unwanted());
        if (!batch.running[s]) gone.push_back(slot);
      }
      from.insert(from.end(), grown.begin(), grown.end());
    }
    for (const auto& [before, after] : slots.choose(from, gone))
      batch.running[static_cast<size_t>(after)] =
          std::move(batch.running[static_cast<size_t>(before)]);
    batch.running.resize(static_cast<size_t>(slots.size()));
  } catch (...) {
    const std::exception_ptr error = explained(slots.beam(), batch.live);
    end_all(lane, batch, error);
    batch = {};
  }
}

// The device takes the choices: the host launches a step while the one before runs, and hears of
// sentences a step after their last.
void Engine::advance_ahead(Lane& lane, Batch& batch) {
  constexpr size_t kBehind = 1;
  ++steps_taken_;
  try {
    begin(batch);
    sentences_in_steps_ += static_cast<uint64_t>(batch.live - batch.slots->waiting());
    batch.slots->step_ahead();
    for (Slots::Ended& one : batch.slots->ended(kBehind))
      end(lane, batch, one.slot, {.hypotheses = std::move(one.hypotheses)}, one.error);
    // Who is not wanted any more has his slot until his search is over.
    for (const auto& one : batch.running)
      if (one && one->finished && one->wanted && !goes_on(*one, [] { return SearchProgress(); }))
        tell(std::exchange(one->finished, nullptr), {}, unwanted());
  } catch (...) {
    const std::exception_ptr error = explained(batch.slots->beam(), batch.live);
    end_all(lane, batch, error);
    batch = {};
  }
}

}  // namespace heed
