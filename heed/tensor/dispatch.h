// From a tensor's device and type to a kernel: the one place that knows both.
#pragma once

#include <concepts>

#include "heed/kernels/kernels.h"
#include "heed/tensor/tensor.h"

namespace heed {

template <class Kernel>
concept RunsOnCpu = requires(const Kernel& k) {
  kernels::run(kernels::Cpu{}, k);
};

// Runs the kernel that `make.operator()<T>()` fills in, for the type of `like`:
//   launch("tanh", x, [&]<class T>() { return kernels::Map<T>{.f = ..., .x = x.data<T>(), ...}; });
template <class Make>
void launch(const char* op, const Tensor& like, Make&& make) {
  const auto start = [&]<class T>() {
    const auto kernel = make.template operator()<T>();
    static_assert(RunsOnCpu<decltype(kernel)>, "no run(Cpu, kernel) is declared in kernels.h");
    kernels::run(kernels::Cpu{}, kernel);
  };
  switch (like.type()) {
    case Type::f32: return start.template operator()<float>();
    case Type::f64: return start.template operator()<double>();
    default:
      fail(op, ": no kernel for ", name(like.type()), " on ", name(like.device()),
           "; cast to f32 first");
  }
}

}  // namespace heed
