// On a GPU: every case of both tables agrees with the CPU's f64, forward and backward, within
// twice what the composed form gets wrong in f32 here or on the CPU; and what the tables have not:
// whole sequences and decoders against their steps, larger sizes, bf16, what is non-finite.
#include <algorithm>
#include <cmath>

#include "bench/cases/special.h"
#include "heed/ops/decoder.h"
#include "heed/tensor/memory.h"
#include "tests/cases/attention.h"
#include "tests/compare.h"
#include "tests/cuda/on_gpu.h"

namespace heed {
namespace {

using cases::Case;
using Everything = std::vector<std::vector<double>>;

// The result of f and the gradient of each input, where the inputs are moved to `device`.
template <class F>
Everything everything(const std::vector<Tensor>& given, Device device, F f) {
  const UseDevice use(device);
  std::vector<Tensor> x;
  for (const Tensor& input : given) x.push_back(as_parameter(to(input, device).detached()));
  Everything out;
  Tape tape(7);
  const Tensor y = f(x);
  out.push_back(y.values());
  tape.backward(sum(square(y)));
  for (const Tensor& input : x)
    out.push_back(input.parameter_state()->grad ? input.parameter_state()->grad->values()
                                                : std::vector<double>{});
  return out;
}

// Numbers of f32 as f64: what f64 starts from.
std::vector<Tensor> widened(const std::vector<Tensor>& x) {
  std::vector<Tensor> out;
  for (const Tensor& t : x) out.push_back(tensor(t.values(), t.shape(), Type::f64));
  return out;
}

// A score's gradient is the difference w g.v_j - w g.context, which may be 0 where its parts are
// not: both are rounded. `part` is a function whose gradients are those of the first part alone.
// Without a composed form there is only the CPU's f32 to say what f32 gets wrong: what is tested
// cannot say it of itself.
template <class F>
void compare(const std::string& name, const std::vector<Tensor>& f32, F f, F composed = nullptr,
             F part = nullptr) {
  SCOPED_TRACE(name);
  Everything truth, cpu, here, gpu, again, cancels;
  try {
    truth = everything(widened(f32), Device::cpu, f);
    cpu = everything(f32, Device::cpu, composed ? composed : f);
    if (composed) here = everything(f32, Device::cuda, composed);
    if (part) cancels = everything(widened(f32), Device::cpu, part);
    gpu = everything(f32, Device::cuda, f);
    again = everything(f32, Device::cuda, f);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
    return;
  }
  ASSERT_EQ(truth.size(), gpu.size());
  for (size_t i = 0; i < truth.size(); ++i) {
    ASSERT_EQ(truth[i].size(), gpu[i].size()) << "part " << i;
    // Twice what f32 gets wrong, and four roundings of the largest element and of what cancels;
    // eight where plain ops are what is tested: a GPU's exp and log err by two each.
    const double composed_error =
        std::max(worst(truth[i], cpu[i]), composed ? worst(truth[i], here[i]) : 0);
    const double allowed = 2 * earned(composed_error) +
                           (composed ? 4 : 8) * 0x1p-23 * largest(truth[i]) +
                           (part && i > 0 ? 4 * 0x1p-23 * largest(cancels[i]) : 0);
    EXPECT_LE(worst(truth[i], gpu[i]), allowed) << (i ? "gradient of input " : "result ") << i;
    EXPECT_EQ(worst(gpu[i], again[i]), 0) << "bits differ from run to run, part " << i;
  }
}

void compare(const cases::AttentionCase& c) {
  const cases::Function composed = [&](const std::vector<Tensor>& x) { return c.composed(x); };
  const cases::Function part = [&](const std::vector<Tensor>& x) {
    const Tensor w = c.attend(x, {.want_weights = true}).weights->detached();
    const int64_t B = w.size(0), H = w.size(1), Tq = w.size(2), Tk = w.size(3), G = x[2].size(1);
    return reshape(matmul(reshape(w * c.scores(x), {B, G, H / G * Tq, Tk}), x[2]),
                   {B, H, Tq, x[2].size(3)});
  };
  if (c.form)
    compare(c.name, cases::draw(c, Type::f32), c.f, composed, part);
  else
    compare(c.name, cases::draw(c, Type::f32), c.f);
}

// A share of a table: shares can run side by side, under compute-sanitizer above all.
constexpr size_t kShares = 8;
class Table : public OnGpu, public testing::WithParamInterface<size_t> {
 protected:
  template <class Cases, class F>
  static void each(const Cases& all, F f) {
    for (size_t i = GetParam(); i < all.size(); i += kShares) f(all[i]);
  }
};
INSTANTIATE_TEST_SUITE_P(OnGpu, Table, testing::Range(size_t{0}, kShares));

TEST_P(Table, EveryOpAgreesWithTheCpu) {
  each(cases::ops(), [](const Case& c) { compare(c.name, cases::draw(c, Type::f32), c.f); });
}

// NaN and infinities reach what they reach on the CPU, and nothing is no special case.
TEST_P(Table, WhatIsNoNumberReachesWhatItDoesOnTheCpu) {
  const auto on = [](Device device, const Case& c, const std::vector<Tensor>& given) {
    const UseDevice use(device);
    std::vector<Tensor> x;
    for (const Tensor& input : given) x.push_back(to(input, device));
    return c.f(x).values();
  };
  const auto agree = [&](const Case& c, const std::string& name, const std::vector<Tensor>& f32) {
    const std::vector<double> truth = on(Device::cpu, c, widened(f32));
    const double error = worst(truth, on(Device::cpu, c, f32), Special::as_wanted);
    EXPECT_LE(worst(truth, on(Device::cuda, c, f32), Special::as_wanted),
              2 * earned(error) + 4 * 0x1p-23 * largest(truth) + 2 * 0x1p-149)
        << name;
  };
  each(cases::ops(), [&](const Case& c) {
    cases::for_each_planted(c, [&](const std::string& name, size_t input, size_t at, double value) {
      // v of additive scores is a parameter: those are finite, nothing else is loaded, nor trained.
      if (c.name.starts_with("additive attention") && input == 3) return;
      agree(c, name, cases::planted(cases::draw(c, Type::f32), input, at, value));
    });
    agree(c, c.name + ", denormal", cases::scaled(cases::draw(c, Type::f32), 0x1p-130));
  });
  each(cases::empty(), [&](const Case& c) { agree(c, c.name, cases::draw(c, Type::f32)); });
}

TEST_P(Table, EveryScoreMaskAndWeighAgreesWithTheCpu) {
  each(cases::attention(), [](const cases::AttentionCase& c) { compare(c); });
}

// Without exact products all steps of a sequence are one kernel, with them each is a product and a
// cell: both give the same, but for what tf32 rounds (11 bits: a few 2^-11 of the largest).
TEST_F(OnGpu, ASequenceAtOnceIsItsSteps) {
  const int64_t B = 37, T = 6, n = 48;
  std::vector<Id> lengths;
  for (int64_t i = 0; i < B; ++i) lengths.push_back(static_cast<Id>(i % (T + 1)));
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    SCOPED_TRACE(static_cast<int>(cell));
    const int64_t W = kernels::gate_count(cell) * n;
    const Shape shapes[] = {{B, T, W}, {n, W}, {W}, {B, n}, {B, n}};
    const size_t half = cell == Cell::lstm ? 5 : 4;
    Random random(3);
    std::vector<Tensor> given;
    for (size_t i = 0; i < 2 * half; ++i) {
      std::vector<double> values(static_cast<size_t>(shapes[i % half].count()));
      for (double& v : values)
        v = double(random.normal()) / (i % half == 1 ? std::sqrt(double(n)) : 1);
      given.push_back(tensor(values, shapes[i % half], Type::f32));
    }
    const auto f = [&](const std::vector<Tensor>& x) {
      const RecurrentStates s = recurrent(cases::recurrent_of(x, 0, cell, lengths, false),
                                          cases::recurrent_of(x, half, cell, lengths, true));
      return s.c ? concat({s.h, *s.c}, 2) : s.h;
    };
    set_exact_products(true);
    const Everything steps = everything(given, Device::cuda, f);
    set_exact_products(false);
    const Everything at_once = everything(given, Device::cuda, f);
    ASSERT_EQ(steps.size(), at_once.size());
    EXPECT_GT(worst(steps[0], at_once[0]), 0) << "tf32 was not used";
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_LE(worst(steps[i], at_once[i]), 4 * 0x1p-11 * largest(steps[i])) << "part " << i;
  }
}

// In bf16, against the CPU's steps in f64 from the same inputs: an emulation that rounds where the
// kernels do is up to 0.9 2^-8 of the largest element away. 20 does not fit: f32 between casts.
TEST_F(OnGpu, ASequenceInBf16IsItsSteps) {
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm})
    for (const int64_t n : {20, 64, 160}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(cell)) + " " + std::to_string(n));
      const int64_t B = 37, T = 6, W = kernels::gate_count(cell) * n;
      std::vector<Id> lengths;
      for (int64_t i = 0; i < B; ++i) lengths.push_back(static_cast<Id>(i % (T + 1)));
      const Shape shapes[] = {{B, T, W}, {n, W}, {W}, {B, n}, {B, n}};
      const size_t half = cell == Cell::lstm ? 5 : 4;
      Random random(3);
      std::vector<Tensor> given;
      for (size_t i = 0; i < 2 * half; ++i) {
        std::vector<double> values(static_cast<size_t>(shapes[i % half].count()));
        for (double& v : values) {
          const double x = double(random.normal()) / (i % half == 1 ? std::sqrt(double(n)) : 1);
          v = static_cast<float>(bf16(static_cast<float>(x)));
        }
        given.push_back(tensor(values, shapes[i % half], Type::f32));
      }
      const auto f = [&](const std::vector<Tensor>& x) {
        std::vector<Tensor> in;
        for (const Tensor& t : x)
          in.push_back(t.device() == Device::cuda ? cast(t, Type::bf16) : t);
        const RecurrentStates s = recurrent(cases::recurrent_of(in, 0, cell, lengths, false),
                                            cases::recurrent_of(in, half, cell, lengths, true));
        const Tensor y = s.c ? concat({s.h, *s.c}, 2) : s.h;
        return y.type() == Type::bf16 ? cast(y, Type::f32) : y;
      };
      const Everything truth = everything(widened(given), Device::cpu, f);
      const Everything gpu = everything(given, Device::cuda, f);
      ASSERT_EQ(truth.size(), gpu.size());
      for (size_t i = 0; i < truth.size(); ++i)
        EXPECT_LE(worst(truth[i], gpu[i]), 3 * 0x1p-8 * largest(truth[i])) << "part " << i;
      EXPECT_EQ(gpu, everything(given, Device::cuda, f)) << "bits differ from run to run";
    }
}

// The decoder as one op in bf16, against its steps in f64 from the same inputs. bf16 has 8 bits: an
// emulation that rounds where the kernels do is up to 1.1 2^-8 of the largest element away.
// Several slices of products, keys in turns, rows that fill no tile, sentences without a key.
TEST_F(OnGpu, ADecoderInOneOpIsItsSteps) {
  struct Size {
    int64_t batch, steps, keys, n, m;
  };
  for (const auto& [B, T, Tk, n, m] :
       {Size{70, 5, 7, 64, 32}, Size{33, 4, 9, 128, 16}, Size{3, 3, 230, 192, 16},
        Size{5, 2, 6, 640, 64}, Size{128, 3, 25, 512, 1024}}) {
    SCOPED_TRACE(n);
    const Shape shapes[] = {{B, T, 3 * n}, {B, n},     {B, Tk, n}, {B, Tk, 3 * n}, {n, n},
                            {1, n},        {n, 3 * n}, {3 * n},    {B, Tk, m}};
    Random random(3);
    std::vector<Tensor> given;
    for (const Shape& shape : shapes) {
      const bool weight = given.size() >= 4 && given.size() <= 6;
      std::vector<double> values(static_cast<size_t>(shape.count()));
      for (double& v : values) {
        const double x = double(random.normal()) / (weight ? std::sqrt(double(n)) : 1);
        v = static_cast<float>(bf16(static_cast<float>(x)));
      }
      given.push_back(tensor(values, shape, Type::f32));
    }
    std::vector<Id> lengths, range;
    for (int64_t b = 0; b < B; ++b) {
      lengths.push_back(static_cast<Id>(b * 7 % (Tk + 1)));
      range.push_back(0), range.push_back(lengths.back());
    }
    const auto by_step = [&](const std::vector<Tensor>& x) {
      Tensor h = x[1];
      std::vector<Tensor> states, reads;
      for (int64_t t = 0; t < T; ++t) {
        const auto read = [&](const Tensor& values) {
          const Tensor context =
              fused_attention({.form = ScoreForm::additive,
                               .q = reshape(linear(h, x[4]), {B, 1, 1, n}),
                               .k = reshape(x[2], {B, 1, Tk, n}),
                               .value = reshape(values, {B, 1, Tk, values.size(2)}),
                               .v = x[5],
                               .range = ids(range, {B, 1, 1, 2})})
                  .context;
          return reshape(context, {B, 1, values.size(2)});
        };
        reads.push_back(read(x[8]));
        states.push_back(recurrent({.cell = Cell::gru,
                                    .x = slice(x[0], 1, t, t + 1) + read(x[3]),
                                    .u = x[6],
                                    .bias = x[7],
                                    .h = h})
                             .h);
        h = reshape(states.back(), {B, n});
      }
      return concat({concat(states, 1), concat(reads, 1)}, 2);
    };
    const auto at_once = [&](const std::vector<Tensor>& x) {
      const auto half = [&](size_t i) { return cast(x[i], Type::bf16); };
      const Decoded d = decode({.x = half(0),
                                .h = half(1),
                                .keys = half(2),
                                .values = half(3),
                                .lengths = lengths,
                                .w = half(4),
                                .v = x[5],
                                .u = half(6),
                                .bias = half(7)});
      const Tensor reads = matmul(cast(d.weights, Type::bf16), half(8));
      return concat({cast(d.h, Type::f32), cast(reads, Type::f32)}, 2);
    };
    const Everything truth = everything(widened(given), Device::cpu, by_step);
    const Everything gpu = everything(given, Device::cuda, at_once);
    const Everything again = everything(given, Device::cuda, at_once);
    ASSERT_EQ(truth.size(), gpu.size());
    for (size_t i = 0; i < truth.size(); ++i) {
      ASSERT_EQ(truth[i].size(), gpu[i].size()) << "part " << i;
      EXPECT_LE(worst(truth[i], gpu[i]), 3 * 0x1p-8 * largest(truth[i]))
          << (i ? "gradient of input " : "result ") << i;
      EXPECT_EQ(worst(gpu[i], again[i]), 0) << "bits differ from run to run, part " << i;
    }
  }
}

TEST_F(OnGpu, LargerSizesAgreeToo) {
  for (const char form : {'n', 't', 'T'}) {
    const Case c = cases::matmul_case(130, 300, 200, form);
    compare(c.name, cases::draw(c, Type::f32), c.f);
  }
  for (const Case& c :
       {cases::layer_norm_case(700, 512), cases::rms_norm_case(300, 1000),
        cases::softmax_case(300, 2000, false), cases::softmax_case(50, 9000, true),
        cases::cross_entropy_case(70, 32000, 0.1), cases::embedding_case(50, 256, 3000),
        cases::dropout_case(70000), cases::add_dropout_norm_case(2300, 128),
        cases::add_dropout_norm_case(19, 384), cases::add_dropout_norm_case(70, 256),
        cases::add_dropout_norm_case(20, 1024)})
    compare(c.name, cases::draw(c, Type::f32), c.f);
  for (const char* score : {"scaled_dot", "additive", "tanh", "bilinear", "cosine"})
    for (const auto mask : cases::masks()) {
      const cases::AttentionCase c = cases::attention_case({.score = score,
                                                            .mask = mask,
                                                            .heads = 4,
                                                            .key_heads = 2,
                                                            .queries = 70,
                                                            .keys = 90,
                                                            .query_size = 64,
                                                            .key_size = 64,
                                                            .value_size = 32});
      compare(c);
    }
}

// Heads as wide as make GPUs differ: the larger tiles of those with more shared memory, the smaller
// ones of others, or plain ops (kernels/cuda/capabilities.h).
TEST_F(OnGpu, WideHeadsAgreeToo) {
  struct Size {
    const char* score;
    int64_t queries, keys, size, value_size;
  };
  for (const auto& [score, queries, keys, size, value_size] :
       {Size{"scaled_dot", 40, 90, 128, 100}, Size{"scaled_dot", 40, 20, 256, 200},
        Size{"scaled_dot", 40, 90, 256, 200}, Size{"scaled_dot", 1, 90, 256, 256},
        Size{"additive", 40, 50, 512, 300}, Size{"additive", 40, 50, 700, 40},
        Size{"additive", 1, 50, 1100, 700}})
    compare(cases::attention_case({.score = score,
                                   .mask = cases::AttentionSpec::Masked::padding,
                                   .heads = 2,
                                   .key_heads = 1,
                                   .queries = queries,
                                   .keys = keys,
                                   .query_size = size,
                                   .key_size = size,
                                   .value_size = value_size}));
}

// In bf16 and recorded, against f64: nothing that stands at a padded position counts.
void compare_in_bf16(int64_t B, int64_t H, int64_t T, int64_t d, const Mask& mask,
                     const std::vector<Id>& lengths) {
  const int64_t G = H / 2;
  const bool padded = mask.ranges({B, H, T, T, 0})->size(0) > 1;
  SCOPED_TRACE(std::to_string(d) + (padded ? ", padded" : ""));
  Random random(5);
  std::vector<Tensor> given;
  for (const int64_t heads : {H, G, G}) {
    const Shape shape{B, heads, T, d};
    std::vector<double> values(static_cast<size_t>(shape.count()));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t sentence = i / static_cast<size_t>(heads * T * d);
      const auto place = static_cast<Id>(i / static_cast<size_t>(d) % static_cast<size_t>(T));
      values[i] = static_cast<float>(bf16(random.normal()));
      if (padded && heads == G && place >= lengths[sentence]) values[i] = std::nan("");
    }
    given.push_back(tensor(values, shape, Type::f32));
  }
  const auto f = [&](const std::vector<Tensor>& x) {
    const bool there = x[0].device() == Device::cuda;
    const auto as = [&](size_t i) { return there ? cast(x[i], Type::bf16) : x[i]; };
    const Params none(1);
    const auto score = make_score("scaled_dot", none, {.query = d, .key = d, .heads = H});
    const Tensor y = attend(*score, as(0), as(1), as(2), {.mask = mask}).context;
    return there ? cast(y, Type::f32) : y;
  };
  const Everything truth = everything(widened(given), Device::cpu, f);
  const Everything gpu = everything(given, Device::cuda, f);
  for (size_t i = 0; i < truth.size(); ++i)
    EXPECT_LE(worst(truth[i], gpu[i]), 3 * 0x1p-8 * largest(truth[i])) << "part " << i;
}

TEST_F(OnGpu, AttentionInBf16SeesWhatItsMaskShows) {
  for (const int64_t d : {20, 32, 64, 128}) {  // plain threads, tensor cores, warpgroups of them
    const int64_t T = d < 64 ? 40 : 140;
    const std::vector<Id> lengths{static_cast<Id>(T), static_cast<Id>(T / 3), 1};
    for (const Mask& mask :
         {Mask::causal(), Mask::padding(lengths), Mask::padding(lengths) & Mask::causal()})
      compare_in_bf16(3, 4, T, d, mask, lengths);
  }
}

// As many heads as make the kernel of warpgroups persistent, on 132 processors: blocks take three
// tiles of queries one after the other, or two pairs of them.
TEST_F(OnGpu, AttentionOfManyHeadsInBf16SeesWhatItsMaskShows) {
  struct Size {
    int64_t B, T, d;
  };
  for (const auto& [B, T, d] : {Size{66, 70, 64}, Size{44, 140, 128}}) {
    std::vector<Id> lengths;
    for (int64_t b = 0; b < B; ++b) lengths.push_back(static_cast<Id>(b % 3 ? b * T / B + 1 : T));
    compare_in_bf16(B, 6, T, d, Mask::padding(lengths) & Mask::causal(), lengths);
  }
}

// What stands at a key, NaN included, reaches only the queries that see it: also by plain ops
// (weights wanted while recording, sparse and hard ones).
TEST_F(OnGpu, AKeyThatOnlySomeSeeReachesNoOther) {
  struct Way {
    const char* name;
    Weigh::Kind kind;
    bool weights;
  };
  const int64_t T = 40, place = 13;
  for (cases::AttentionSpec s : cases::scores())
    for (const Way& way :
         {Way{"fused", Weigh::Kind::soft, false}, Way{"weights", Weigh::Kind::soft, true},
          Way{"sparse", Weigh::Kind::entmax, false},
          Way{"hard", Weigh::Kind::straight_through, false}}) {
      s.mask = cases::AttentionSpec::Masked::causal, s.batch = 1, s.heads = 2, s.key_heads = 1;
      s.queries = T, s.keys = T, s.query_size = s.key_size = 6, s.weigh.kind = way.kind;
      const cases::AttentionCase c = cases::attention_case(s);
      if (!c.form) continue;
      const auto f = [&](const std::vector<Tensor>& x) {
        return c.attend(x, {.mask = Mask::causal(), .want_weights = way.weights}).context;
      };
      const std::vector<Tensor> clean = cases::draw(c, Type::f32);
      const Everything want = everything(clean, Device::cuda, f);
      for (const double planted : {std::nan(""), HUGE_VAL}) {
        SCOPED_TRACE(c.name + ", " + way.name + ", " + std::to_string(planted));
        std::vector<Tensor> x = clean;
        for (const size_t which : {size_t{1}, size_t{2}}) {
          std::vector<double> values = x[which].values();
          const size_t n = values.size() / static_cast<size_t>(T);  // one sentence, one key head
          std::fill(values.begin() + static_cast<std::ptrdiff_t>(n) * place, values.end(), planted);
          x[which] = tensor(values, x[which].shape(), Type::f32);
        }
        const Everything got = everything(x, Device::cuda, f);
        for (const size_t which : {size_t{0}, size_t{1}}) {  // the result, and the gradient of q
          int64_t differ = 0;
          const size_t head = want[which].size() / 2, seen = head / T * place;
          for (size_t i = 0; i < 2 * head; ++i)
            differ += i % head < seen && want[which][i] != got[which][i];
          EXPECT_EQ(differ, 0) << (which ? "gradient of q" : "result");
        }
        if (std::isnan(planted)) {
          EXPECT_TRUE(std::isnan(got[0].back()));
        }
      }
    }
}

// The same in bf16: by tensor cores, and by warpgroups of them.
TEST_F(OnGpu, AKeyThatOnlySomeSeeReachesNoOtherInBf16) {
  const int64_t T = 140, place = 77;
  for (const int64_t d : {32, 64, 128}) {
    const Shape shape{2, 2, T, d};
    Random random(11);
    std::vector<Tensor> clean;
    for (int i = 0; i < 3; ++i) {
      std::vector<double> values(static_cast<size_t>(shape.count()));
      for (double& x : values) x = random.normal();
      clean.push_back(tensor(values, shape, Type::f32));
    }
    const auto f = [&](const std::vector<Tensor>& x) {
      const auto as = [&](size_t i) { return cast(x[i], Type::bf16); };
      const Params none(1);
      const auto score = make_score("scaled_dot", none, {.query = d, .key = d, .heads = 2});
      return cast(attend(*score, as(0), as(1), as(2), {.mask = Mask::causal()}).context, Type::f32);
    };
    const Everything want = everything(clean, Device::cuda, f);
    for (const double planted : {std::nan(""), HUGE_VAL})
      for (const size_t which : {size_t{1}, size_t{2}}) {
        SCOPED_TRACE(std::to_string(d) + (which == 1 ? ", key " : ", value ") +
                     std::to_string(planted));
        std::vector<double> values = clean[which].values();
        const auto at = [&](size_t i) { return static_cast<int64_t>(i) / d % T; };
        for (size_t i = 0; i < values.size(); ++i)
          if (at(i) >= place) values[i] = planted;
        std::vector<Tensor> x = clean;
        x[which] = tensor(values, shape, Type::f32);
        const Everything got = everything(x, Device::cuda, f);
        for (const size_t part : {size_t{0}, size_t{1}}) {  // the result, and the gradient of q
          int64_t differ = 0;
          for (size_t i = 0; i < got[part].size(); ++i)
            differ += at(i) < place && want[part][i] != got[part][i];
          EXPECT_EQ(differ, 0) << (part ? "gradient of q" : "result");
        }
        int64_t finite = 0;  // of rows that see it
        for (size_t i = 0; i < got[0].size(); ++i)
          finite += at(i) >= place && std::isfinite(got[0][i]);
        EXPECT_EQ(finite, 0);
      }
  }
}

}  // namespace
}  // namespace heed
