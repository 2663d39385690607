// heed._core.attend, and the fused kernel for other frameworks' ops.
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "bindings.h"
#include "heed/attention/attend.h"
#include "heed/base/check.h"
#include "heed/base/stop.h"
#include "heed/ops/fused.h"
#include "heed/ops/into.h"
#include "heed/tensor/cuda.h"

namespace heed::python {
namespace {

// While it lives, this thread computes where the arrays are: on a GPU in a context on their stream,
// of which there is one for each stream that was ever named. Who waits for another thread's turn
// there waits without the interpreter's lock, which that thread may want.
class Where {
 public:
  Where(const ChosenDevice& device, uintptr_t stream) {
    if (device.device == Device::cpu) return;
    static std::mutex mutex;
    // Never taken down: when the process ends, the driver may be gone.
    static auto& contexts = *new std::map<std::pair<int, uintptr_t>, std::shared_ptr<Context>>;
    const py::gil_scoped_release free;
    {
      const std::lock_guard lock(mutex);
      std::shared_ptr<Context>& known = contexts[{device.index, stream}];
      if (!known)
        known = Context::make({.device = Device::cuda,
                               .index = device.index,
                               .pool = &ThreadPool::process(),
                               .stream = reinterpret_cast<void*>(stream)});
      kept_ = known;
    }
    context_.emplace(*kept_);
  }

 private:
  std::shared_ptr<Context> kept_;
  std::optional<UseContext> context_;
};

// Without the interpreter's lock and, on a CPU where queries and keys are many, interruptibly: what
// is few is done before a helper has begun.
void compute(const Tensor& q, const Tensor& k, std::function<void()> work) {
  constexpr double kMany = 1 << 26;
  if (q.device() == Device::cuda || double(q.count()) * double(k.size(2)) < kMany) {
    const py::gil_scoped_release free;
    return work();
  }
  run_interruptibly([work = std::move(work)](const std::atomic<bool>& stop) {
    const StopWhen no_longer_wanted(stop);
    work();
  });
}

// All on one device, which is given back.
ChosenDevice one_device(const std::vector<std::pair<py::object, const char*>>& arrays) {
  const ChosenDevice first = device_of(arrays[0].first, arrays[0].second);
  for (const auto& [array, what] : arrays) {
    const ChosenDevice other = device_of(array, what);
    require(other.device == first.device && other.index == first.index,
            "attend: ", arrays[0].second, " is on ", name(first.device), ":", first.index, ", ",
            what, " on ", name(other.device), ":", other.index, "; all must be on one device");
  }
  return first;
}

// [T, d], [B, T, d] or [B, H, T, d] as the last.
Tensor as_heads(const Tensor& x, const char* what) {
  require(x.rank() >= 2 && x.rank() <= 4, "attend: ", what,
          " wants [T, d], [B, T, d] or [B, H, T, d], given ", x.shape());
  const Shape &s = x.shape(), &t = x.strides();
  if (x.rank() == 2) return x.view({1, 1, s[0], s[1]}, {0, 0, t[0], t[1]});
  if (x.rank() == 3) return x.view({s[0], 1, s[1], s[2]}, {t[0], 0, t[1], t[2]});
  return x;
}

Tensor without_heads(const Tensor& given, int rank) {
  const Tensor x = contiguous(given);
  const Shape& s = x.shape();
  if (rank == 2) return x.view({s[2], s[3]}, row_major({s[2], s[3]}));
  if (rank == 3) return x.view({s[0], s[2], s[3]}, row_major({s[0], s[2], s[3]}));
  return x;
}

using Arrays = std::map<std::string, Tensor>;

// A score made of given parameters; the sizes inside it are theirs.
std::unique_ptr<Score> score_of(const std::string& name, const Arrays& params, const Tensor& q,
                                const Tensor& k) {
  ScoreSizes sizes{
      .query = q.size(3), .key = k.size(3), .heads = q.size(1), .key_heads = k.size(1)};
  const auto last = [&](const char* which, int from_end) -> int64_t {
    const auto found = params.find(which);
    return found == params.end() || found->second.rank() < -from_end ? 0
                                                                     : found->second.size(from_end);
  };
  const std::string known = score_row(name).name;
  if (known == "additive") sizes.size = last("W", -1);
  if (known == "bilinear" || known == "factorized") sizes.rank = last("A", -1);
  if (known == "static") {
    sizes.rank = last("W1", -1);
    sizes.positions = sizes.rank ? last("W1", -2) : last("W", -1);
  }
  if (known == "location") sizes.positions = last("W", -2);
  std::set<std::string> asked;
  const auto find = [&](const std::string& which, const Shape& shape) {
    asked.insert(which);
    const auto found = params.find(which);
    require(found != params.end(), "attend: score '", known, "' wants a parameter ", which,
            " of shape ", shape, "; give it in params, or take score_parameters()");
    Tensor x = found->second;
    if (x.rank() == shape.rank() - 1 && shape[0] == 1) {  // one head has no axis of its own
      std::vector<int64_t> s{1}, t{0};
      s.insert(s.end(), x.shape().begin(), x.shape().end());
      t.insert(t.end(), x.strides().begin(), x.strides().end());
      x = x.view(Shape(s), Shape(t));
    }
    require(x.shape() == shape && x.type() == wide(q.type()), "attend: score '", known, "' wants ",
            which, " of shape ", shape, " and ", heed::name(wide(q.type())), ", given ", x.shape(),
            " and ", heed::name(x.type()));
    return contiguous(x);
  };
  const auto all_known = [&](std::unique_ptr<Score> score) {
    for (const auto& [which, given] : params)
      require(asked.contains(which), "attend: score '", known, "' has no parameter ", which);
    return score;
  };
  if (wide(q.type()) == Type::f32)
    return all_known(make_score(known,
                                Params([&](const std::string& which, const Shape& shape,
                                           Params::Use) { return find(which, shape); }),
                                sizes));
  const Params own(/*seed=*/0, q.type(), Params::First::unset);  // given ones are of f32
  auto score = make_score(known, own, sizes);
  for (const Parameter& p : own.all()) copy_into(find(p.name, p.value.shape()), p.value.detached());
  return all_known(std::move(score));
}

Mask mask_of(const py::dict& given) {
  Mask mask;
  if (given.contains("lengths"))
    mask = mask & Mask::padding(given["lengths"].cast<std::vector<Id>>());
  if (given.contains("causal")) mask = mask & Mask::causal();
  if (given.contains("past")) mask = mask & Mask::past();
  if (given.contains("window")) {
    const auto w = given["window"].cast<std::pair<int64_t, int64_t>>();
    mask = mask & Mask::window(w.first, w.second);
  }
  return mask;
}

py::tuple attend_arrays(const py::object& q, const py::object& k, const py::object& v,
                        const std::string& score, const py::dict& o) {
  const uintptr_t stream = o["stream"].cast<uintptr_t>();
  std::vector<std::pair<py::object, const char*>> arrays{{q, "q"}, {k, "k"}, {v, "v"}};
  if (!o["bias"].is_none()) arrays.emplace_back(o["bias"], "the bias");
  for (const auto& [key, value] : o["params"].cast<py::dict>())
    arrays.emplace_back(py::reinterpret_borrow<py::object>(value), "a parameter");
  const ChosenDevice device = one_device(arrays);
  const Where where(device, stream);
  const Tensor given_q = seen(q, "q", stream);
  if (given_q.type() == Type::i32) no_such_type("q", "int32");
  const Tensor tq = as_heads(given_q, "q"), tk = as_heads(seen(k, "k", stream), "k"),
               tv = as_heads(seen(v, "v", stream), "v");
  require(tk.type() == tq.type() && tv.type() == tq.type(), "attend: types differ: q is ",
          name(tq.type()), ", k ", name(tk.type()), ", v ", name(tv.type()));
  Arrays params;
  for (const auto& [key, value] : o["params"].cast<py::dict>())
    params[key.cast<std::string>()] = seen(value, "a parameter", stream);
  AttendOptions options{.mask = mask_of(o["mask"].cast<py::dict>()),
                        .weigh = {.kind = weigh_kind(o["weigh"].cast<std::string>()),
                                  .temperature = o["temperature"].cast<double>()},
                        .want_weights = o["weights"].cast<bool>()};
  if (!o["bias"].is_none()) options.score_bias = seen(o["bias"], "the bias", stream);
  const auto found = std::make_shared<Attended>();
  compute(tq, tk, [=, rank = given_q.rank()] {
    const NoTape off;
    *found = attend(*score_of(score, params, tq, tk), tq, tk, tv, options);
    found->context = without_heads(found->context, rank);
    if (found->weights) found->weights = without_heads(*found->weights, rank);
  });
  return py::make_tuple(shown(found->context),
                        found->weights ? shown(*found->weights) : py::object(py::none()));
}

// First values of a score's parameters, by heed's own initializers.
py::dict score_parameters(const std::string& score, const py::dict& o, uint64_t seed,
                          const std::string& type) {
  ScoreSizes sizes;
  const auto size = [&](const char* key, int64_t& into) {
    if (o.contains(key)) into = o[key].cast<int64_t>();
  };
  size("query", sizes.query), size("key", sizes.key), size("heads", sizes.heads);
  size("key_heads", sizes.key_heads), size("size", sizes.size), size("rank", sizes.rank);
  size("positions", sizes.positions);
  const Params params(seed, type == "float64" ? Type::f64 : Type::f32);
  make_score(score, params, sizes);
  py::dict out;
  for (const Parameter& p : params.all()) out[p.name.c_str()] = shown(p.value.detached());
  return out;
}

// ---- for ops of other frameworks: every array is theirs, and so is scratch memory on a GPU

struct Operands {
  ChosenDevice where;
  uintptr_t stream;

  Tensor operator()(const py::handle& array, const char* name) const {
    return operand(array, name, where, stream);
  }
  std::optional<Tensor> if_any(const py::handle& array, const char* name) const {
    return array.is_none() ? std::nullopt : std::optional((*this)(array, name));
  }
};

void want_count(const py::tuple& given, size_t count) {
  require(given.size() == count, "attend: wanted ", count, " arrays, given ", given.size());
}

// `inputs`: q, k, value, v, bias, ranges.
FusedAttention fused_of(const std::string& form, double scale, const py::tuple& inputs,
                        const Operands& of) {
  require(form == "dot" || form == "log_dot" || form == "additive", "attend: unknown form '", form,
          "'");
  want_count(inputs, 6);
  return {.form = form == "dot"       ? ScoreForm::dot
                  : form == "log_dot" ? ScoreForm::log_dot
                                      : ScoreForm::additive,
          .q = of(inputs[0], "q"),
          .k = of(inputs[1], "k"),
          .value = of(inputs[2], "v"),
          .scale = scale,
          .v = of.if_any(inputs[3], "the parameter v"),
          .bias = of.if_any(inputs[4], "the bias"),
          .range = of.if_any(inputs[5], "ranges")};
}

// Memory for the context and the log-sum-exp of each row.
FusedSaved saved_of(const FusedAttention& a, const py::handle& context, const py::handle& lse,
                    const ChosenDevice& where) {
  require(a.q.rank() == 4 && a.value.rank() == 4, "attend: wants q, k and v of 4 axes, given ",
          a.q.shape(), " and ", a.value.shape());
  const Shape rows{a.q.size(0), a.q.size(1), a.q.size(2)};
  return {lent(context, "context", {rows[0], rows[1], rows[2], a.value.size(3)}, a.q.type(), where),
          lent(lse, "lse", rows, wide(a.q.type()), where)};
}

// On a GPU what is launched comes back at once: the interpreter's lock is kept, and `allocate` is
// asked for scratch memory, which is let go at the end: what follows on the stream may have it.
void compute_for(const FusedAttention& a, const py::object& allocate, std::function<void()> work) {
  if (a.q.device() == Device::cpu) return compute(a.q, a.k, std::move(work));
  std::vector<py::object> lent;
  const LentScratch lending([&](size_t bytes) {
    lent.push_back(allocate(bytes));
    return address_of(lent.back());
  });
  work();
}

void fused_forward(const std::string& form, double scale, const py::tuple& inputs,
                   const py::tuple& into, uintptr_t stream, const py::object& allocate) {
  want_count(into, 2);
  const Operands of{device_of(inputs[0], "q"), stream};
  const Where where(of.where, stream);
  const FusedAttention a = fused_of(form, scale, inputs, of);
  const FusedSaved made = saved_of(a, into[0], into[1], of.where);
  compute_for(a, allocate, [=] { fused_attention_into(a, made); });
}

// `saved`: context, lse and the gradient of the context; `into`: of q, k, value, v and the bias.
void fused_backward(const std::string& form, double scale, const py::tuple& inputs,
                    const py::tuple& saved, const py::tuple& into, uintptr_t stream,
                    const py::object& allocate) {
  want_count(saved, 3), want_count(into, 5);
  const Operands of{device_of(inputs[0], "q"), stream};
  const Where where(of.where, stream);
  const FusedAttention a = fused_of(form, scale, inputs, of);
  const FusedSaved made = saved_of(a, saved[0], saved[1], of.where);
  const Tensor dcontext = of(saved[2], "dcontext");
  const auto like = [&](const py::handle& array, const char* name, const Tensor& x) {
    return lent(array, name, x.shape(), x.type(), of.where);
  };
  const auto like_if_any = [&](const py::handle& array, const char* name,
                               const std::optional<Tensor>& x) {
    return array.is_none() ? std::nullopt : std::optional(like(array, name, x.value()));
  };
  const FusedGradients gradients{.dq = like(into[0], "dq", a.q),
                                 .dk = like(into[1], "dk", a.k),
                                 .dvalue = like(into[2], "dvalue", a.value),
                                 .dv = like_if_any(into[3], "dv", a.v),
                                 .dbias = like_if_any(into[4], "dbias", a.bias)};
  compute_for(a, allocate, [=] { fused_attention_gradients_into(a, made, dcontext, gradients); });
}

}  // namespace

void add_attention(py::module_& m) {
  m.def("attend", &attend_arrays, py::arg("q"), py::arg("k"), py::arg("v"), py::arg("score"),
        py::arg("options"));
  m.def("score_parameters", &score_parameters, py::arg("score"), py::arg("sizes"), py::arg("seed"),
        py::arg("type"));
  m.def("scores", [] {
    py::list out;
    for (const ScoreRow& row : score_table()) out.append(py::make_tuple(row.name, row.formula));
    return out;
  });
  m.def("weighings", [] {
    py::list out;
    for (const WeighRow& row : weigh_table()) out.append(py::make_tuple(row.name, row.formula));
    return out;
  });
  // The keys that each query sees, int32 [B or 1, 1, Tq, 2]; None: all.
  m.def("mask_ranges",
        [](const py::dict& mask, int64_t batch, int64_t heads, int64_t queries,
           int64_t keys) -> py::object {
          const std::optional<Tensor> found = mask_of(mask).ranges(
              {.batch = batch, .heads = heads, .queries = queries, .keys = keys});
          if (!found) return py::none();
          const auto owner = std::make_shared<Tensor>(contiguous(*found));
          const std::vector<py::ssize_t> shape(owner->shape().begin(), owner->shape().end());
          return view_of(owner->data<Id>(), shape, owner);
        });
  m.def("fused_forward", &fused_forward, py::arg("form"), py::arg("scale"), py::arg("inputs"),
        py::arg("into"), py::arg("stream"), py::arg("allocate"));
  m.def("fused_backward", &fused_backward, py::arg("form"), py::arg("scale"), py::arg("inputs"),
        py::arg("saved"), py::arg("into"), py::arg("stream"), py::arg("allocate"));
}

}  // namespace heed::python
