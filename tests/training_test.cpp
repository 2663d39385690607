// Training: that it learns, its loss and updates, and what can go wrong. Stopping: resume_test.cpp.
#include "heed/training/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "heed/models/tensor_file.h"
#include "heed/ops/bf16.h"
#include "heed/search/search.h"
#include "heed/training/optimizer.h"
#include "tests/toy_run.h"

namespace heed {
namespace {

// The share of the corpus that greedy search gets wholly right.
double accuracy(const ToyRun& run) {
  double right = 0, all = 0;
  for (const Batch& b : batches_once(*run.corpus, {})) {
    const auto found = search(*run.model, source_of(b), {.beam = 1});
    for (int64_t i = 0; i < b.rows; ++i) {
      const Id* row = b.target.data() + i * b.target_width;
      const std::vector<Id> wanted(row, row + b.target_lengths[static_cast<size_t>(i)] - 1);
      right += found[static_cast<size_t>(i)][0].ids == wanted;
      ++all;
    }
  }
  return right / all;
}

TEST(Learning, ReversingIsLearnt) {
  for (const ModelConfig& model : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(model.family);
    const Folder folder;
    TrainConfig config;
    config.rate = 5e-3, config.warmup = 50, config.batch_tokens = 256, config.smoothing = 0;
    config.average = 0, config.steps = kSlow ? 60 : 400;
    ToyRun run = begin(toy_corpus(folder), model, config, folder.path());
    const double at_first = loss_of(run);
    EXPECT_EQ(run.trainer->run({}), Trainer::End::limit);
    EXPECT_EQ(run.trainer->steps(), config.steps);
    if (kSlow) {
      EXPECT_LT(loss_of(run), 0.8 * at_first);
    } else {
      EXPECT_LT(loss_of(run), 0.1);
      EXPECT_GT(accuracy(run), 0.9);
    }
  }
}

// Mixed precision on a CPU; where it has no instructions for it, it says so.
TEST(Learning, ReversingIsLearntInBf16) {
  const Folder folder;
  TrainConfig config;
  config.rate = 5e-3, config.warmup = 50, config.batch_tokens = 256, config.smoothing = 0;
  config.average = 0, config.steps = kSlow ? 60 : 400, config.precision = "bf16";
  const auto corpus = toy_corpus(folder);
  if (!bf16_products_are_fast()) {
    EXPECT_TRUE(has(message([&] { begin(corpus, toy_rnn(), config, folder.path()); }),
                    "wants a CPU with AVX-512 BF16"));
    GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  }
  for (const ModelConfig& model : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(model.family);
    ToyRun run = begin(corpus, model, config, folder / model.family);
    const double at_first = loss_of(run);
    EXPECT_EQ(run.trainer->run({}), Trainer::End::limit);
    EXPECT_LT(loss_of(run), kSlow ? 0.8 * at_first : 0.1);
    if (!kSlow) {
      EXPECT_GT(accuracy(run), 0.9);
    }
  }
}

// ---- schedules

TEST(Schedule, InverseSquareRootGrowsThenFalls) {
  const Schedule s{.kind = "inverse_sqrt", .rate = 2e-3, .warmup = 100};
  EXPECT_DOUBLE_EQ(rate_at(s, 1), 2e-5);
  EXPECT_DOUBLE_EQ(rate_at(s, 50), 1e-3);
  EXPECT_DOUBLE_EQ(rate_at(s, 100), 2e-3);
  EXPECT_DOUBLE_EQ(rate_at(s, 400), 1e-3);
  EXPECT_DOUBLE_EQ(rate_at({.kind = "inverse_sqrt", .rate = 1, .warmup = 0}, 4), 0.5);
}

TEST(Schedule, CosineEndsAtZero) {
  const Schedule s{.kind = "cosine", .rate = 1, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(rate_at(s, 10), 1);
  EXPECT_NEAR(rate_at(s, 60), 0.5, 1e-12);
  EXPECT_NEAR(rate_at(s, 110), 0, 1e-12);
  EXPECT_NEAR(rate_at(s, 200), 0, 1e-12);
  EXPECT_TRUE(has(message([] { rate_at({.kind = "cosine", .warmup = 10, .steps = 10}, 20); }),
                  "set the number of steps"));
}

TEST(Schedule, ConstantAndPlateauStay) {
  EXPECT_DOUBLE_EQ(rate_at({.kind = "constant", .rate = 3, .warmup = 10}, 5), 1.5);
  EXPECT_DOUBLE_EQ(rate_at({.kind = "constant", .rate = 3, .warmup = 10}, 5000), 3);
  EXPECT_DOUBLE_EQ(rate_at({.kind = "plateau", .rate = 3, .warmup = 10, .factor = 0.25}, 99), 0.75);
}

// One parameter of two elements; the loss is such that its gradient is what is given.
void give_gradient(const Tensor& w, const std::vector<double>& gradient) {
  Tape tape;
  tape.backward(sum(w * tensor(gradient, {2}, w.type())));
}

TEST(Sgd, FollowsItsFormula) {
  const double rate = 0.1, momentum = 0.9, decay = 0.01;
  const Params params(1, Type::f64);
  const Tensor w = params.add("w", {2}, constant(1));
  Sgd sgd(params, {.momentum = momentum, .decay = decay});
  std::vector<double> wanted = {1, 1}, velocity = {0, 0};
  for (const std::vector<double>& g : {std::vector{1.0, -2.0}, {0.5, 3.0}, {0.0, 1.0}}) {
    give_gradient(w, g);
    sgd.step(rate);
    EXPECT_DOUBLE_EQ(sgd.gradient_norm(), std::hypot(g[0], g[1]));
    for (size_t i = 0; i < 2; ++i) {
      velocity[i] = momentum * velocity[i] + g[i];
      wanted[i] = (1 - rate * decay) * wanted[i] - rate * velocity[i];
      EXPECT_NEAR(w.values()[i], wanted[i], 1e-15);
    }
    EXPECT_FALSE(w.parameter_state()->grad) << "it was not forgotten";
  }
}

TEST(Sgd, ClipsAndMovesNothingByWhatIsNoNumber) {
  const Params params(1, Type::f64);
  const Tensor w = params.add("w", {2}, constant(1));
  Sgd sgd(params, {.clip_norm = 1});
  give_gradient(w, {3, 4});
  sgd.step(0.5);
  EXPECT_NEAR(w.values()[0], 1 - 0.5 * 0.6, 1e-15);
  EXPECT_NEAR(w.values()[1], 1 - 0.5 * 0.8, 1e-15);
  const std::vector<double> before = w.values();
  give_gradient(w, {std::nan(""), 1});
  sgd.step(0.5);
  EXPECT_EQ(w.values(), before);
  EXPECT_TRUE(std::isnan(sgd.gradient_norm()));
}

TEST(Sgd, SaysWhatCannotBe) {
  const Params params(1);
  EXPECT_EQ(message([&] { Sgd(params, {.momentum = 1}); }),
            "sgd: momentum must be in [0, 1), given 1");
  Sgd early(params);
  params.add("w", {2}, constant(1));
  EXPECT_EQ(message([&] { early.step(0.1); }),
            "sgd: was made for 0 parameters, there are 1 now; make it when the model is complete");
}

TEST(TrainConfig, WhatMakesNoSenseIsRefused) {
  const auto said = [](const std::string& json) {
    return message([&] { train_config(json, "config.json"); });
  };
  EXPECT_EQ(said(R"({"steps": 1})"), "");
  EXPECT_TRUE(has(said("{}"), "nothing would end it"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "schedule": "cosin"})"), "did you mean 'cosine'"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "stop_on": "blue"})"), "did you mean 'bleu'"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "acumulate": 2})"), "did you mean 'accumulate'"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "rate": 0})"), "rate wants a number above 0"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "smoothing": 1})"), "smoothing wants a share"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "sampling": 2})"), "sampling wants a number in [0, 1]"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "average": 1})"), "average wants a factor"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "average_last": -1})"), "average_last wants a number"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "accumulate": 0})"),
                  "accumulate wants a number of at least 1, given 0"));
  EXPECT_TRUE(has(said(R"({"steps": 1, "minutes": -1})"), "minutes wants a number of at least 0"));
  EXPECT_TRUE(has(said(R"({"steps": 9, "schedule": "cosine"})"), "beyond the warm-up's 1000"));
  TrainConfig c;
  c.steps = 7, c.seed = 1ull << 63, c.rate = 1.25e-3;
  const TrainConfig back = train_config(to_json(c), "here");
  EXPECT_EQ(to_json(back), to_json(c));
  EXPECT_EQ(back.seed, c.seed);
}

// ---- the loss

Batch first_batch(Corpus& corpus) { return batches_once(corpus, {.tokens = 120}).front(); }

TEST(Loss, IsTheMeanOverWordsWithoutPadding) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  // One by one, without padding, and all in one batch with it.
  const auto window = corpus->window(0);
  std::vector<PairView> rows;
  double sum = 0, words = 0;
  for (int64_t i = 0; i < 6; ++i) {
    rows.push_back((*window)[i]);
    const Batch one = make_batch({&rows.back(), 1}, {}, {});
    const double loss = batch_loss(*run.model, one, {.smoothing = 0}).cross_entropy.item();
    EXPECT_NEAR(negative_log_likelihood(*run.model, one), loss * double(one.target_tokens()), 1e-4);
    sum += loss * double(one.target_tokens()), words += double(one.target_tokens());
  }
  const Batch all = make_batch(rows, {}, {});
  ASSERT_GT(all.padding(), 0);
  EXPECT_EQ(double(all.target_tokens()), words);
  EXPECT_NEAR(batch_loss(*run.model, all, {.smoothing = 0}).cross_entropy.item(), sum / words,
              1e-5);
}

// (1 - s) * cross entropy + s * the mean of -log p over all words.
TEST(Loss, SmoothingMixesInAllWords) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  const Batch b = first_batch(*corpus);
  const TeacherForced forced =
      run.model->forward(source_of(b), ids(b.target_in, {b.rows, b.target_width}), false);
  const Tensor p = log_softmax(linear(forced.hidden, run.model->output_weight()));
  const int64_t V = p.size(2);
  const std::vector<double> all = p.values();
  double right = 0, any = 0;
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t t = 0; t < b.target_lengths[static_cast<size_t>(i)]; ++t) {
      const double* row = all.data() + (i * b.target_width + t) * V;
      right -= row[b.target[static_cast<size_t>(i * b.target_width + t)]];
      for (int64_t w = 0; w < V; ++w) any -= row[w] / double(V);
    }
  const double words = double(b.target_tokens());
  EXPECT_NEAR(batch_loss(*run.model, b, {.smoothing = 0}).total.item(), right / words, 1e-5);
  EXPECT_NEAR(batch_loss(*run.model, b, {.smoothing = 0.3}).total.item(),
              (0.7 * right + 0.3 * any) / words, 1e-5);
}

// The mean weight that words put on what they are linked with.
double weight_on_links(const ToyRun& run) {
  double on = 0, links = 0;
  for (const Batch& b : batches_once(*run.corpus, {})) {
    const TeacherForced forced =
        run.model->forward(source_of(b), ids(b.target_in, {b.rows, b.target_width}), true);
    const AlignmentHead taught = run.model->guided_head();
    const std::vector<double> w =
        chosen_weights(forced.weights, taught.layer, taught.head).values();
    for (int64_t i = 0; i < b.rows; ++i)
      for (const Link& link : b.links[static_cast<size_t>(i)]) {
        const int64_t t = link.target + taught.shift;
        if (t >= b.target_lengths[static_cast<size_t>(i)]) continue;
        on += w[static_cast<size_t>((i * b.target_width + t) * b.source_width + link.source)];
        ++links;
      }
  }
  return on / links;
}

TEST(Loss, GuidedAttentionLooksWhereItIsTold) {
  for (const ModelConfig& model : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(model.family);
    const auto after = [&](double guided) {
      const Folder folder;
      TrainConfig config;
      config.rate = 5e-3, config.warmup = 10, config.batch_tokens = 256, config.average = 0;
      config.steps = kSlow ? 40 : 120, config.guided = guided;
      const ToyRun run = begin(toy_corpus(folder), model, config, folder.path());
      run.trainer->run({});
      return weight_on_links(run);
    };
    EXPECT_GT(after(1), after(0) + (kSlow ? 0.05 : 0.2));
  }
}

// By hand: -pi (log p + log q), p a target word's weight on a source word and q what of all that is
// on the source word this is; the mean over a side's words, which count as their best links do.
TEST(Loss, AlignmentLossIsOfWeightsBothWaysByHowProbableLinksAre) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  Batch b = first_batch(*corpus);
  b.links[0].clear();  // a row without links does not count
  for (Links& links : b.links)
    if (!links.empty()) links[0].weight = 0.25f;
  Link& moved = b.links[1][1];  // to where another link is: 1 and 0.75
  const Link both = b.links[1][2];
  moved = {both.source, moved.target, 0.75f};
  const TeacherForced forced =
      run.model->forward(source_of(b), ids(b.target_in, {b.rows, b.target_width}), true);
  const std::vector<double> w = forced.weights[0].values.values();
  const auto weight = [&](int64_t i, int64_t t, int64_t s) {
    return w[static_cast<size_t>((i * b.target_width + t) * b.source_width + s)];
  };
  double of_targets = 0, of_sources = 0, targets = 0, sources = 0;
  for (int64_t i = 0; i < b.rows; ++i)
    for (const Link& link : b.links[static_cast<size_t>(i)]) {
      double on = 0;
      for (int64_t t = 0; t < b.target_lengths[static_cast<size_t>(i)]; ++t)
        on += weight(i, t, link.source);
      const double pi = double(link.weight), p = weight(i, link.target, link.source);
      const bool two = i == 1 && link.source == both.source;  // this source word has two links
      of_targets -= pi * std::log(p);
      of_sources -= pi * (two ? 1 / 1.75 : 1) * std::log(p / on);
      targets += pi;
      sources += two ? pi / 1.75 : pi;
    }
  const BatchLoss loss = batch_loss(*run.model, b, {.smoothing = 0, .guided = 0.5});
  EXPECT_NEAR(loss.total.item() - loss.cross_entropy.item(),
              0.5 * (of_targets / targets + of_sources / sources), 1e-5);
  ModelConfig none = toy_rnn();
  none.score = "none";
  const ToyRun blind = begin(corpus, none, config, folder.path());
  EXPECT_TRUE(
      has(message([&] { batch_loss(*blind.model, b, {.guided = 1}); }), "no attention to guide"));
}

// ---- updates

// By hand, without the trainer's memory: the mean of the batches' gradients, one step of Adam.
TEST(Trainer, AnUpdateTakesTheMeanOfItsBatches) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.accumulate = 3, config.batch_tokens = 64, config.steps = 4, config.average = 0;
  config.warmup = 2;
  const ToyRun run = begin(corpus, toy_transformer(), config, folder.path());
  const ToyRun hand = begin(corpus, toy_transformer(), config, folder.path());
  run.trainer->run({});
  Adam adam(hand.params, {.clip_norm = config.clip});
  Batches batches(corpus, {.tokens = config.batch_tokens, .seed = config.seed});
  for (int64_t step = 1; step <= config.steps; ++step) {
    std::vector<std::vector<Tensor>> of_batch(3);  // in the order of the parameters
    for (auto& grads : of_batch) {
      Tape tape(1);
      tape.backward(batch_loss(*hand.model, batches.next(), {}).total * (1.0 / 3));
      for (const Parameter& p : hand.params.all()) {
        grads.push_back(*p.value.parameter_state()->grad);
        p.value.parameter_state()->grad = nullptr;
      }
    }
    for (size_t i = 0; i < hand.params.all().size(); ++i)
      hand.params.all()[i].value.parameter_state()->grad =
          std::make_shared<Tensor>(of_batch[0][i] + of_batch[1][i] + of_batch[2][i]);
    adam.step(rate_at({.rate = config.rate, .warmup = config.warmup}, step));
  }
  for (size_t i = 0; i < run.params.all().size(); ++i)
    EXPECT_EQ(run.params.all()[i].value.values(), hand.params.all()[i].value.values())
        << run.params.all()[i].name;
}

// A model of 500 MB takes longer to write than to train for 500 steps on a GPU, which does not take
// long enough to tell of either.
TEST(Trainer, WithoutValidationWritesAndTellsNowAndThen) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.steps = 6, config.validate_every = 1;
  const auto written = [&](const char* name) {
    return std::filesystem::exists(folder.path() / name);
  };
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  int lines = 0, steps = 0;
  Trainer::Hooks hooks;
  hooks.log = [&](const Progress& p) {
    ++lines;
    EXPECT_EQ(p.updates, 6);
  };
  hooks.stop = [&] {
    ++steps;
    EXPECT_FALSE(written("model.safetensors") || written("checkpoint/last.safetensors"));
    return false;
  };
  run.trainer->run(hooks);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(lines, 1);
  EXPECT_TRUE(written("model.safetensors") && written("checkpoint/last.safetensors"));
}

// Where one is the best so far, what goes on from there lies beside it.
TEST(Trainer, ABestModelHasItsCheckpoint) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.steps = 6, config.validate_every = 1, config.average = 0;
  const auto corpus = toy_corpus(folder);
  ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  int looks = 0;
  Trainer::Hooks hooks;
  hooks.validate = [&] { return Validation{.loss = ++looks == 2 ? 0.5 : 1, .bleu = {}}; };
  hooks.stop = [&] {
    if (looks < 4) return false;
    throw std::runtime_error("killed");
  };
  EXPECT_THROW(run.trainer->run(hooks), std::runtime_error);
  run = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(run.trainer->resume());
  looks = 0, hooks.stop = {};
  run.trainer->run(hooks);
  EXPECT_EQ(looks, 4);  // after 3 to 6 steps
}

// At first all BLEU is 0, while the loss falls.
TEST(Trainer, OfEqualBleuTheLowerLossIsBetter) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.steps = 6, config.validate_every = 1;
  const auto corpus = toy_corpus(folder);
  ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  const std::vector<double> losses{5, 4, 4.5, 3, 2, 1}, bleu{0, 0, 0, 0, 1, 0};
  std::vector<bool> best;
  size_t looks = 0;
  Trainer::Hooks hooks;
  hooks.validate = [&] {
    const size_t i = looks++;
    return Validation{.loss = losses[i], .bleu = bleu[i]};
  };
  hooks.log = [&](const Progress& p) { best.push_back(p.best); };
  hooks.stop = [&] { return looks == 2; };
  EXPECT_EQ(run.trainer->run(hooks), Trainer::End::stopped);
  run = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(run.trainer->resume());
  hooks.stop = {};
  run.trainer->run(hooks);
  EXPECT_EQ(best, (std::vector<bool>{true, true, false, true, true, false}));
}

TEST(Trainer, TheBestOfOtherSentencesOrByAnotherMeasureBeginsAnew) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.validate_every = 1, config.patience = 2;
  const auto corpus = toy_corpus(folder);
  int anew = 0;
  std::vector<bool> best;
  const auto go_on = [&](int64_t until, const std::string& set, double bleu) {
    config.steps = until;
    const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
    run.trainer->resume();
    Trainer::Hooks hooks;
    hooks.validate = [&] { return Validation{.loss = 2, .bleu = bleu}; };
    hooks.validation_set = set;
    hooks.best_begins_anew = [&](const std::string&) { ++anew; };
    hooks.log = [&](const Progress& p) { best.push_back(p.best); };
    return run.trainer->run(hooks);
  };
  go_on(2, "easy", 90);
  EXPECT_EQ(anew, 0);
  EXPECT_EQ(best, (std::vector<bool>{true, false}));
  EXPECT_EQ(go_on(3, "hard", 30), Trainer::End::limit);  // nor does patience go on
  EXPECT_EQ(anew, 1);
  EXPECT_TRUE(best.back());
  EXPECT_EQ(go_on(4, "hard", 20), Trainer::End::limit);
  EXPECT_EQ(anew, 1);
  EXPECT_FALSE(best.back());
  config.stop_on = "loss";  // which is -2, less than any BLEU
  go_on(5, "hard", 20);
  EXPECT_EQ(anew, 2);
  EXPECT_TRUE(best.back());
  // Nor is a model the best that is gone, also where nothing is left to train.
  std::filesystem::remove(folder.path() / "model.safetensors");
  go_on(5, "hard", 20);
  EXPECT_EQ(anew, 3);
  EXPECT_TRUE(best.back());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "model.safetensors"));
}

TEST(Trainer, KeepsTheMovingAverage) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.batch_tokens = 64, config.steps = 5, config.average = 0.3, config.warmup = 1;
  config.validate_every = 1;
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  const size_t at = run.params.all().size() - 1;
  std::vector<double> mean = run.params.all()[at].value.values();
  int64_t step = 0;
  std::vector<double> last;
  // Steps are seen through `stop`, when parameters are the raw ones.
  run.trainer->run({.validate = {}, .log = {}, .stop = [&] {
                      ++step;
                      last = run.params.all()[at].value.values();
                      const double f = std::min(0.3, (1 + double(step)) / (10 + double(step)));
                      for (size_t i = 0; i < mean.size(); ++i)
                        mean[i] = f * mean[i] + (1 - f) * last[i];
                      return false;
                    }});
  EXPECT_EQ(step, 5);
  EXPECT_EQ(run.params.all()[at].value.values(), last);
  load_parameters(run.params, folder / "model.safetensors");
  const std::vector<double> kept = run.params.all()[at].value.values();
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(kept[i], mean[i], 1e-6);
  EXPECT_NE(kept, last);
}

TEST(Trainer, KeepsThePlainMeanOfTheLastValidations) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.steps = 7, config.average_last = 3, config.warmup = 1;
  config.validate_every = 2, config.save_every = 1;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  const size_t at = run.params.all().size() - 1;
  std::vector<std::vector<double>> looked_at, raw;  // what is validated; what is being trained
  Trainer::Hooks hooks;
  hooks.validate = [&] {
    looked_at.push_back(run.params.all()[at].value.values());
    return Validation{.loss = 1 / double(looked_at.size()), .bleu = {}};
  };
  hooks.log = [&](const Progress&) { raw.push_back(run.params.all()[at].value.values()); };
  run.trainer->run(hooks);
  ASSERT_EQ(raw.size(), 4u);  // after 2, 4, 6 and 7 steps
  EXPECT_EQ(looked_at[0], raw[0]);
  load_parameters(run.params, folder / "model.safetensors");
  EXPECT_EQ(run.params.all()[at].value.values(), looked_at[3]);
  for (size_t i = 0; i < raw[0].size(); ++i) {
    EXPECT_NEAR(looked_at[1][i], (raw[0][i] + raw[1][i]) / 2, 1e-7);
    EXPECT_NEAR(looked_at[2][i], (raw[0][i] + raw[1][i] + raw[2][i]) / 3, 1e-7);
    EXPECT_NEAR(looked_at[3][i], (raw[1][i] + raw[2][i] + raw[3][i]) / 3, 1e-7);
  }
  EXPECT_NE(looked_at[3], raw[3]);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "checkpoint"))
    files.insert(entry.path().filename().string());
  EXPECT_EQ(files, (std::set<std::string>{"last.safetensors", "seconds.json", "step-4.safetensors",
                                          "step-6.safetensors", "step-7.safetensors"}));
}

TEST(Trainer, StopsWhenPatienceIsOverAndKeepsTheBest) {
  const Folder folder;
  TrainConfig config;
  config.batch_tokens = 64, config.patience = 3, config.validate_every = 2, config.average = 0;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  // Better, better, then never again.
  int round = 0;
  std::vector<double> best;
  std::vector<Progress> lines;
  Trainer::Hooks hooks;
  hooks.validate = [&] {
    if (++round == 2) best = run.params.all()[0].value.values();
    return Validation{.loss = 1, .bleu = round <= 2 ? round : 0};
  };
  hooks.log = [&](const Progress& p) { lines.push_back(p); };
  EXPECT_EQ(run.trainer->run(hooks), Trainer::End::patience);
  EXPECT_EQ(run.trainer->steps(), 10);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_TRUE(lines[1].best);
  EXPECT_FALSE(lines[2].best);
  load_parameters(run.params, folder / "model.safetensors");
  EXPECT_EQ(run.params.all()[0].value.values(), best);
  // Resumed, it is still over.
  const ToyRun again = begin(run.corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(again.trainer->resume());
  EXPECT_EQ(again.trainer->run(hooks), Trainer::End::patience);
  EXPECT_EQ(again.trainer->steps(), 10);
}

TEST(Trainer, PatienceAloneWantsValidation) {
  const Folder folder;
  TrainConfig config;
  config.patience = 3;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  EXPECT_TRUE(has(message([&] { run.trainer->run({}); }), "nothing would end it"));
}

TEST(Trainer, EpochsAreALimit) {
  const Folder folder;
  TrainConfig config;
  config.epochs = 2, config.batch_tokens = 100;
  const auto corpus = toy_corpus(folder);
  const int64_t batches = static_cast<int64_t>(
      plan_batches(*corpus->window(0), {.tokens = 100, .seed = 1}, 0, 0).size());
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  run.trainer->run({});
  EXPECT_NEAR(double(run.trainer->steps()), double(2 * batches), 0.1 * double(batches));
}

// ---- what can go wrong

TEST(Trainer, ALossThatIsNoNumberStopsWithAdvice) {
  const Folder folder;
  TrainConfig config;
  config.steps = 5;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  run.params.at("hidden.bias").value.data<float>()[0] = NAN;
  const std::string said = message([&] { run.trainer->run({}); });
  EXPECT_TRUE(has(said, "no longer a number at step 1")) << said;
  EXPECT_TRUE(has(said, "--rate")) << said;
  EXPECT_FALSE(std::filesystem::exists(folder / "checkpoint/last.safetensors"));
}

TEST(Trainer, AGradientThatIsNoNumberNamesItsParameter) {
  const Folder folder;
  TrainConfig config;
  config.steps = 5;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  // As a step before might have left it.
  const Tensor bias = run.params.at("hidden.bias").value;
  bias.parameter_state()->grad = std::make_shared<Tensor>(full(bias.shape(), NAN));
  const std::string said = message([&] { run.trainer->run({}); });
  EXPECT_TRUE(has(said, "a gradient is no longer a number at step 1")) << said;
  EXPECT_TRUE(has(said, "hidden.bias")) << said;
}

TEST(Trainer, ADamagedCheckpointIsAnError) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.steps = 2, config.average = 0.5;
  const auto resumed = [&](const TrainConfig& c) {
    return message([&] { begin(corpus, toy_rnn(), c, folder.path()).trainer->resume(); });
  };
  EXPECT_FALSE(begin(corpus, toy_rnn(), config, folder.path()).trainer->resume());
  begin(corpus, toy_rnn(), config, folder.path()).trainer->run({});
  EXPECT_EQ(resumed(config), "");
  const std::string name = "checkpoint/last.safetensors", whole = read(folder / name);
  folder.put(name, whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(has(resumed(config), name)) << resumed(config);
  folder.put(name, "");
  EXPECT_TRUE(has(resumed(config), name)) << resumed(config);
  folder.put(name, whole);
  TrainConfig other = config;
  other.average = 0;  // has fewer tensors
  EXPECT_TRUE(has(resumed(other), name)) << resumed(other);
  const Params alone(1);
  alone.add("w", {2}, constant(0));
  save_parameters(alone, folder / name);
  EXPECT_TRUE(has(resumed(config), name)) << resumed(config);
  // Whole, but with a state that is none.
  const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
  TensorsByName tensors;
  for (const Parameter& p : run.params.all())
    for (const char* kind : {"parameter.", "adam_m.", "adam_v.", "average."})
      tensors.emplace(kind + p.name, p.value);
  for (const char* state : {"", "{", R"({"step": 1})", R"({"step": "one"})"}) {
    save_tensors(tensors, folder / name, {{"state", state}});
    const std::string said = resumed(config);
    EXPECT_TRUE(has(said, "state")) << said;
    EXPECT_FALSE(has(said, "exception")) << said;
  }
}

TEST(Trainer, AFolderThatCannotBeWrittenToIsAnError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const Folder folder, closed;
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, closed.path());
  std::filesystem::permissions(
      closed.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_TRUE(has(message([&] { run.trainer->run({}); }), "Permission denied"));
  std::filesystem::permissions(closed.path(), std::filesystem::perms::owner_all);
}

TEST(Trainer, AFileWhereTheFolderShouldBeIsAnError) {
  const Folder folder;
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.put("file", "x"));
  EXPECT_TRUE(has(message([&] { run.trainer->run({}); }), "file"));
}

}  // namespace
}  // namespace heed
