// Rows for single ops: the cases of tests/cases at the sizes of a real model. Where a row's floor
// is memory, the bytes are what must be read and written at least, forward and backward.
#include <memory>

#include "bench/bench.h"
#include "bench/cases/ops.h"
#include "heed/nn/module.h"
#include "heed/ops/into.h"
#include "heed/tensor/context.h"
#include "heed/tensor/dispatch.h"
#include "heed/training/optimizer.h"

namespace heed::bench {
namespace {

// Forward and backward of a case, in an arena of its own, as in training.
Job differentiated(const std::string& name, cases::Case c, double flops, double bytes) {
  struct Ready {
    std::shared_ptr<Arena> arena = Arena::make();
    cases::Case c;
    std::vector<Tensor> x;
    Tensor weights;
  };
  auto ready = std::make_shared<Ready>();
  ready->c = std::move(c);
  for (const Tensor& input : cases::draw(ready->c, Type::f32))
    ready->x.push_back(as_parameter(input));
  return {.name = name,
          .work =
              [ready] {
                const UseArena use(*ready->arena);
                Tape tape;
                const Tensor y = ready->c.f(ready->x);
                if (!ready->weights.defined() && y.count() > 1) {
                  Random random(7);
                  const NoTape off;
                  ready->weights = normal(y.shape(), 1, random);
                }
                // The gradient comes in from outside, as for the peer.
                tape.backward(
                    y.count() == 1 ? y : record("given", {&y}, zeros({}), [ready](const Tensor&) {
                      return Grads{ready->weights};
                    }));
                for (const Tensor& x : ready->x) x.parameter_state()->grad = nullptr;
              },
          .flops = flops,
          .bytes = bytes};
}

Job product(const std::string& name, int64_t batch, int64_t m, int64_t k, int64_t n, char form,
            Activation f = Activation::none) {
  Random random(5);
  const auto shape = [&](int64_t rows, int64_t cols) {
    return batch > 1 ? Shape{batch, rows, cols} : Shape{rows, cols};
  };
  Tensor a = normal(form == 'T' ? shape(k, m) : shape(m, k), 1, random);
  Tensor b = normal(form == 't' ? shape(n, k) : shape(k, n), 1, random);
  if (form == 'T') a = transpose(a, -1, -2);
  if (form == 't') b = transpose(b, -1, -2);
  const Tensor c(shape(m, n));
  ProductOptions options{.activation = f};
  if (f != Activation::none) options.bias = zeros({n});
  return {.name = name,
          .work = [=] { multiply("bench", a, b, c, options); },
          .flops = 2.0 * double(batch) * double(m) * double(n) * double(k)};
}

Row product_row(const std::string& kind, int64_t m, int64_t k, int64_t n, char form,
                Activation f = Activation::none) {
  const std::string name =
      "op/" + kind + "/" + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  return {name, [=] { return product(name, 1, m, k, n, form, f); }};
}

}  // namespace

std::vector<Row> op_rows() {
  constexpr double kRows = 1024, kWords = 8000, kMany = 4e6, kFloat = 4;
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, std::function<cases::Case()> make, double bytes) {
    rows.push_back({name, [=] { return differentiated(name, make(), 0, bytes * kFloat); }});
  };
  // Weights of 32 sentences, 4 heads, 32 queries and 128 keys; and a vocabulary, which no cache
  // holds.
  add(
      "op/softmax", [] { return cases::softmax_case(4096, 32, false); }, 5 * 4096 * 32);
  add(
      "op/softmax_128", [] { return cases::softmax_case(4096, 128, false); }, 5 * 4096 * 128);
  add(
      "op/vocabulary_softmax", [] { return cases::softmax_case(1024, 8000, false); },
      5 * kRows * kWords);
  add(
      "op/log_softmax", [] { return cases::softmax_case(1024, 8000, true); }, 5 * kRows * kWords);
  add(
      "op/layer_norm", [] { return cases::layer_norm_case(4096, 256); }, 5 * 4096 * 256);
  add(
      "op/rms_norm", [] { return cases::rms_norm_case(4096, 256); }, 5 * 4096 * 256);
  add(
      "op/cross_entropy", [] { return cases::cross_entropy_case(1024, 8000, 0.1); },
      2 * kRows * kWords);
  for (const char* f : {"tanh", "sigmoid", "gelu"})
    add(
        std::string("op/") + f, [f] { return cases::unary_case(f, 4000000); }, 5 * kMany);
  add(
      "op/dropout", [] { return cases::dropout_case(4000000); }, 4 * kMany);
  add(
      "op/embedding", [] { return cases::embedding_case(8000, 256, 1024); },
      4 * kRows * 256 + kWords * 256);
  rows.push_back({"op/adam", [] {
                    const Params params(1);
                    const Tensor w = params.add("w", {4000000}, normal_values(1));
                    Random random(2);
                    auto grad = std::make_shared<Tensor>(normal(w.shape(), 1, random));
                    auto adam = std::make_shared<Adam>(params);
                    return Job{.name = "op/adam",
                               .work =
                                   [=] {
                                     w.parameter_state()->grad = grad;
                                     adam->step(1e-4);
                                   },
                               .bytes = 8 * kMany * kFloat};
                  }});
  rows.push_back({"op/top_k", [] {
                    Random random(3);
                    const Tensor x = normal({1024, 8000}, 1, random);
                    return Job{.name = "op/top_k",
                               .work = [=] { top_k(x, 5); },
                               .bytes = kRows * kWords * kFloat};
                  }});
  rows.push_back(product_row("matmul", 960, 256, 1024, 'n'));
  rows.push_back(product_row("matmul", 1024, 1024, 256, 'n'));
  rows.push_back(product_row("matmul", 1024, 256, 8000, 'n'));
  rows.push_back(product_row("matmul", 32, 256, 768, 'n'));
  rows.push_back(product_row("matmul_nt", 1024, 1024, 256, 't'));
  rows.push_back(product_row("matmul_nt", 1024, 8000, 256, 't'));
  rows.push_back(product_row("matmul_tn", 256, 1024, 1024, 'T'));
  rows.push_back(product_row("matmul_tn", 256, 1024, 8000, 'T'));
  rows.push_back(
      {"op/bmm/128x32x64x32", [] { return product("op/bmm/128x32x64x32", 128, 32, 64, 32, 'n'); }});
  rows.push_back(product_row("linear_gelu", 1024, 256, 1024, 'n', Activation::gelu));
  return rows;
}

}  // namespace heed::bench
