// From a tensor's device and type to a kernel: the one place that knows both.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <concepts>

#include "heed/kernels/kernels.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"
#include "heed/tensor/tensor.h"

namespace heed {

#if defined(HEED_CUDA)
inline constexpr bool kBuiltWithCuda = true;
#else
inline constexpr bool kBuiltWithCuda = false;
#endif

template <class Kernel>
concept RunsOnCpu = requires(const Kernel& k) {
  kernels::run(kernels::Cpu{}, k);
};
template <class Kernel>
concept RunsOnCuda = kBuiltWithCuda && requires(const Kernel& k) {
  kernels::run(kernels::Cuda{}, k);
};

template <class Kernel>
void launch_on(const char* op, Device device, Type type, const Kernel& kernel) {
  if (device == Device::cpu) {
    if constexpr (RunsOnCpu<Kernel>) return kernels::run(kernels::Cpu{}, kernel);
  } else {
    if constexpr (RunsOnCuda<Kernel>) {
      if (!kernels_left_out()) kernels::run(cuda_device(), kernel);
      return;
    }
  }
  fail(op, ": no kernel for ", name(type), " on ", name(device), "; cast to f32 first");
}

// Runs the kernel that `make.operator()<T>()` fills in, for the type and on the device of `like`,
// in the context in use. Operands of another device or context are an error:
//   launch("tanh", x, [&]<class T>() { return kernels::Map<T>{.f = ..., .x = x.data<T>(), ...}; });
template <class Make>
void launch(const char* op, const Tensor& like, Make&& make) {
  const auto start = [&]<class T>() {
    const auto kernel = [&] {
      const Launching now(op, like.device());
      return make.template operator()<T>();
    }();
    launch_on(op, like.device(), like.type(), kernel);
  };
  switch (like.type()) {
    case Type::f32: return start.template operator()<float>();
    case Type::f64: return start.template operator()<double>();
    case Type::bf16:
      if constexpr (kBuiltWithCuda) return start.template operator()<bf16>();
      [[fallthrough]];
    default:
      fail(op, ": no kernel for ", name(like.type()), " on ", name(like.device()),
           "; cast to f32 first");
  }
}

}  // namespace heed
