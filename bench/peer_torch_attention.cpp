// The "attention/..." rows by libtorch, as its users write them; it has no fused kernel for the
// CPU.
#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <vector>

#include "bench/peer_torch.h"

namespace heed::bench {
namespace {

using at::Tensor;

Tensor drawn(at::IntArrayRef shape) { return at::randn(shape); }

// The scale goes into the product: one pass less than scaling the scores.
Tensor scaled_dot(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores = at::baddbmm(at::empty({1}), q, k.transpose(1, 2), /*beta=*/0,
                                    /*alpha=*/1 / std::sqrt(double(q.size(2))));
  return at::bmm(scores.softmax(-1), v);
}

// [B, T, S, n] is held; the sum with w as a product is libtorch's faster form.
Tensor additive(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w) {
  const Tensor hidden = (q.unsqueeze(2) + k.unsqueeze(1)).tanh_();
  return at::bmm(at::matmul(hidden, w).softmax(-1), v);
}

Work timed(std::vector<Tensor> inputs, bool backward, Tensor (*f)(const std::vector<Tensor>&)) {
  const Tensor given = at::randn_like(inputs[0]);
  if (backward)
    for (Tensor& x : inputs) x.requires_grad_();
  return [=]() mutable {
    if (!backward) {
      f(inputs);
      return;
    }
    f(inputs).backward(given);
    for (Tensor& x : inputs) x.mutable_grad().reset();
  };
}

Tensor scaled_dot_of(const std::vector<Tensor>& x) { return scaled_dot(x[0], x[1], x[2]); }
Tensor additive_of(const std::vector<Tensor>& x) { return additive(x[0], x[1], x[2], x[3]); }

Work additive_work(int64_t batch, int64_t length, bool backward) {
  const std::vector<int64_t> shape{batch, length, 256};
  return timed({drawn(shape), drawn(shape), drawn(shape), at::randn({256}) * 0.06}, backward,
               additive_of);
}

Work one_query() {
  struct Ready {
    Tensor q = at::randn({8, 1, 64});
    std::vector<Tensor> k, v;
    size_t next = 0;
  };
  auto ready = std::make_shared<Ready>();
  for (int i = 0; i < 24; ++i) {
    ready->k.push_back(at::randn({8, 1000, 64}));
    ready->v.push_back(at::randn({8, 1000, 64}));
  }
  return [ready] {
    const size_t i = ready->next++ % ready->k.size();
    scaled_dot(ready->q, ready->k[i], ready->v[i]);
  };
}

}  // namespace

Work torch_attention_work(const std::string& row) {
  const bool backward = row.ends_with("/forward_backward");
  for (const int64_t size : {64, 128})
    for (const int64_t length : {512, 1024, 2048})
      if (row.starts_with("attention/scaled_dot/d" + std::to_string(size) + "/" +
                          std::to_string(length) + "/forward")) {
        const std::vector<int64_t> shape{8, length, size};
        return timed({drawn(shape), drawn(shape), drawn(shape)}, backward, scaled_dot_of);
      }
  if (row.starts_with("attention/additive/16x128x128x256/"))
    return additive_work(16, 128, backward);
  if (row == "attention/additive/1x512x512x256/forward_backward")
    return additive_work(1, 512, true);
  if (row == "attention/scaled_dot/d64/1000/one_query") return one_query();
  return {};
}

}  // namespace heed::bench
