// A test that runs where there is a GPU, by exact products; skipped, and said so, where there is
// none.
#pragma once

#include <gtest/gtest.h>

#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

namespace heed {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices found = cuda_devices();
    if (!found.built || !found.trouble.empty()) GTEST_SKIP() << "no GPU: " << found.trouble;
    set_exact_products(true);
  }
  void TearDown() override {
    if (Context::current().gpu_if_made()) set_exact_products(false);
  }
};

}  // namespace heed
