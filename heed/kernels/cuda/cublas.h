// cuBLAS, by its own names, opened when the first of its functions is called: to load it takes a
// fifth of a second, and a program that uses a model has products of its own (rows_product.h).
//
// Threads: may be called from any number at once.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>
#include <utility>

#include "heed/base/check.h"

namespace heed::kernels {

// A function of a library, looked for when it is first called.
template <class Function>
class Late {
 public:
  consteval Late(const char* library, const char* name) : library_(library), name_(name) {}

  template <class... Args>
  auto operator()(Args&&... args) const {
    static const auto function = reinterpret_cast<Function>(find(library_, name_));
    return function(std::forward<Args>(args)...);
  }

 private:
  static void* find(const char* library, const char* name) {
    const std::string file = std::string(library) + ".so." + std::to_string(CUBLAS_VER_MAJOR);
    void* opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened)  // where the compiler that this was built with has it
      opened = dlopen((HEED_CUDA_LIBRARIES "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const found = opened ? dlsym(opened, name) : nullptr;
    if (!found)
      fail("cuda: a product wants NVIDIA's ", file, ", which cannot be used: ", dlerror());
    return found;
  }

  const char *library_, *name_;
};

// A name in an inner namespace hides the library's own.
#define HEED_LATE(library, name) inline constexpr Late<decltype(&::name)> name(library, #name)
HEED_LATE("libcublas", cublasCreate_v2);
HEED_LATE("libcublas", cublasDestroy_v2);
HEED_LATE("libcublas", cublasGetStatusString);
HEED_LATE("libcublas", cublasSetStream_v2);
HEED_LATE("libcublas", cublasSetWorkspace_v2);
HEED_LATE("libcublasLt", cublasLtCreate);
HEED_LATE("libcublasLt", cublasLtDestroy);
HEED_LATE("libcublasLt", cublasLtGetStatusString);
HEED_LATE("libcublasLt", cublasLtMatmul);
HEED_LATE("libcublasLt", cublasLtMatmulAlgoCheck);
HEED_LATE("libcublasLt", cublasLtMatmulAlgoConfigSetAttribute);
HEED_LATE("libcublasLt", cublasLtMatmulAlgoGetHeuristic);
HEED_LATE("libcublasLt", cublasLtMatmulDescCreate);
HEED_LATE("libcublasLt", cublasLtMatmulDescDestroy);
HEED_LATE("libcublasLt", cublasLtMatmulDescSetAttribute);
HEED_LATE("libcublasLt", cublasLtMatmulPreferenceCreate);
HEED_LATE("libcublasLt", cublasLtMatmulPreferenceDestroy);
HEED_LATE("libcublasLt", cublasLtMatmulPreferenceSetAttribute);
HEED_LATE("libcublasLt", cublasLtMatrixLayoutCreate);
HEED_LATE("libcublasLt", cublasLtMatrixLayoutDestroy);
HEED_LATE("libcublasLt", cublasLtMatrixLayoutSetAttribute);
#undef HEED_LATE
inline constexpr Late<cublasStatus_t (*)(  // C++ has two of this name
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
    const void* const[], cudaDataType, int, const void* const[], cudaDataType, int, const void*,
    void* const[], cudaDataType, int, int, cublasComputeType_t, cublasGemmAlgo_t)>
    cublasGemmBatchedEx("libcublas", "cublasGemmBatchedEx");

}  // namespace heed::kernels
