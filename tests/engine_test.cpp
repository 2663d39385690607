// The decoding engine: sentences join and leave a running batch at any step, and give what they
// give alone, bit for bit.
#include "heed/search/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/elsewhere.h"
#include "tests/folder.h"
#include "tests/small_language_models.h"
#include "tests/sources.h"
#include "tests/toy.h"

namespace heed {
namespace {

constexpr Id kEnd = 3;
constexpr int64_t kSource = 19, kTarget = 17;

struct Named {
  std::string name;
  ModelConfig config;
};

// A recurrent model and a Transformer, every kind of position, every score that has parameters by
// position, and language models.
std::vector<Named> models() {
  ModelConfig rnn;
  rnn.size = 16, rnn.dropout = 0, rnn.positions = 40;
  ModelConfig transformer = rnn;
  transformer.family = "transformer", transformer.score = "scaled_dot", transformer.heads = 2;
  transformer.inner = 24, transformer.encoder_layers = transformer.decoder_layers = 2;
  std::vector<Named> out{{"rnn", rnn}, {"sinusoidal", transformer}};
  for (const char* position : {"learned", "rotary"}) {
    out.push_back({position, transformer});
    out.back().config.position = position;
  }
  for (const char* score : {"static", "location"}) {
    out.push_back({std::string("transformer, ") + score, transformer});
    out.back().config.score = score;
    out.push_back({std::string("rnn, ") + score, rnn});
    out.back().config.score = score;
  }
  out.push_back({"rnn, static by rank", rnn});
  out.back().config.score = "static", out.back().config.rank = 3;
  ModelConfig fed = rnn;
  fed.wiring = "after", fed.input_feeding = true, fed.cell = "lstm", fed.score = "bilinear";
  out.push_back({"input feeding", fed});
  ModelConfig attends = small_rnn();
  attends.positions = 60;
  out.push_back({"language model, rnn", attends});
  ModelConfig reads = small_transformer();
  reads.positions = 60;
  out.push_back({"language model, transformer", reads});
  return out;
}

std::unique_ptr<Model> made(const Params& params, const ModelConfig& config) {
  const bool language = is_language_model(config);
  return make_model(params, config, {language ? kTarget : kSource, kTarget, language});
}

std::vector<Engine::Request> requests(const ModelConfig& config, int count, int64_t beam) {
  Random random(11);
  std::vector<Engine::Request> out;
  for (int i = 0; i < count; ++i) {
    Engine::Request r;
    if (!is_language_model(config)) {
      for (uint32_t n = random.below(9); n-- > 0;)
        r.source.push_back(4 + static_cast<Id>(random.below(15)));
      r.source.push_back(kEnd);
    }
    r.options.beam = r.options.best = beam;
    r.options.max_extra = 3 + static_cast<int64_t>(random.below(20));
    r.options.want_weights = has_attention(config);
    for (uint32_t n = random.below(4); n-- > 0;)
      r.prefix.push_back(4 + static_cast<Id>(random.below(12)));
    r.number = i;
    r.slots = 6;
    out.push_back(std::move(r));
  }
  return out;
}

void expect_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids);
    EXPECT_EQ(a[i].log_probability, b[i].log_probability);
    EXPECT_EQ(a[i].score, b[i].score);
    EXPECT_EQ(a[i].weights, b[i].weights);
  }
}

std::vector<Hypothesis> alone(const Model& model, const Engine::Request& request) {
  Engine engine(model);
  return engine.decode({request})[0].hypotheses;
}

// Some arrive at once, then a few before each step: more than there are slots for.
std::vector<Engine::Result> as_they_arrive(Engine& engine,
                                           const std::vector<Engine::Request>& all) {
  Random random(3);
  std::vector<Engine::Result> found(all.size());
  std::map<size_t, int> finished;
  size_t next = 0;
  const auto arrive = [&](size_t count) {
    for (; count > 0 && next < all.size(); --count, ++next)
      engine.submit(all[next],
                    [&found, &finished, i = next](Engine::Result r, std::exception_ptr e) {
                      EXPECT_FALSE(e);
                      found[i] = std::move(r);
                      ++finished[i];
                    });
  };
  arrive(4);
  while (engine.step() || next < all.size()) arrive(random.below(4));
  EXPECT_EQ(finished.size(), all.size());
  for (const auto& [i, times] : finished) EXPECT_EQ(times, 1) << i;
  return found;
}

TEST(Engine, WhoeverArrivesAtAnyMomentGivesTheSameBytesAsAlone) {
  for (const Named& n : models()) {
    const Params params(5);
    const auto model = made(params, n.config);
    for (const Engine::Steps steps : {Engine::Steps::plain, Engine::Steps::as_graphs})
      for (const int64_t beam : {1, 4}) {
        SCOPED_TRACE(n.name + ", beam " + std::to_string(beam) +
                     (steps == Engine::Steps::plain ? "" : ", as graphs"));
        const std::vector<Engine::Request> all = requests(n.config, 24, beam);
        Engine engine(*model, {.steps = steps});
        const std::vector<Engine::Result> found = as_they_arrive(engine, all);
        for (size_t i = 0; i < all.size(); ++i) {
          SCOPED_TRACE(i);
          expect_same(found[i].hypotheses, alone(*model, all[i]));
        }
      }
  }
}

// Many, and more than there are slots for all the while.
TEST(Engine, FiveHundredArriveFasterThanTheyAreDecoded) {
  for (const size_t which : {0, 1, 10, 11}) {
    const Named n = models()[which];
    const Params params(5);
    const auto model = made(params, n.config);
    for (const int64_t beam : {1, 5}) {
      SCOPED_TRACE(n.name + ", beam " + std::to_string(beam));
      const std::vector<Engine::Request> all = requests(n.config, kSlow ? 50 : 500, beam);
      Engine engine(*model);
      const std::vector<Engine::Result> found = as_they_arrive(engine, all);
      int different = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const std::vector<Hypothesis> one = alone(*model, all[i]);
        different += one.size() != found[i].hypotheses.size() || one.empty() ||
                     one[0].ids != found[i].hypotheses[0].ids ||
                     one[0].log_probability != found[i].hypotheses[0].log_probability ||
                     one[0].weights != found[i].hypotheses[0].weights;
      }
      EXPECT_EQ(different, 0);
    }
  }
}

TEST(Engine, RequestsOfDifferentKindsRunSideBySide) {
  const Params params(5);
  const ModelConfig config = models()[1].config;
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 18, 1);
  for (size_t i = 0; i < all.size(); ++i) {
    SearchOptions& o = all[i].options;
    o.beam = i % 3 == 0 ? 3 : 1, o.best = 1, o.want_weights = i % 2 == 0, o.sample = i % 3 == 1;
    o.seed = 7, o.temperature = 0.8;
  }
  Engine engine(*model);
  const std::vector<Engine::Result> found = as_they_arrive(engine, all);
  for (size_t i = 0; i < all.size(); ++i) expect_same(found[i].hypotheses, alone(*model, all[i]));
}

// A mistake of one sentence is its own.
TEST(Engine, WhatGoesWrongWithOneDoesNotTouchTheOthers) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 8, 2);
  all[3].prefix = {99};
  Engine engine(*model);
  std::vector<std::vector<Hypothesis>> found(all.size());
  std::string said;
  for (size_t i = 0; i < all.size(); ++i)
    engine.submit(all[i], [&, i](Engine::Result r, std::exception_ptr error) {
      found[i] = std::move(r.hypotheses);
      if (error) said += message([&] { std::rethrow_exception(error); }) + "|";
    });
  while (engine.step()) {
  }
  EXPECT_EQ(said, "search: a prefix has token 99 of 17|");
  for (size_t i = 0; i < all.size(); ++i)
    if (i != 3) expect_same(found[i], alone(*model, all[i]));
  EXPECT_TRUE(has(message([&] { engine.decode(all); }), "token 99 of 17"));
  SearchOptions bad;
  bad.beam = 0;
  EXPECT_TRUE(
      has(message([&] { engine.decode({{.source = {kEnd}, .options = bad}}); }), "wants a beam"));
  EXPECT_TRUE(has(message([&] { engine.decode({{.source = {kEnd}, .slots = 0}}); }),
                  "at least one sentence"));
  EXPECT_TRUE(engine.decode({}).empty());
}

TEST(Engine, ASourceThatCannotBeReadFailsAlone) {
  const Params params(5);
  const ModelConfig config = models()[2].config;  // learned positions, 40 of them
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 6, 1);
  Engine engine(*model);
  EXPECT_TRUE(has(message([&] { engine.decode({{.source = std::vector<Id>(41, 5)}}); }),
                  "the model has 40 positions"));
  std::vector<std::vector<Hypothesis>> found(all.size());
  int errors = 0;
  const auto submit = [&](size_t i) {
    engine.submit(all[i], [&, i](Engine::Result r, std::exception_ptr error) {
      found[i] = std::move(r.hypotheses);
      errors += error != nullptr;
    });
  };
  for (size_t i = 0; i < 3; ++i) submit(i);
  engine.step();
  all[4].source = {1000, kEnd};  // no such token; those that join with it share the mistake
  submit(4);
  engine.step();
  submit(3), submit(5);
  while (engine.step()) {
  }
  EXPECT_EQ(errors, 1);
  for (const size_t i : {0, 1, 2, 3, 5}) expect_same(found[i], alone(*model, all[i]));
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Engine, ABeamThatMemoryDoesNotSufficeForIsNamed) {
  if (!addresses_can_be_limited()) GTEST_SKIP() << "this system keeps to no limit of addresses";
  EXPECT_TRUE(elsewhere([] {
    limit_addresses(48 << 20);
    const auto context = Context::make({.threads = 1});
    const UseContext here(*context);
    const Params params(1);
    const auto model = made(params, models()[1].config);
    Engine engine(*model);
    Engine::Request wide{.source = std::vector<Id>(30, 5)};
    wide.options.beam = 1000, wide.options.min_length = 70;
    const std::string said = message([&] { engine.decode({wide}); });
    // And what is smaller goes on as before.
    wide.options.beam = 2;
    return said.starts_with("search: out of memory with a beam of 1000 and 1 sentence at a time") &&
           said.find("; a smaller --beam needs less (") != said.npos &&
           !engine.decode({wide}).empty();
  }));
}
#endif

// Whoever is told of a result may ask for another one, and what it throws is its own.
TEST(Engine, WhoIsToldMayAskAgain) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  const std::vector<Engine::Request> all = requests(config, 9, 2);
  Engine engine(*model);
  int asked = 0;
  const auto found = engine.decode(all, [&](size_t i) {
    ++asked;
    expect_same(engine.decode({all[i]})[0].hypotheses, alone(*model, all[i]));
  });
  EXPECT_EQ(asked, 9);
  for (size_t i = 0; i < all.size(); ++i) expect_same(found[i].hypotheses, alone(*model, all[i]));
  int told = 0;
  for (const Engine::Request& r : all)
    engine.submit(r, [&](Engine::Result, std::exception_ptr error) {
      EXPECT_FALSE(error);
      if (++told % 2) fail("mine alone");
    });
  while (engine.step()) {
  }
  EXPECT_EQ(told, 9);
}

TEST(Engine, WhatIsLeftWhenItEndsIsToldSo) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  std::string said;
  {
    Engine engine(*model);
    for (const Engine::Request& r : requests(config, 9, 1))
      engine.submit(r, [&](Engine::Result, std::exception_ptr error) {
        if (error) said = message([&] { std::rethrow_exception(error); });
      });
    engine.step();
  }
  EXPECT_EQ(said, "search: the engine has ended");
}

// What a caller's own function throws ends its call, not the loop.
TEST(Engine, AFunctionThatThrowsEndsItsCallAlone) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  const std::vector<Engine::Request> all = requests(config, 5, 1);
  Engine engine(*model);
  EXPECT_EQ(message([&] { engine.decode(all, [](size_t) { fail("enough"); }); }), "enough");
  expect_same(engine.decode(all)[2].hypotheses, alone(*model, all[2]));
}

// A greedy search's tokens come one by one; who does not want his any more is out, he alone.
TEST(Engine, TellsOfEachStepAndEndsWhatIsNotWanted) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 6, 1);
  for (Engine::Request& r : all) r.options.min_length = 3;
  const std::vector<Engine::Request> plain = all;
  std::vector<std::vector<Id>> last(all.size());
  std::vector<bool> begun(all.size(), false);
  for (size_t i = 0; i < all.size(); ++i)
    all[i].progress = [&, i](const SearchProgress& progress) {
      const std::vector<Id>& so_far = progress.likeliest;
      EXPECT_TRUE(progress.grown.empty());
      EXPECT_EQ(so_far.size(), begun[i] ? last[i].size() + 1 : 0);
      if (!begun[i]) {
        begun[i] = true;
        return;
      }
      EXPECT_TRUE(std::equal(last[i].begin(), last[i].end(), so_far.begin()));
      last[i] = so_far;
      if (i == 4) fail("mine alone");
    };
  all[2].wanted = [&] { return last[2].empty(); };
  Engine engine(*model);
  std::vector<std::vector<Hypothesis>> found(all.size());
  std::string said;
  for (size_t i = 0; i < all.size(); ++i)
    engine.submit(all[i], [&, i](Engine::Result r, std::exception_ptr error) {
      found[i] = std::move(r.hypotheses);
      if (error) said += std::to_string(i) + message([&] { std::rethrow_exception(error); }) + "|";
    });
  EXPECT_EQ(engine.load().waiting, 6);
  while (engine.step()) {
  }
  EXPECT_EQ(said, "4search: not wanted any more|2search: not wanted any more|");
  EXPECT_EQ(last[2].size(), 1U);
  for (const size_t i : {0, 1, 3, 5}) {
    expect_same(found[i], alone(*model, plain[i]));
    EXPECT_EQ(last[i], found[i][0].ids);
  }
  EXPECT_GE(engine.load().sentences, 6U);
  EXPECT_EQ(engine.load().waiting, 0);
}

// Where the searches are kept with the steps, who is not wanted has a slot until his is over; all
// others get what they get alone, however long theirs may be.
TEST(Engine, StepsThatChooseForThemselvesEndWhatIsNotWanted) {
  for (const Named& named : {models()[0], models()[1]})
    for (const int64_t beam : {1, 3}) {
      SCOPED_TRACE(named.name + ", beam " + std::to_string(beam));
      const Params params(5);
      const auto model = made(params, named.config);
      std::vector<Engine::Request> all = requests(named.config, 30, beam);
      // The last ones may be longer than there is room for at first; few have slots.
      for (size_t i = 0; i < all.size(); ++i) {
        all[i].slots = 8;
        all[i].options.min_length = 3, all[i].options.max_extra = i < 20 ? 5 : 30;
      }
      const std::vector<Engine::Request> plain = all;
      int asked = 0;
      all[2].wanted = [&] { return ++asked < 3; };
      Engine engine(*model, {.steps = Engine::Steps::as_graphs});
      std::vector<std::vector<Hypothesis>> found(all.size());
      std::string said;
      for (size_t i = 0; i < all.size(); ++i)
        engine.submit(all[i], [&, i](Engine::Result r, std::exception_ptr error) {
          found[i] = std::move(r.hypotheses);
          if (error)
            said += std::to_string(i) + message([&] { std::rethrow_exception(error); }) + "|";
        });
      while (engine.step()) {
      }
      EXPECT_EQ(said, "2search: not wanted any more|");
      for (size_t i = 0; i < all.size(); ++i)
        if (i != 2) expect_same(found[i], alone(*model, plain[i]));
    }
}

// Where searches are kept with the steps, more sentences are encoded than there are slots, and
// begin in the order in which they came as slots become idle.
TEST(Engine, SourcesAreEncodedAheadOfTheirTurn) {
  const Params params(5);
  const auto model = made(params, models()[1].config);
  const NoTape off;
  for (const int64_t beam : {1, 3}) {
    std::vector<Engine::Request> all = requests(models()[1].config, 40, beam);
    std::vector<std::vector<Id>> sources;
    std::vector<int64_t> longest;
    for (Engine::Request& r : all) {
      r.options.want_weights = false, r.prefix.clear(), r.options.best = 1;
      r.options.min_length = 2, r.options.max_ratio = 0, r.options.max_extra = 12;
      sources.push_back(r.source);
      longest.push_back(longest_target(r.options, std::ssize(r.source)));
    }
    const Slots::Kind kind{.beam = beam,
                           .likeliest = 2 * beam + 8,
                           .slots = 8,
                           .resident = ResidentBeams::rules(all[0].options)};
    ASSERT_TRUE(kind.resident);
    Slots slots(*model, kind, all[0].options.pad);
    EXPECT_EQ(slots.room(), Slots::may_wait(kind));
    ASSERT_GE(slots.room(), 40);
    std::map<int64_t, size_t> of;  // which sentence a slot or place has
    size_t joined = 0;
    for (const int64_t place : slots.join(sources, {}, longest)) {
      EXPECT_GE(place, slots.size());
      of[place] = joined++;
    }
    EXPECT_EQ(slots.room(), Slots::may_wait(kind) - 40);
    size_t begun = 0, ended = 0;
    for (int steps = 0; ended < all.size() && steps < 1000; ++steps) {
      for (const auto& [place, slot] : slots.begin()) {
        EXPECT_EQ(of.at(place), begun++);
        EXPECT_LT(slot, slots.size());
        EXPECT_FALSE(of.contains(slot)) << "two sentences in a slot";
        of[slot] = of.at(place), of.erase(place);
      }
      slots.step_ahead();
      for (const Slots::Ended& one : slots.ended(1)) {
        const size_t i = of.at(one.slot);
        SCOPED_TRACE(i);
        expect_same(one.hypotheses, alone(*model, all[i]));
        of.erase(one.slot), ++ended;
      }
    }
    EXPECT_EQ(ended, all.size());
    EXPECT_EQ(slots.room(), Slots::may_wait(kind));
  }
}

// Where one joins for whom searches have to lie elsewhere, those that have ended are found; their
// slots are free once they are told.
TEST(Engine, WhoHasEndedIsToldBeforeHisSlotIsTaken) {
  const Params params(5);
  const auto model = made(params, models()[1].config);
  const NoTape off;
  std::vector<Engine::Request> all = requests(models()[1].config, 21, 1);
  std::vector<std::vector<Id>> sources;
  std::vector<int64_t> longest;
  for (Engine::Request& r : all) {
    r.options.want_weights = false, r.prefix.clear(), r.options.best = 1;
    r.options.min_length = 2, r.options.max_ratio = 0, r.options.max_extra = 6;
    sources.push_back(r.source);
    longest.push_back(longest_target(r.options, std::ssize(r.source)));
  }
  Slots slots(
      *model,
      {.beam = 1, .likeliest = 10, .slots = 8, .resident = ResidentBeams::rules(all[0].options)},
      all[0].options.pad);
  std::map<int64_t, size_t> of;
  const auto join = [&](size_t first, size_t last, std::vector<int64_t> most) {
    for (const int64_t place :
         slots.join({sources.data() + first, sources.data() + last}, {}, most))
      of[place] = first++;
  };
  size_t begun = 0;
  const auto begin = [&] {
    for (const auto& [place, slot] : slots.begin()) {
      EXPECT_FALSE(of.contains(slot)) << "two sentences in a slot";
      of[slot] = of.at(place), of.erase(place), ++begun;
    }
  };
  join(0, 20, {longest.begin(), longest.begin() + 20});
  begin();
  ASSERT_EQ(begun, 8u);
  for (int i = 0; i < 12; ++i) slots.step_ahead();  // all of these end; nobody asks
  join(20, 21, {1000});
  begin();
  EXPECT_EQ(begun, 8u);
  size_t ended = 0;
  for (int steps = 0; ended < all.size() && steps < 2000; ++steps) {
    for (const Slots::Ended& one : slots.ended(1)) {
      if (const size_t i = of.at(one.slot); i < 20)
        expect_same(one.hypotheses, alone(*model, all[i]));
      of.erase(one.slot), ++ended;
    }
    begin();
    slots.step_ahead();
  }
  EXPECT_EQ(ended, all.size());
}

// The tree is told as it grows, each node once; the last step's are in the result alone.
TEST(Engine, TellsOfTheTreeAsItGrows) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 3, 3);
  std::vector<std::vector<SearchNode>> told(all.size());
  std::vector<int> times(all.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].options.want_tree = true;
    all[i].options.min_length = 3;
    all[i].progress = [&, i](const SearchProgress& so_far) {
      // The likeliest is a way that has been told of.
      const std::vector<Id>& tokens = so_far.likeliest;
      EXPECT_EQ(so_far.grown.empty(), tokens.empty());
      told[i].insert(told[i].end(), so_far.grown.begin(), so_far.grown.end());
      const bool known = std::ranges::any_of(
          told[i], [&](const SearchNode& n) { return n.token == tokens.back() && !n.finished; });
      EXPECT_TRUE(tokens.empty() || known);
      ++times[i];
    };
  }
  Engine engine(*model);
  const std::vector<Engine::Result> found = engine.decode(all);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<SearchNode>& whole = found[i].tree;
    EXPECT_GT(times[i], 3);
    ASSERT_LT(told[i].size(), whole.size());
    for (size_t n = 0; n < told[i].size(); ++n) {
      EXPECT_EQ(told[i][n].token, whole[n].token);
      EXPECT_EQ(told[i][n].parent, whole[n].parent);
      EXPECT_EQ(told[i][n].log_probability, whole[n].log_probability);
      EXPECT_EQ(told[i][n].score, whole[n].score);
      EXPECT_FALSE(told[i][n].best);
    }
  }
}

TEST(Engine, WhatIsNotWantedBeforeItBeginsIsNotComputed) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  std::vector<Engine::Request> all = requests(config, 100, 1);
  for (Engine::Request& r : all) r.wanted = [] { return false; };
  Engine engine(*model);
  EXPECT_EQ(message([&] { engine.decode(all); }), "search: not wanted any more");
  EXPECT_EQ(engine.load().sentences, 0U);
  all[70].wanted = {};
  Engine other(*model);
  EXPECT_EQ(message([&] { other.decode(all); }), "search: not wanted any more");
  EXPECT_GT(other.load().sentences, 0U);
}

// Callers sleep while one of them takes the steps, or somebody else does: all of them wake.
void wakes_callers(Engine::Drives drives) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  const std::vector<Engine::Request> all = requests(config, 12, 1);
  std::vector<std::vector<Hypothesis>> wanted;
  for (const Engine::Request& r : all) wanted.push_back(alone(*model, r));
  Engine engine(*model, {.drives = drives});
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over)
      if (!engine.step()) std::this_thread::yield();
  });
  std::vector<std::thread> callers;
  for (size_t c = 0; c < 8; ++c)
    callers.emplace_back([&, c] {
      for (int again = 0; again < 30; ++again) {
        const size_t i = (c + static_cast<size_t>(again)) % all.size();
        size_t told = 0;
        const auto tell = [&](size_t) { ++told; };
        const auto found = c % 2 ? engine.decode({all[i], all[0]}, tell) : engine.decode({all[i]});
        EXPECT_EQ(found[0].hypotheses[0].ids, wanted[i][0].ids);
        EXPECT_EQ(told, c % 2 ? 2U : 0U);
      }
    });
  for (std::thread& c : callers) c.join();
  over = true;
  other.join();
}
TEST(Engine, CallersThatSleepAreWoken) { wakes_callers(Engine::Drives::callers); }
TEST(Engine, AThreadOfItsOwnTakesTheSteps) { wakes_callers(Engine::Drives::own_threads); }

// Several lanes share what arrives, as soon as there is enough for each.
TEST(Engine, LanesShareWhatArrives) {
  const ModelConfig config = models()[1].config;
  const auto arena = Arena::shared(Device::cpu);
  const UseArena of_no_context(*arena);
  const Params params(5);
  const auto model = made(params, config);
  const std::vector<Engine::Request> all = requests(config, 60, 2);
  std::vector<std::vector<Hypothesis>> wanted;
  for (const Engine::Request& r : all) wanted.push_back(alone(*model, r));
  for (const int64_t worth : {1, 4}) {
    std::set<std::thread::id> at_work;
    std::mutex mutex;
    std::condition_variable came;
    Engine engine(*model, {.context = Context::make({.threads = 3}),
                           .packed = std::make_shared<PackedWeights>(),
                           .drives = Engine::Drives::own_threads,
                           .worth_a_lane = worth});
    ASSERT_EQ(engine.lanes(), 3);
    // How many threads take steps of so many sentences; each waits until so many have come.
    const auto watched = [&](size_t count, size_t expected) {
      std::vector<Engine::Request> some(all.begin(),
                                        all.begin() + static_cast<std::ptrdiff_t>(count));
      for (Engine::Request& r : some)
        r.wanted = [&] {
          std::unique_lock lock(mutex);
          at_work.insert(std::this_thread::get_id());
          came.notify_all();
          return came.wait_for(lock, std::chrono::seconds(60),
                               [&] { return at_work.size() >= expected; });
        };
      at_work.clear();
      const auto found = engine.decode(some);
      for (size_t i = 0; i < count; ++i) expect_same(found[i].hypotheses, wanted[i]);
      return at_work.size();
    };
    EXPECT_EQ(watched(60, 3), 3U);
    EXPECT_EQ(watched(1, 1), 1U);
    EXPECT_EQ(watched(3, worth == 1 ? 3 : 1), worth == 1 ? 3U : 1U);
    EXPECT_EQ(watched(8, worth == 1 ? 3 : 2), worth == 1 ? 3U : 2U);
  }
}

// Steps without end let in who computes something else, after the one that is under way.
TEST(Engine, WhoWantsATurnGetsItBetweenTwoSteps) {
  Turns turns;
  std::atomic<int> steps = 0;
  std::atomic<bool> over = false;
  std::thread loop([&] {
    while (!over) {
      const std::lock_guard turn(turns);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++steps;
    }
  });
  for (int again = 0; again < 20; ++again) {
    while (turns.try_lock()) turns.unlock();  // a step is under way
    const int before = steps;
    const std::lock_guard mine(turns), once_more(turns);
    EXPECT_LE(steps, before + 1);
  }
  over = true;
  loop.join();
}

// Nobody calls step() or decode(): it goes on by itself, sleeps, and goes on again.
TEST(Engine, AThreadOfItsOwnNeedsNoCaller) {
  const Params params(5);
  const ModelConfig config = models()[0].config;
  const auto model = made(params, config);
  const std::vector<Engine::Request> all = requests(config, 3, 1);
  Engine engine(*model, {.drives = Engine::Drives::own_threads});
  for (const Engine::Request& r : all) {
    const auto promised = std::make_shared<std::promise<std::vector<Hypothesis>>>();
    engine.submit(r, [promised](Engine::Result found, std::exception_ptr) {
      promised->set_value(std::move(found.hypotheses));
    });
    expect_same(promised->get_future().get(), alone(*model, r));
  }
}

}  // namespace
}  // namespace heed
