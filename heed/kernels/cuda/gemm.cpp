// Matrix products by cuBLASLt, which wants columns first: c^T = b^T a^T of row-major matrices.
//
// f32 products run on tensor cores as tf32 (10 bits of precision in, f32 sums) unless exact ones
// were asked for; bf16 ones, for mixed precision, with f32 sums. The library is asked once for each
// shape which of its kernels is the best. Its kernels differ in the order of their sums: where that
// must not depend on the number of rows, products are our own (rows_product.h).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "heed/base/check.h"
#include "heed/kernels/cuda/cublas.h"
#include "heed/kernels/cuda/rows_product.h"
#include "heed/kernels/cuda/state.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail("matrix product: ", what, ": cuBLASLt says ", cublasLtGetStatusString(status));
}

template <class T>
cudaDataType_t type() {
  return std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;
}

// A row-major matrix as cuBLASLt sees it.
struct Operand {
  bool transposed;
  int64_t lead;
  int64_t step;  // from item to item of the batch
};
template <class T>
Operand operand(const Matrix<T>& x, int64_t step) {
  return x.col == 1 ? Operand{false, x.row, step} : Operand{true, x.col, step};
}

// The largest power of two up to 16 that divides an address.
int64_t alignment(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  return at % 16 == 0 ? 16 : at % 8 == 0 ? 8 : at % 4 == 0 ? 4 : 2;
}

struct Plan {
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

void release(Plan& p) {
  cublasLtMatmulDescDestroy(p.what);
  for (const cublasLtMatrixLayout_t layout : {p.a, p.b, p.c}) cublasLtMatrixLayoutDestroy(layout);
}

using Key = std::array<int64_t, 21>;

}  // namespace

struct CudaState::Products {
  cublasLtHandle_t lt = nullptr;
  cublasHandle_t blas = nullptr;  // once many products of one size were asked for
  std::map<Key, Plan> plans;

  Products() { check(cublasLtCreate(&lt), "cannot begin"); }
  ~Products() {
    for (auto& [key, p] : plans) release(p);
    if (blas) cublasDestroy(blas);
    cublasLtDestroy(lt);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
};

CudaState::Products& CudaState::products() {
  if (!products_) products_ = std::make_shared<Products>();
  return *products_;
}

namespace {

template <class T, class C>
struct Product {
  const Matmul<T, C>& k;
  Operand a, b, c;
  int64_t batch;
  cublasLtEpilogue_t epilogue;
  CudaState& state;

  // All that the choice of a kernel depends on.
  Key key(const T* pa, const T* pb, const C* pc) const {
    return {k.m,           k.n,           k.k,
            a.transposed,  a.lead,        a.step,
            b.transposed,  b.lead,        b.step,
            c.lead,        c.step,        batch,
            epilogue,      k.accumulate,  alignment(pa),
            alignment(pb), alignment(pc), state.exact_products,
            k.bias_step,   type<T>(),     type<C>()};
  }

  static cublasLtMatrixLayout_t layout(cudaDataType_t t, int64_t rows, int64_t cols, int64_t lead,
                                       int64_t count, int64_t step) {
    cublasLtMatrixLayout_t out = nullptr;
    check(cublasLtMatrixLayoutCreate(&out, t, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(cols), std::max(lead, rows)),
          "layout");
    const int32_t n = static_cast<int32_t>(count);
    check(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n),
          "layout");
    check(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                           sizeof step),
          "layout");
    return out;
  }

  // What is multiplied; no kernel yet.
  Plan described() const {
    Plan p;
    const bool f32 = std::is_same_v<T, float>;
    check(cublasLtMatmulDescCreate(
              &p.what,
              f32 && !state.exact_products ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
              CUDA_R_32F),
          "description");
    const auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
      check(cublasLtMatmulDescSetAttribute(p.what, name, &value, sizeof value), "description");
    };
    // b comes first: columns first turns the order around.
    set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (k.bias) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(k.bias));
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type<T>());
      if (batch > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, k.bias_step);
    }
    p.a = layout(type<T>(), b.transposed ? k.k : k.n, b.transposed ? k.n : k.k, b.lead, batch,
                 b.step);
    p.b = layout(type<T>(), a.transposed ? k.m : k.k, a.transposed ? k.k : k.m, a.lead, batch,
                 a.step);
    p.c = layout(type<C>(), k.n, k.m, c.lead, batch, c.step);
    return p;
  }

  cublasLtMatmulAlgo_t best_kernel(const Plan& p, const std::array<int64_t, 3>& aligned) const {
    cublasLtMatmulPreference_t wish = nullptr;
    check(cublasLtMatmulPreferenceCreate(&wish), "preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(wish, name, &value, sizeof value), "preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(aligned[1]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(aligned[0]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(aligned[2]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(aligned[2]));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        state.products().lt, p.what, p.a, p.b, p.c, p.c, wish, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(wish);
    require(status == CUBLAS_STATUS_SUCCESS && count > 0,
            "matrix product: cuBLASLt has no kernel for [", k.m, ", ", k.k, "] x [", k.k, ", ", k.n,
            "], batch ", batch);
    return found.algo;
  }

  Plan plan(const T* pa, const T* pb, const C* pc) const {
    const std::array<int64_t, 3> aligned{alignment(pa), alignment(pb), alignment(pc)};
    Plan p = described();
    p.algorithm = best_kernel(p, aligned);
    return p;
  }

  void run(cudaStream_t stream, const T* pa, const T* pb, C* pc) const {
    CudaState::Products& products = state.products();
    const Key wanted = key(pa, pb, pc);
    auto at = products.plans.find(wanted);
    if (at == products.plans.end()) at = products.plans.emplace(wanted, plan(pa, pb, pc)).first;
    const Plan& p = at->second;
    if (k.bias)
      check(cublasLtMatmulDescSetAttribute(p.what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &k.bias,
                                           sizeof k.bias),
            "bias");
    const float one = 1, beta = k.accumulate ? 1 : 0;
    check(cublasLtMatmul(products.lt, p.what, &one, pb, p.a, pa, p.b, &beta, pc, p.c, pc, p.c,
                         &p.algorithm, state.scratch(kWorkspace), kWorkspace, stream),
          "cannot run");
  }
};

cublasLtEpilogue_t epilogue_of(bool bias, Activation f) {
  if (f == Activation::relu) return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// An inner size of 0, which the library does not know: sums of nothing.
template <class T, class C>
void nothing_summed(Cuda device, const Matmul<T, C>& k) {
  require(!k.bias && k.activation == Activation::none,
          "matrix product: an inner size of 0 with a bias is not known on a GPU");
  if (k.accumulate) return;
  for (int64_t i = 0; i < k.outer * k.inner; ++i) {
    C* c = k.c.data + i / k.inner * k.c_batch.outer + i % k.inner * k.c_batch.inner;
    const cudaError_t status = cudaMemset2DAsync(
        c, static_cast<size_t>(k.c.row) * sizeof(C), 0, static_cast<size_t>(k.n) * sizeof(C),
        static_cast<size_t>(k.m), static_cast<cudaStream_t>(device.stream));
    if (status != cudaSuccess) fail("matrix product: ", cudaGetErrorString(status));
  }
}

// What products have no epilogue for.
template <class T, class C>
void activate(Cuda device, const Matmul<T, C>& k) {
  constexpr Unary after[] = {Unary::copy, Unary::copy, Unary::gelu, Unary::tanh, Unary::sigmoid};
  const Unary f = after[static_cast<size_t>(k.activation)];
  if (f == Unary::copy) return;
  if constexpr (std::is_same_v<T, C>) {
    require(k.c.row == k.n && k.outer * k.inner == 1,
            "matrix product: an activation wants a whole matrix behind it");
    kernels::run(device, Map<T>{.f = f, .n = k.m * k.n, .x = k.c.data, .y = k.c.data});
  }
}

template <class T, class C>
void product(Cuda device, const Matmul<T, C>& k) {
  if (k.m == 0 || k.n == 0 || k.outer * k.inner == 0) return;
  if (k.k == 0) return nothing_summed(device, k);
  if constexpr (std::is_same_v<T, float> && std::is_same_v<C, float>)
    if (device.state->same_for_any_rows) {
      rows_product(device, k);
      return activate(device, k);
    }
  // Items of the batch that lie evenly apart are one call.
  const auto even = [&](const BatchStride& s) {
    return k.outer == 1 || s.outer == k.inner * s.inner || (k.inner == 1);
  };
  const bool together = even(k.a_batch) && even(k.b_batch) && even(k.c_batch);
  const auto step = [&](const BatchStride& s) {
    return together && k.inner == 1 && k.outer > 1 ? s.outer : s.inner;
  };
  const Product<T, C> p{.k = k,
                        .a = operand(k.a, step(k.a_batch)),
                        .b = operand(k.b, step(k.b_batch)),
                        .c = operand(k.c, step(k.c_batch)),
                        .batch = together ? k.outer * k.inner : k.inner,
                        .epilogue = epilogue_of(k.bias != nullptr, k.activation),
                        .state = *device.state};
  const auto stream = static_cast<cudaStream_t>(device.stream);
  for (int64_t i = 0; i < (together ? 1 : k.outer); ++i)
    p.run(stream, k.a.data + i * k.a_batch.outer, k.b.data + i * k.b_batch.outer,
          k.c.data + i * k.c_batch.outer);
  activate(device, k);
}

// Many products of one size in one launch, which cuBLASLt's older sister does.
template <class T>
void outer_each(Cuda device, const OuterEach<T>& k) {
  const auto sure = [](cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail("matrix products: cuBLAS says ", cublasGetStatusString(status));
  };
  cublasHandle_t& made = device.state->products().blas;
  if (!made) sure(cublasCreate(&made));
  sure(cublasSetStream(made, static_cast<cudaStream_t>(device.stream)));
  sure(cublasSetWorkspace(made, cuda_scratch(device, kWorkspace), kWorkspace));
  const float one = 1, zero = 0;
  const bool f32 = std::is_same_v<T, float>;
  const auto address = [](auto p) { return reinterpret_cast<const void* const*>(p); };
  sure(cublasGemmBatchedEx(
      made, CUBLAS_OP_N, CUBLAS_OP_T, static_cast<int>(k.n), static_cast<int>(k.m),
      static_cast<int>(k.k), &one, address(k.b), type<T>(), static_cast<int>(k.n), address(k.a),
      type<T>(), static_cast<int>(k.m), &zero, reinterpret_cast<void* const*>(k.c), CUDA_R_32F,
      static_cast<int>(k.n), static_cast<int>(k.count),
      f32 && !device.state->exact_products ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT));
}

}  // namespace

void run(Cuda device, const OuterEach<float>& k) { outer_each(device, k); }
void run(Cuda device, const OuterEach<bf16>& k) { outer_each(device, k); }

void run(Cuda device, const Matmul<float>& k) { product(device, k); }
void run(Cuda device, const Matmul<bf16>& k) { product(device, k); }
void run(Cuda device, const Matmul<bf16, float>& k) { product(device, k); }

}  // namespace heed::kernels
