// Every kernel: its arguments as a struct, then the devices and types that run it. This list of
// run() lines is the support matrix; nothing is registered anywhere else.
//
// Kernels trust their arguments: sizes were checked by the op that launches them. Arrays do not
// overlap unless a comment says that they may. `T` is float or double on a CPU, float or bf16 on a
// GPU.
#pragma once

#include "heed/kernels/view.h"

namespace heed::kernels {

// Declares the two types that every kernel has on a CPU, f32 for work and f64 for checks, and f32
// on a GPU. HEED_KERNEL also declares bf16 on a GPU.
#define HEED_F32_KERNEL(Name)         \
  void run(Cpu, const Name<float>&);  \
  void run(Cpu, const Name<double>&); \
  void run(Cuda, const Name<float>&)
#define HEED_KERNEL(Name) \
  HEED_F32_KERNEL(Name);  \
  void run(Cuda, const Name<bf16>&)

inline constexpr int kMaxParts = 256;  // arrays that one launch takes at most

// ---- elementwise

enum class Unary { copy, negate, exp, log, sqrt, square, tanh, sigmoid, relu, gelu, swish };
// gelu is the tanh form: x * sigmoid(1.595769 (x + 0.044715 x^3)). swish is x * sigmoid(x).

// y = f(x). y may be x.
template <class T>
struct Map {
  Unary f;
  int64_t n;
  const T* x;
  T* y;
};
HEED_KERNEL(Map);

// dx = scale * dy * f'(x). What the derivative is made from: x for negate, log, square, relu, gelu,
// swish; y = f(x) for exp, sqrt, tanh, sigmoid. dx may be dy.
template <class T>
struct MapGrad {
  Unary f;
  int64_t n;
  const T* x_or_y;
  const T* dy;
  T* dx;
  Wide<T> scale = 1;
};
HEED_KERNEL(MapGrad);
bool gradient_reads_result(Unary f);  // true: MapGrad wants y

enum class Binary { add, subtract, multiply, divide };

// c = f(a, b) over `size`, each operand with its own strides; a stride of 0 repeats it. c is
// contiguous. The last stride of a and of b is 0 or 1.
template <class T>
struct Zip {
  Binary f;
  int rank;
  int64_t size[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];
  const T* a;
  const T* b;
  T* c;
};
HEED_KERNEL(Zip);

// y = alpha * x + beta * y; with beta 0, y need not be initialized.
template <class T>
struct Axpby {
  int64_t n;
  Wide<T> alpha;
  const T* x;
  Wide<T> beta;
  T* y;
};
HEED_KERNEL(Axpby);

template <class T>
struct Fill {
  int64_t n;
  Wide<T> value;
  T* y;
};
HEED_KERNEL(Fill);

// y = x or, with `add`, y += x, each with any strides, over `size`.
template <class T>
struct Copy {
  bool add;
  int rank;
  int64_t size[kMaxRank], x_stride[kMaxRank], y_stride[kMaxRank];
  const T* x;
  T* y;
};
HEED_KERNEL(Copy);

// The same for many matrices at once: y = x, [rows, n] each. For a GPU, where a launch costs more
// than a small copy.
template <class T>
struct CopyPart {
  int64_t rows, n;
  const T* x;
  int64_t x_row;
  T* y;
  int64_t y_row;
};
template <class T>
struct CopyParts {
  int count;
  CopyPart<T> part[kMaxParts];
};
void run(Cuda, const CopyParts<float>&);
void run(Cuda, const CopyParts<bf16>&);

// y = x or, with `add`, y += x, for many arrays at once; where x is null it is 0. For a GPU.
struct SumPart {
  int64_t n;
  const float* x;
  float* y;
};
struct SumParts {
  bool add;
  int count;
  SumPart part[kMaxParts];
};
void run(Cuda, const SumParts&);

// Storage types: y = x, rounded to nearest even.
struct ToBf16 {
  int64_t n;
  const float* x;
  bf16* y;
};
struct FromBf16 {
  int64_t n;
  const bf16* x;
  float* y;
};
void run(Cpu, const ToBf16&);
void run(Cpu, const FromBf16&);
void run(Cuda, const ToBf16&);
void run(Cuda, const FromBf16&);

// What random numbers are a function of: `number`, and *key where there is one, added. The key lies
// in the device's memory: a step that was captured draws anew whenever it is replayed.
struct Seed {
  uint64_t number;
  const uint64_t* key;  // or null
};
inline uint64_t value(const Seed& s) { return s.number + (s.key ? *s.key : 0); }

// y = x / (1 - p) where the i-th 16-bit random number of `seed` is at least p * 65536, else 0; plus
// `residual`, where there is one. The numbers come in groups of 1024: words [4][128], word w of
// Philox call 128 * group + j at [w][j]. Applied to dy it is its own gradient: the mask is never
// stored. y may be x.
template <class T>
struct Dropout {
  int64_t n;
  float p;
  Seed seed;
  const T* x;
  const T* residual;  // or null
  T* y;
};
HEED_KERNEL(Dropout);

// One step of Adam (Kingma and Ba, 2015) or, with decay, AdamW (Loshchilov and Hutter, 2019), for
// many parameters at once:
//   m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,
//   w = w - rate * (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + epsilon) + decay * w),
//   average = f average + (1-f) w,
// where g is the gradient, scaled down to the norm `clip` where the norm of all gradients is
// larger. Where that norm is non-finite, nothing changes. In mixed precision w are the f32 master
// weights, and their bf16 compute copies are written in the same pass.
struct AdamNumbers {
  double rate, beta1, beta2, epsilon, decay;
  double clip;     // 0: never
  double average;  // f
  int64_t step;    // t, from 1
};
template <class T>
struct AdamPart {
  int64_t n;
  const T* grad;
  T *w, *m, *v;
  T* average;          // or null
  bf16* compute_copy;  // w in bf16, or null; a GPU's alone
};
template <class T>
struct Adam {
  const AdamNumbers* numbers;  // what changes from step to step lies in the device's memory
  const double* squares;       // the sum of the squares of all gradients, likewise
  int count;
  AdamPart<T> part[kMaxParts];
};
HEED_F32_KERNEL(Adam);

// ---- rows

// *sum (or, with `add`, *sum +=) the sum of the squares of many arrays: chunks in T, their sums in
// double, in a fixed order. `sum` lies in the device's memory.
template <class T>
struct SquaresPart {
  int64_t n;
  const T* x;
};
template <class T>
struct SumSquares {
  bool add;
  double* sum;
  int count;
  SquaresPart<T> part[kMaxParts];
};
HEED_F32_KERNEL(SumSquares);

// y[outer, inner] = the sum over the middle axis of x[outer, n, inner].
template <class T>
struct Sum {
  int64_t outer, n, inner;
  const T* x;
  Wide<T>* y;
};
HEED_KERNEL(Sum);

// y = the sum of the rows of x [rows, n], for many matrices at once. For a GPU.
template <class T>
struct RowsPart {
  int64_t rows, n;
  const T* x;
  int64_t x_row;
  Wide<T>* y;
};
template <class T>
struct SumRowsEach {
  int count;
  RowsPart<T> part[kMaxParts];
};
void run(Cuda, const SumRowsEach<float>&);
void run(Cuda, const SumRowsEach<bf16>&);

// The index of the largest of each row (the first of equals; NaN never wins).
template <class T>
struct Max {
  int64_t rows, n;
  const T* x;
  Id* index;
};
HEED_F32_KERNEL(Max);

// The k largest of each row in falling order, and where they stand; of equals the first.
template <class T>
struct TopK {
  int64_t rows, n, k;
  const T* x;
  T* value;
  Id* index;
};
HEED_F32_KERNEL(TopK);

// y = softmax(x) or log softmax(x) by row. A row of -inf alone gives zeros (softmax) or -inf. y may
// be x.
template <class T>
struct Softmax {
  int64_t rows, n;
  bool log;
  const T* x;
  T* y;
};
HEED_KERNEL(Softmax);

// dx from y = softmax(x): y (dy - sum(dy y)); from y = log softmax(x): dy - exp(y) sum(dy). dx may
// be dy.
template <class T>
struct SoftmaxGrad {
  int64_t rows, n;
  bool log;
  const T* y;
  const T* dy;
  T* dx;
};
HEED_KERNEL(SoftmaxGrad);

// What a norm is taken of, where it is a sum: x + dropout(more), which goes to `sum`. Backward,
// `sum` is where d more goes. A GPU's alone: one pass instead of two.
template <class T>
struct NormOfSum {
  float p;
  Seed seed;
  const T* more;  // or null: it is x itself, and what stands here does not count
  T* sum;
};

// y = (x - mean) * r * gain + bias by row, r = 1 / sqrt(variance + epsilon); without `centered`
// (RMS norm) the mean is taken as 0 and there is no bias. `mean` and `r` are saved for backward.
template <class T>
struct Norm {
  int64_t rows, n;
  bool centered;
  Wide<T> epsilon;
  const T* x;
  const Wide<T>* gain;
  const Wide<T>* bias;  // null unless centered
  T* y;
  Wide<T>*mean, *r;  // [rows]
  NormOfSum<T> of = {};
};
HEED_KERNEL(Norm);

// dx or, with `add`, what is added to it, and the sums over rows dgain and dbias (null unless
// centered). dx may be dy, but not with `add`. With `partial`, a GPU's alone, dgain and dbias are
// not set; their sums are left to be added up (deferred gradients), [norm_parts(rows), n or,
// centered, 2 n].
constexpr int64_t norm_parts(int64_t rows) { return rows < 8 * 264 ? (rows + 7) / 8 : 264; }
template <class T>
struct NormGrad {
  int64_t rows, n;
  bool centered, add;
  const T* x;
  const Wide<T>*gain, *mean, *r;
  const T* dy;
  T* dx;
  Wide<T>*dgain, *dbias;
  Wide<T>* partial;      // or null
  NormOfSum<T> of = {};  // `more` is not read; without `sum`, d more is not wanted
};
HEED_KERNEL(NormGrad);

// Cross entropy with label smoothing e, and its gradient, in one pass over the logits; the
// probabilities are never saved. For each row, with target t (t < 0: the row does not count),
//   loss = -(1-e) log p_t - e/n sum_j log p_j,   d_logits = scale * (p - (1-e) 1_t - e/n).
// d_logits may be logits, or null.
template <class T>
struct CrossEntropy {
  int64_t rows, n;
  Wide<T> smoothing;
  const Wide<T>* scale;  // in the device's memory: a step that was captured has others
  const T* logits;
  const Id* target;
  Wide<T>* loss;  // [rows]
  T* d_logits;
};
HEED_KERNEL(CrossEntropy);

// y[i] = table[id[i]], rows of n.
template <class T>
struct Gather {
  int64_t count, n;
  const T* table;
  const Id* id;
  T* y;
};
HEED_KERNEL(Gather);

// table[id[i]] += x[i], for i in rising order (the same bits on any number of threads).
template <class T>
struct ScatterAdd {
  int64_t count, n;
  const T* x;
  const Id* id;
  Wide<T>* table;
};
HEED_KERNEL(ScatterAdd);

// Rotary positions (RoPE, Su et al., 2021): each pair (x_i, x_{i+n/2}) of a row at position p is
// rotated by p * base^(-2i/n); `backward` rotates the other way, which is the gradient. Row (b, t,
// h) of x[batch, length, heads, n] is at position first[b * first_step] + t.
template <class T>
struct Rotary {
  int64_t batch, length, heads, n;
  const Id* first;     // in the device's memory: every step of a decoder has another
  int64_t first_step;  // 0: one for all sentences, 1: one for each
  Wide<T> base;
  bool backward;
  const T* x;
  T* y;
};
HEED_KERNEL(Rotary);

// ---- a decoder's KV cache: arrays [rows, outer, capacity, n], of whose positions the first so
// many are set, in each row its own number. Numbers of positions lie in the device's memory, since
// every step has others.

// y[to[i]] = x[from[i]], of row i the first length[i / group] positions, for many arrays at once.
// Rows come in groups; y may be x where from[i] lies in the group of i. Without `to` row i goes to
// row i; with it groups are single rows, and a negative one goes nowhere.
inline constexpr int64_t kMaxGroup = 96;
template <class T>
struct MovePart {
  int64_t outer, n;
  const T* x;
  int64_t x_capacity;
  T* y;
  int64_t y_capacity;
};
template <class T>
struct MoveRows {
  int64_t groups, group;  // on a GPU at most kMaxGroup rows in one
  const Id* from;         // [groups * group]
  const Id* to;           // the same, or null
  const Id* length;       // [groups]
  int count;
  MovePart<T> part[kMaxParts];
};
HEED_F32_KERNEL(MoveRows);

// y[i, o, at[i] + j] = x[i, o, j]: x [rows, outer, positions, n] into y [rows, outer, capacity, n],
// for many arrays at once.
template <class T>
struct AppendPart {
  int64_t outer, positions, n;
  const T* x;
  T* y;
  int64_t capacity;
};
template <class T>
struct AppendRows {
  int64_t rows;
  const Id* at;  // [rows]
  int count;
  AppendPart<T> part[kMaxParts];
};
HEED_F32_KERNEL(AppendRows);

// ---- matrix products

enum class Activation { none, relu, gelu, tanh, sigmoid };

// c = f(a b + bias) or, with `accumulate`, c = c + a b, for each item of a batch
// [outer, inner]; a [m, k], b [k, n], c [m, n] with unit column stride. An element of c is summed
// in an order that depends on k (and, for n = 1, on a's layout) alone: the same bits whatever m, n,
// the batch or the threads.
template <class T, class C = T>
struct Matmul {
  int64_t m, n, k;
  Matrix<const T> a, b;
  Matrix<C> c;
  bool accumulate = false;
  const T* bias = nullptr;  // [n]
  int64_t bias_step = 0;    // from item to item of the batch; on a GPU
  Activation activation = Activation::none;
  int64_t outer = 1, inner = 1;
  BatchStride a_batch, b_batch, c_batch;
  const T* packed_b = nullptr;  // b as PackMatrix packed it; then b.data is not read
};
HEED_KERNEL(Matmul);
void run(Cuda, const Matmul<bf16, float>&);

// c_i = a_i^T b_i for many matrices of one size, a_i [k, m] and b_i [k, n]: gradients of weights.
// The arrays of pointers lie in the device's memory. For a GPU: small products fill it together.
template <class T>
struct OuterEach {
  int64_t count, m, n, k;
  const T* const* a;
  const T* const* b;
  Wide<T>* const* c;
};
void run(Cuda, const OuterEach<float>&);
void run(Cuda, const OuterEach<bf16>&);

// b [k, n] laid out as the product reads it, for a matrix that is used many times.
template <class T>
struct PackMatrix {
  int64_t k, n;
  Matrix<const T> b;
  T* packed;  // packed_size(k, n) long
};
void run(Cpu, const PackMatrix<float>&);
void run(Cpu, const PackMatrix<double>&);
int64_t packed_size(int64_t k, int64_t n);

// ---- recurrent cells
//
// One step for a batch of rows of n. Where `live` is 0 the state passes unchanged: the sentence is
// over. Rows of every array lie `*_row` apart, so that they can be slices of [B, T, n].

enum class Cell { rnn, gru, lstm };
constexpr int gate_count(Cell cell) { return cell == Cell::rnn ? 1 : cell == Cell::gru ? 3 : 4; }

// The gates hold x W + b (input part) and h U (state part) before, and activated gates after.
//   rnn:  h' = tanh(x + u)
//   gru:  r = s(x_r + u_r), z = s(x_z + u_z), c = tanh(x_c + r (u_c + b_c)), h' = (1-z) c + z h
//   lstm: i, f, o = s(x + u), g = tanh(x_g + u_g), c' = f c + i g, h' = o tanh(c')
// Gate order: gru r z c, lstm i f g o. The state part comes with its own bias added, b_c included.
template <class T>
struct CellStep {
  Cell cell;
  int64_t rows, n;
  const T* x;  // [rows, gates * n]
  int64_t x_row;
  const T* u;  // [rows, gates * n]
  int64_t u_row;
  const T* h;  // [rows, n]
  int64_t h_row;
  const T* c;  // lstm: [rows, n]
  int64_t c_row;
  const Id* live;  // [rows], or null: all live
  T* h_new;
  int64_t h_new_row;
  T* c_new;
  int64_t c_new_row;
  T* gates;  // saved for backward: activated gates, and for gru u_c after them: [rows, saved * n]
  int64_t gates_row;
};
HEED_F32_KERNEL(CellStep);
constexpr int saved_gates(Cell cell) { return cell == Cell::rnn ? 1 : 4; }

// The backward pass: from dh' (and dc') to the gradients of both gate parts and of h (only what
// does not go through h U) and c.
template <class T>
struct CellStepGrad {
  Cell cell;
  int64_t rows, n;
  const T* gates;
  int64_t gates_row;
  const T* h;
  int64_t h_row;
  const T *c, *c_new;
  int64_t c_row, c_new_row;
  const Id* live;
  const T* dh_new;
  int64_t dh_new_row;
  const T* dc_new;  // lstm, or null: zero
  int64_t dc_new_row;
  T* dx;  // [rows, gates * n]
  int64_t dx_row;
  T* du;  // [rows, gates * n]; for rnn and lstm equal to dx: may be null
  int64_t du_row;
  T* dh;
  int64_t dh_row;
  T* dc;
  int64_t dc_row;
};
HEED_F32_KERNEL(CellStepGrad);

// A whole sequence, or two of one size side by side (the directions of a layer), in one launch: at
// every step the product u = h U + bias and the cell. On a GPU alone: a persistent kernel, whose
// blocks hold U in their shared memory from the first step to the last. Products in tf32, or
// bf16, with f32 sums; a state is rounded where it is stored and multiplied, not on its way along
// the steps. Step t of row i of an array [rows, length, ..] is its row i * length + t.
template <class T>
struct CellSequence {
  struct Part {
    bool backward;          // from the last step to the first
    const T *x, *u, *bias;  // [rows, length, gates * n], [n, gates * n], [gates * n]
    const T *h0, *c0;       // [rows, n]; c0 and c: lstm
    T *h, *c;               // [rows, length, n], rows `state_row` apart
    Wide<T>* gates;         // [rows, length, saved * n]
  };
  Cell cell;
  int64_t rows, length, n, state_row;
  const Id* live;  // [length, rows], or null: all live
  int parts;
  Part part[2];
};
void run(Cuda, const CellSequence<float>&);
void run(Cuda, const CellSequence<bf16>&);
// Whether run() can do it, and in fewer launches than steps would be worth: n a multiple of 16
// (bf16: 32) with U small enough, arrays aligned to 16 bytes. Otherwise it is a matter of CellStep.
bool fits(Cuda, const CellSequence<float>&);
bool fits(Cuda, const CellSequence<bf16>&);

// The backward pass, from the gradients dh (and dc) of all states to those of both gate parts and
// of the first state.
template <class T>
struct CellSequenceGrad {
  struct Part {
    bool backward;
    const T* u;
    const T *h0, *c0, *h, *c;  // as they came out
    const Wide<T>* gates;
    const T *dh, *dc;  // [rows, length, n], rows `state_row` apart
    T *dx, *du;        // [rows, length, gates * n]; for rnn and lstm equal: du may be null
    T *dh0, *dc0;
  };
  Cell cell;
  int64_t rows, length, n, state_row;
  const Id* live;
  int parts;
  Part part[2];
};
void run(Cuda, const CellSequenceGrad<float>&);
void run(Cuda, const CellSequenceGrad<bf16>&);
bool fits(Cuda, const CellSequenceGrad<float>&);
bool fits(Cuda, const CellSequenceGrad<bf16>&);

// ---- weights

// y = x within each row's range, `outside` elsewhere: x [B, H, Tq, n], range [.., .., Tq, 2].
template <class T>
struct Limit {
  int64_t batch, heads, queries, n;
  const Id* range;
  int64_t range_batch, range_head;
  Wide<T> outside;
  const T* x;
  T* y;
};
HEED_KERNEL(Limit);

// Sparse weights by row: sparsemax (Martins and Astudillo, 2016) or 1.5-entmax (Peters et al.,
// 2019). A row of -inf alone gives zeros.
template <class T>
struct Entmax {
  int64_t rows, n;
  bool sparsemax;
  const T* x;
  T* y;
};
HEED_F32_KERNEL(Entmax);

// dx = s (dy - sum(s dy) / sum(s)), with s = y^(2 - alpha) where y > 0.
template <class T>
struct EntmaxGrad {
  int64_t rows, n;
  bool sparsemax;
  const T *y, *dy;
  T* dx;
};
HEED_F32_KERNEL(EntmaxGrad);

// 1 at the largest of each row (the first of equals), 0 elsewhere; a row of -inf alone gives zeros.
template <class T>
struct OneHot {
  int64_t rows, n;
  const T* x;
  T* y;
};
HEED_F32_KERNEL(OneHot);

// ---- attention
//
// Scores of queries against keys, softmax, the mean of the values by these weights: as one kernel
// (fused attention, FlashAttention), with an online softmax, which saves nothing of size Tq x Tk:
// for backward only the log-sum-exp of each row. Every mask is an interval of keys for each query.

// An array [B, H, T, n]; the last axis has stride 1.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  T* at(int64_t b, int64_t h, int64_t t) const { return data + b * batch + h * head + t * row; }
};

enum class ScoreForm {
  dot,       // scale * q.k
  log_dot,   // scale * log(q.k), for q.k >= 0
  additive,  // v.tanh(q + k), with a v for each head
};

// H query heads share G key heads, H / G consecutive ones each. A query that sees no key gets
// zeros. The bits of a row depend neither on the other rows nor on keys that it does not see; on a
// GPU the sizes choose the kernel, so there one query alone need not have the bits it has among
// many.
template <class T>
struct Attention {
  ScoreForm form;
  int64_t batch, heads, key_heads, queries, keys, size, value_size;  // B, H, G, Tq, Tk, n, m
  Heads<const T> q, k, value;  // [B, H, Tq, n], [B, G, Tk, n], [B, G, Tk, m]
  Wide<T> scale;
  const Wide<T>* v;           // additive: [H, n]
  const Wide<T>* powers;      // additive, on a CPU: of the keys, by KeyPowers; or null
  Heads<const Wide<T>> bias;  // [B, H, Tq, Tk] added to the scores, by strides of any sign; or null
  const Wide<T>* place;       // [B, H, Tq]: score_j gets -falloff (j - place)^2; or null
  Wide<T> falloff;
  const Id* range;  // [.., .., Tq, 2]: first key seen, and the one after the last; null: all
  int64_t range_batch, range_head;
  // On a CPU, or null: key j of sentence b, and its value, lie where those of sentence
  // origins[b * origins_known + j] do, for the first so many keys; others lie in their own.
  const Id* origins;
  int64_t origins_known;
  float dropout;  // of the weights, by bits that are a function of the seed and the index alone
  Seed seed;
  Heads<T> context;  // [B, H, Tq, m]
  // [B, H, Tq]: log-sum-exp, log2 of the sum of exp(score); -inf: nothing is seen. On a CPU null
  // where it is not wanted, nor are weights.
  Wide<T>* lse;
  Heads<Wide<T>> weights;  // [B, H, Tq, Tk] before dropout, or null: not wanted
};
HEED_KERNEL(Attention);

// The backward pass. Weights are recomputed from lse. dq, dv and dplace are set, dbias is added to
// (the op gives zeros); dk and dvalue are set or, with `add`, added to.
template <class T>
struct AttentionGrad {
  Attention<T> forward;  // its context and lse as they came out
  Heads<const T> dcontext;
  Heads<T> dq, dk, dvalue;
  bool add;
  Wide<T>* dv;           // additive: [H, n]
  Heads<Wide<T>> dbias;  // or null; with batch stride 0 the sum over the batch
  Wide<T>* dplace;       // [B, H, Tq], or null
};
HEED_KERNEL(AttentionGrad);
// Whether the GPU has room for heads of such sizes, forward and backward. What does not fit is
// composed of plain ops.
bool fits(Cuda, const Attention<float>&);
bool fits(Cuda, const Attention<bf16>&);

// What additive scores on a CPU need of a key, e^(2 k), for keys that a decoder reads in every
// step.
template <class T>
struct KeyPowers {
  int64_t batch, heads, keys, size;  // B, G, Tk, n
  Heads<const T> k;
  T* powers;  // key_powers_size(keys, size) for each sentence and head
};
void run(Cpu, const KeyPowers<float>&);
void run(Cpu, const KeyPowers<double>&);
int64_t key_powers_size(int64_t keys, int64_t size);

// The backward pass of a decoder's steps: AttentionGrad in two parts, for additive scores, one
// query a step, a key head for each head, without bias and place, n and m up to kMostStepSize. A
// step needs dq to go on; what flows to the keys that all steps read is their sum, computed once
// after the last (deferred gradients): no reading and writing of dk and dvalue step by step. On a
// CPU without dropout.
inline constexpr int64_t kMostStepSize = 8192;
template <class T>
struct StepGrad {
  Attention<T> forward;  // its context and lse as they came out
  Heads<const T> dcontext;
  Heads<T> dq;
  Wide<T>* saved;  // [2, B, H, Tk]: d score, and the weight after dropout
};
void run(Cpu, const StepGrad<float>&);
void run(Cpu, const StepGrad<double>&);
void run(Cuda, const StepGrad<float>&);
void run(Cuda, const StepGrad<bf16>&);
bool fits(Cuda, const StepGrad<float>&);  // by its sizes alone
bool fits(Cuda, const StepGrad<bf16>&);
// dk_j = v sum_t dscore_tj (1 - tanh^2(q_t + k_j)), dvalue_j = sum_t weight_tj dcontext_t,
// dv = sum_tj dscore_tj tanh(q_t + k_j); dk and dvalue are set or, with `add`, added to.
template <class T>
struct StepsGrad {
  int64_t batch, heads, steps, keys, size, value_size;  // B, H, T, Tk, n, m
  Heads<const T> q, k, dcontext;                        // [B, H, T, n], [B, H, Tk, n], [B, H, T, m]
  const Wide<T>* v;
  const Wide<T>* saved;  // [2, B, H, T, Tk]: dscores and weights, as the steps saved them
  Heads<T> dk, dvalue;
  bool add;
  Wide<T>* dv;  // [H, n]
};
void run(Cpu, const StepsGrad<float>&);
void run(Cpu, const StepsGrad<double>&);
void run(Cuda, const StepsGrad<float>&);
void run(Cuda, const StepsGrad<bf16>&);

// ---- a decoder that reads its source before every step (ops/decoder.h), under teacher forcing, in
// bf16 on a GPU
//
// B sentences, T steps, Tk keys, states of n, keys of a elements; arrays of all steps are [B, T,
// ..], so that step t of sentence b is row b T + t.

// c = a b for few rows, where one launch must fill the GPU (split-K): the sum over k is cut into
// slices of kSlice, and the slices of c [slices, m, n] are left to be added up by who reads them. a
// [m, k] has rows `a_row` apart; b is [k, n] or, transposed, [n, k]. n is a multiple of 32, k of
// 64, rows are aligned to 16 bytes.
struct SlicedProduct {
  static constexpr int64_t kSlice = 512;
  static constexpr int64_t slices(int64_t k) { return (k + kSlice - 1) / kSlice; }
  int64_t m, n, k;
  const bf16* a;
  int64_t a_row;
  const bf16* b;
  bool transposed;
  float* c;
  bool follows;  // the launch before is a step of the same decoder, which does not write b
};
void run(Cuda, const SlicedProduct&);

struct DecoderSizes {
  int64_t batch, steps, keys, size, key_size;  // B, T, Tk, n, a
  const Id* range;                             // [B, 2]: the keys that are seen; null: all
  const bf16 *k, *value;                       // [B, Tk, a], [B, Tk, 3 n]
  const float* v;                              // [a]
};

// Step t, from [q | u] = h_{t-1} [W U], in `slices`, on:
//   w = softmax_j(v . tanh(q + k_j)),  gates = x + sum_j w_j value_j,  h_t = gru(gates, u + bias).
// The launch before is that SlicedProduct.
struct DecoderStep {
  DecoderSizes s;
  int64_t step, slices;
  const float* qu;       // [slices, B, a + 3 n]
  const bf16 *x, *bias;  // [B, T, 3 n], [3 n]
  float* state;          // [B, n]: h_{t-1}, which becomes h_t; it is not rounded on its way
  bf16* q;               // [B, T, a]
  bf16 *before, *h;      // [B, T, n]: h_{t-1} and h_t of every step
  float* gates;          // [B, T, 4 n]: r, z, c and u_c
  float* weights;        // [B, T, Tk]
};
void run(Cuda, const DecoderStep&);

// The backward pass of step t. The gradient of h_t is `dh` plus the sum of `carried`, of which the
// first plane is then what goes around the cell to h_{t-1}; what goes through [W U], [dq | du] [W
// U]^T, is the others', and left to SlicedProduct.
struct DecoderStepGrad {
  DecoderSizes s;
  int64_t step, planes;
  const bf16 *q, *before;
  const float *gates, *weights;
  const bf16* dh;         // [B, T, n]
  const float* dweights;  // [B, T, Tk], or null: nothing else reads the weights
  float* carried;         // [planes, B, n]
  bf16 *dx, *dqu;         // [B, T, 3 n], [B, T, a + 3 n]
  float* dscores;         // [B, T, Tk]
  bool follows;           // the launch before is the product of step t + 1
};
void run(Cuda, const DecoderStepGrad&);

// Whether both can: sizes are multiples of 64, and shared memory holds the keys' weights.
bool fits(Cuda, const DecoderSizes&);

}  // namespace heed::kernels
