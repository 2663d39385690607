// Matrix products by cuBLASLt, which wants columns first: c^T = b^T a^T of row-major matrices.
//
// f32 products run on tensor cores as tf32 (10 bits of precision in, f32 sums) unless exact ones
// were asked for; bf16 ones, for mixed precision, with f32 sums. The library is asked once for each
// shape which of its kernels is the best. Its kernels differ in the order of their sums: where that
// must not depend on the number of rows (SumOrder), one of them is the measure of a weight's
// products, and for each number of rows the best one is taken of those that give its very bits.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "heed/base/check.h"
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

// Sums in parts of k are for long ones alone, and for so few columns that a GPU has idle
// multiprocessors; so many rows at a time that their parts fit into the workspace.
constexpr int64_t kParts = 4, kLongSum = 512, kFewColumns = 1024, kRowsAtATime = 1024;
static_assert(kParts * kFewColumns * kRowsAtATime * sizeof(float) <= kWorkspace);

struct Plan {
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

void release(Plan& p) {
  cublasLtMatmulDescDestroy(p.what);
  for (const cublasLtMatrixLayout_t layout : {p.a, p.b, p.c}) cublasLtMatrixLayoutDestroy(layout);
}

using Key = std::array<int64_t, 22>;

}  // namespace

struct CudaState::Products {
  cublasLtHandle_t lt = nullptr;
  cublasHandle_t blas = nullptr;  // once many products of one size were asked for
  std::map<Key, Plan> plans;

  // Of products whose sums have one order, by what is not the number of rows.
  struct Ordered {
    std::optional<cublasLtMatmulAlgo_t> measure;    // none: the library has no such kernel
    std::map<std::array<uint64_t, 8>, bool> alike;  // other kernels: do they give its bits?
  };
  std::map<Key, Ordered> ordered;

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
    return {k.m,           k.n,
            k.k,           a.transposed,
            a.lead,        a.step,
            b.transposed,  b.lead,
            b.step,        c.lead,
            c.step,        batch,
            epilogue,      k.accumulate,
            alignment(pa), alignment(pb),
            alignment(pc), state.exact_products,
            k.bias_step,   type<T>(),
            type<C>(),     static_cast<int64_t>(state.sum_order)};
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

  // What is multiplied: `count` matrices with `m` rows, so far apart; no kernel yet.
  Plan described(int64_t m, int64_t count, int64_t a_lead, int64_t a_step, int64_t c_lead,
                 int64_t c_step) const {
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
      if (count > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, k.bias_step);
    }
    p.a = layout(type<T>(), b.transposed ? k.k : k.n, b.transposed ? k.n : k.k, b.lead, count,
                 b.step);
    p.b = layout(type<T>(), a.transposed ? m : k.k, a.transposed ? k.k : m, a_lead, count, a_step);
    p.c = layout(type<C>(), k.n, m, c_lead, count, c_step);
    return p;
  }

  // The library's kernels for it, the best first.
  std::vector<cublasLtMatmulAlgo_t> kernels_for(const Plan& p, int wanted, uint32_t reductions,
                                                const std::array<int64_t, 3>& aligned) const {
    cublasLtMatmulPreference_t wish = nullptr;
    check(cublasLtMatmulPreferenceCreate(&wish), "preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(wish, name, &value, sizeof value), "preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(aligned[1]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(aligned[0]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(aligned[2]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(aligned[2]));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(wanted));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        state.products().lt, p.what, p.a, p.b, p.c, p.c, wish, wanted, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(wish);
    std::vector<cublasLtMatmulAlgo_t> out;
    if (status != CUBLAS_STATUS_SUCCESS) return out;
    for (int i = 0; i < count; ++i) out.push_back(found[static_cast<size_t>(i)].algo);
    return out;
  }
  cublasLtMatmulAlgo_t best_kernel(const Plan& p, const std::array<int64_t, 3>& aligned) const {
    const auto found = kernels_for(p, 1, CUBLASLT_REDUCTION_SCHEME_MASK, aligned);
    require(!found.empty(), "matrix product: cuBLASLt has no kernel for [", k.m, ", ", k.k, "] x [",
            k.k, ", ", k.n, "], batch ", batch);
    return found.front();
  }

  // ---- sums in one order, of f32: rounded to bf16, differences of kernels would hardly show

  int64_t parts() const {
    const bool cut = state.sum_order == SumOrder::parts && k.k >= kLongSum && k.n <= kFewColumns;
    return cut && batch == 1 ? kParts : 1;
  }

  // The kernel with its sums cut into the wanted parts, if it can do so.
  std::optional<cublasLtMatmulAlgo_t> in_parts(const Plan& p, cublasLtMatmulAlgo_t kernel) const {
    const int32_t splits = static_cast<int32_t>(parts());
    const uint32_t reduction =
        splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoConfigSetAttribute(&kernel, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                             sizeof splits) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoConfigSetAttribute(&kernel, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                             &reduction,
                                             sizeof reduction) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoCheck(state.products().lt, p.what, p.a, p.b, p.c, p.c, &kernel,
                                &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > kWorkspace)
      return std::nullopt;
    return kernel;
  }

  // Kernels that take sums in one order, as wanted: the best first.
  std::vector<cublasLtMatmulAlgo_t> ordered_kernels(const Plan& p,
                                                    const std::array<int64_t, 3>& aligned) const {
    constexpr int kLookedAt = 3;
    const uint32_t reductions =
        parts() > 1 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_NONE;
    std::vector<cublasLtMatmulAlgo_t> out;
    for (const cublasLtMatmulAlgo_t& kernel : kernels_for(p, kLookedAt, reductions, aligned))
      if (const auto one = in_parts(p, kernel)) out.push_back(*one);
    return out;
  }

  // The kernel whose bits count for this weight, whatever the number of rows.
  CudaState::Products::Ordered& ordered(const std::array<int64_t, 3>& aligned, Key wanted) const {
    // Not by rows, how far apart they lie, and matrices of them.
    wanted[0] = wanted[4] = wanted[5] = wanted[10] = 0;
    wanted[11] = std::min<int64_t>(batch, 2);
    auto& all = state.products().ordered;
    auto at = all.find(wanted);
    if (at == all.end()) {
      const auto with_rows = [&](int64_t rows) {
        return described(rows, std::min<int64_t>(batch, 2), a.transposed ? rows : k.k,
                         a.step == 0 ? 0 : rows * k.k, c.lead, rows * c.lead);
      };
      Plan p = with_rows(64);  // neither few nor many
      std::vector<cublasLtMatmulAlgo_t> kernels = ordered_kernels(p, aligned);
      release(p);
      for (const int64_t rows : {int64_t{1}, int64_t{8}, kRowsAtATime}) {
        p = with_rows(rows);
        std::erase_if(kernels, [&](const auto& kernel) { return !in_parts(p, kernel); });
        release(p);
      }
      CudaState::Products::Ordered found;
      if (!kernels.empty()) found.measure = kernels.front();
      at = all.emplace(wanted, found).first;
    }
    return at->second;
  }

  // Products of random rows with the weight, in scratch memory: which kernels give the same bits.
  // (What is multiplied now may be zeros, of which all kernels make the same.)
  class Trial {
   public:
    Trial(const Product& of, cudaStream_t stream, const T* weight)
        : of_(of),
          stream_(stream),
          weight_(weight),
          plan_(of.described(kRows, 1, of.a.transposed ? kRows : of.k.k, kRows * of.k.k, of.k.n,
                             kRows * of.k.n)) {
      std::vector<T> x(static_cast<size_t>(kRows * of.k.k));
      uint32_t random = 1;
      for (T& value : x) {
        random = random * 1664525u + 1013904223u;
        value = static_cast<T>(static_cast<float>(random >> 8) * 0x1p-23f - 1);
      }
      const size_t results = (size() * sizeof(C) + 255) / 256 * 256;
      workspace_ =
          static_cast<std::byte*>(of.state.scratch(kWorkspace + results + x.size() * sizeof(T)));
      y_ = reinterpret_cast<C*>(workspace_ + kWorkspace);
      x_ = reinterpret_cast<T*>(workspace_ + kWorkspace + results);
      sure(cudaMemcpyAsync(x_, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
      sure(cudaStreamSynchronize(stream));
    }
    ~Trial() { release(plan_); }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    // Some rows of what a kernel makes; nothing if it cannot.
    std::vector<C> rows(const cublasLtMatmulAlgo_t& kernel) const {
      const float one = 1, zero = 0;
      if (cublasLtMatmul(of_.state.products().lt, plan_.what, &one, weight_, plan_.a, x_, plan_.b,
                         &zero, y_, plan_.c, y_, plan_.c, &kernel, workspace_, kWorkspace,
                         stream_) != CUBLAS_STATUS_SUCCESS)
        return {};
      std::vector<C> out(static_cast<size_t>(16 * of_.k.n));
      sure(cudaMemcpyAsync(out.data(), y_ + size() - out.size(), out.size() * sizeof(C),
                           cudaMemcpyDeviceToHost, stream_));
      sure(cudaStreamSynchronize(stream_));
      return out;
    }

   private:
    static constexpr int64_t kRows = 192;
    size_t size() const { return static_cast<size_t>(kRows * of_.k.n); }
    static void sure(cudaError_t error) {
      if (error != cudaSuccess) fail("matrix product: ", cudaGetErrorString(error));
    }

    const Product& of_;
    cudaStream_t stream_;
    const T* weight_;
    Plan plan_;
    std::byte* workspace_;
    C* y_;
    T* x_;
  };

  // The best kernel for so many rows that gives the measure's bits: tried when it is met for the
  // first time. Where there is none, the best of all.
  cublasLtMatmulAlgo_t like_measure(cudaStream_t stream, const Plan& p, const T* pb,
                                    const std::array<int64_t, 3>& aligned,
                                    CudaState::Products::Ordered& of) const {
    std::optional<Trial> trial;
    std::vector<C> wanted;
    for (const cublasLtMatmulAlgo_t& kernel : ordered_kernels(p, aligned)) {
      if (!of.measure) break;
      std::array<uint64_t, 8> bytes;
      static_assert(sizeof bytes == sizeof kernel);
      std::memcpy(bytes.data(), &kernel, sizeof bytes);
      auto known = of.alike.find(bytes);
      if (known == of.alike.end()) {
        if (!trial) wanted = trial.emplace(*this, stream, pb).rows(*of.measure);
        const std::vector<C> given = trial->rows(kernel);
        const bool alike = !given.empty() && given.size() == wanted.size() &&
                           std::memcmp(given.data(), wanted.data(), given.size() * sizeof(C)) == 0;
        known = of.alike.emplace(bytes, alike).first;
      }
      if (known->second) return kernel;
    }
    if (of.measure && in_parts(p, *of.measure)) return *of.measure;
    return best_kernel(p, aligned);
  }

  Plan plan(cudaStream_t stream, const T* pa, const T* pb, const C* pc, const Key& wanted) const {
    const std::array<int64_t, 3> aligned{alignment(pa), alignment(pb), alignment(pc)};
    Plan p = described(k.m, batch, a.lead, a.step, c.lead, c.step);
    if constexpr (std::is_same_v<T, float>)
      if (state.sum_order != SumOrder::any) {
        p.algorithm = like_measure(stream, p, pb, aligned, ordered(aligned, wanted));
        return p;
      }
    p.algorithm = best_kernel(p, aligned);
    return p;
  }

  void run(cudaStream_t stream, const T* pa, const T* pb, C* pc) const {
    CudaState::Products& products = state.products();
    const Key wanted = key(pa, pb, pc);
    auto at = products.plans.find(wanted);
    if (at == products.plans.end())
      at = products.plans.emplace(wanted, plan(stream, pa, pb, pc, wanted)).first;
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
  if constexpr (std::is_same_v<T, float> && std::is_same_v<C, float>)
    if (device.state->sum_order != SumOrder::any && !device.state->exact_products &&
        rows_product(device, k))
      return activate(device, k);
  const bool in_parts =
      std::is_same_v<T, float> && k.n <= kFewColumns && device.state->sum_order == SumOrder::parts;
  if (in_parts && k.m > kRowsAtATime && k.outer * k.inner == 1) {
    Matmul<T, C> some = k;
    for (int64_t row = 0; row < k.m; row += kRowsAtATime) {
      some.m = std::min(kRowsAtATime, k.m - row);
      some.a.data = k.a.data + row * k.a.row, some.c.data = k.c.data + row * k.c.row;
      product(device, some);
    }
    return;
  }
  if (k.k == 0) return nothing_summed(device, k);
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
