#include "heed/search/search.h"

#include <algorithm>
#include <cmath>

#include "heed/search/engine.h"

namespace heed {
namespace {

Tensor on_host(const Tensor& x) { return to(contiguous(x), Device::cpu); }

}  // namespace

namespace {

const std::vector<std::string> kEndings = {"patience", "full", "shrinking", "counted"};

}  // namespace

Ending ending_named(const std::string& name) {
  const auto found = std::find(kEndings.begin(), kEndings.end(), name);
  if (found == kEndings.end()) fail(unknown_name("ending", name, kEndings));
  return static_cast<Ending>(found - kEndings.begin());
}
std::string to_string(Ending ending) { return kEndings[static_cast<size_t>(ending)]; }

void check(const SearchOptions& o) {
  require(o.beam > 0 && o.best > 0, "search: wants a beam and a number of results above 0, given ",
          o.beam, " and ", o.best);
  require(
      double(o.best) <= std::max(1.0, o.patience) * double(o.beam) || o.sample || o.alternatives,
      "search: a beam of ", o.beam, " cannot give ", o.best, " results; widen the beam");
  const auto within = [](const char* name, auto value, double least, double most) {
    require(double(value) >= least && double(value) <= most, "search: ", name,
            " wants a number from ", least, " to ", most, ", given ", value);
  };
  within("normalize", o.normalize, 0, 100), within("coverage", o.coverage, 0, 1e6);
  require(o.patience > 0, "search: patience wants a number above 0, or inf, given ", o.patience);
  within("min_length", o.min_length, 0, 1e6), within("max_length", o.max_length, 0, 1e6);
  within("max_ratio", o.max_ratio, 0, 1000), within("max_extra", o.max_extra, 0, 1e6);
  require(o.min_length <= (o.max_length > 0 ? o.max_length : INT64_MAX) &&
              (o.max_ratio > 0 || o.min_length <= o.max_extra),
          "search: min_length is ", o.min_length, ", more than a translation may have");
  within("no_repeat", o.no_repeat, 0, 1e6), within("top_k", o.top_k, 0, 1e18);
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
          "search: repetition_penalty wants a number above 0, given ", o.repetition_penalty);
  require(o.prefix_bias >= 0 && o.prefix_bias < 1,
          "search: prefix_bias wants a share in [0, 1), given ", o.prefix_bias);
  require(o.prefix_bias == 0 || !(o.alternatives || o.sample),
          "search: prefix_bias is for searches, not for alternatives or draws");
  within("least_alternative", o.least_alternative, 0, 1);
  for (const std::vector<Id>& run : o.suppress)
    require(!run.empty(), "search: suppress has a run of no tokens");
  require(o.temperature > 0 && std::isfinite(o.temperature),
          "search: temperature wants a number above 0, given ", o.temperature);
  within("top_p", o.top_p, 0, 1);
}

Tensor chosen_weights(const std::vector<Weights>& all, int64_t layer, int64_t head,
                      int64_t mean_of) {
  require(!all.empty(), "alignment: this model has no attention to show");
  if (layer < 0) layer = static_cast<int64_t>(all.size()) - 1;
  require(layer < static_cast<int64_t>(all.size()), "alignment: layer ", layer, " of ", all.size());
  const Tensor& w = all[static_cast<size_t>(layer)].values;  // heads at axis 1
  if (head < 0) return mean(mean_of > 0 ? slice(w, 1, 0, std::min(mean_of, w.size(1))) : w, 1);
  require(head < w.size(1), "alignment: head ", head, " of ", w.size(1));
  Shape shape = w.shape();
  std::vector<int64_t> rest;
  for (int i = 0; i < w.rank(); ++i)
    if (i != 1) rest.push_back(shape[i]);
  return reshape(slice(w, 1, head, head + 1), Shape(std::span<const int64_t>(rest)));
}

void shift_weights(std::vector<std::vector<float>>& rows, int64_t shift) {
  for (size_t t = 0; t + static_cast<size_t>(shift) < rows.size(); ++t)
    rows[t] = rows[t + static_cast<size_t>(shift)];
}

std::vector<std::vector<Hypothesis>> search(const Model& model, const Source& source,
                                            const SearchOptions& options) {
  Engine engine(model);
  return search(engine, source, options);
}

std::vector<std::vector<Hypothesis>> search(Engine& engine, const Source& source,
                                            const SearchOptions& o) {
  const int64_t B = source.ids.size(0), width = source.ids.size(1);
  require(o.prefixes.empty() || static_cast<int64_t>(o.prefixes.size()) == B,
          "search: ", o.prefixes.size(), " prefixes for ", B, " sentences");
  require(o.numbers.empty() || static_cast<int64_t>(o.numbers.size()) == B,
          "search: ", o.numbers.size(), " numbers for ", B, " sentences");
  require(o.shortlists.empty() || static_cast<int64_t>(o.shortlists.size()) == B,
          "search: ", o.shortlists.size(), " shortlists for ", B, " sentences");
  std::vector<Engine::Request> requests;
  for (int64_t b = 0; b < B; ++b) {
    const auto tokens =
        source.ids.host_ids().subspan(static_cast<size_t>(b * width),
                                      static_cast<size_t>(source.lengths[static_cast<size_t>(b)]));
    Engine::Request& r = requests.emplace_back();
    r.source.assign(tokens.begin(), tokens.end());
    r.options = o;
    r.options.prefixes.clear(), r.options.numbers.clear(), r.options.shortlists.clear();
    if (!o.shortlists.empty()) r.shortlist = o.shortlists[static_cast<size_t>(b)];
    if (!o.prefixes.empty()) r.prefix = o.prefixes[static_cast<size_t>(b)];
    r.number = o.numbers.empty() ? b : o.numbers[static_cast<size_t>(b)];
    r.slots = std::max(B, r.slots);
  }
  std::vector<std::vector<Hypothesis>> out;
  for (Engine::Result& found : engine.decode(std::move(requests)))
    out.push_back(std::move(found.hypotheses));
  return out;
}

std::vector<Hypothesis> score_targets(const Model& model, const Source& source,
                                      const std::vector<std::vector<Id>>& targets,
                                      const SearchOptions& o) {
  require(static_cast<int64_t>(targets.size()) == source.ids.size(0),
          "score_targets: ", targets.size(), " targets for ", source.ids.size(0), " sentences");
  const NoTape off;
  size_t longest = 0;
  for (const auto& t : targets) longest = std::max(longest, t.size());
  const int64_t B = source.ids.size(0), T = static_cast<int64_t>(longest) + 1;
  std::vector<Id> in(static_cast<size_t>(B * T), o.pad);
  for (int64_t b = 0; b < B; ++b) {
    in[static_cast<size_t>(b * T)] = o.begin;
    const auto& t = targets[static_cast<size_t>(b)];
    std::copy(t.begin(), t.end(), in.begin() + b * T + 1);
  }
  const bool weights_needed = o.want_weights || o.coverage > 0;
  WantWeights wanted = weights_needed;
  std::vector<Id> lengths;  // with the begin symbol
  for (const auto& t : targets) lengths.push_back(static_cast<Id>(t.size() + 1));
  const bool whole = weights_needed && o.whole;
  if (whole) wanted = WantWeights(false).and_whole(o.layer.value(), lengths);
  const TeacherForced forced = model.forward(source, ids(in, {B, T}), wanted);
  const Tensor log_probabilities = on_host(log_softmax(model.logits(forced.hidden)));
  const int64_t V = log_probabilities.size(2);
  std::optional<Tensor> weights;
  require(!whole || forced.whole, "search: this model has no pass over the whole target; its ",
          "alignment says \"whole\", layer ", o.layer.value_or(-1));
  if (weights_needed)
    weights = on_host(whole ? chosen_weights({*forced.whole}, -1, o.head.value_or(-1), o.mean_of)
                            : chosen_weights(forced.weights, o.layer.value_or(-1),
                                             o.head.value_or(-1), o.mean_of));
  std::vector<Hypothesis> out;
  for (int64_t b = 0; b < B; ++b) {
    Hypothesis h{.ids = targets[static_cast<size_t>(b)]};
    const int64_t tokens = static_cast<int64_t>(h.ids.size());
    for (int64_t t = 0; t <= tokens; ++t) {
      const Id token = t < tokens ? h.ids[static_cast<size_t>(t)] : o.end;
      h.log_probability += double(log_probabilities.data<float>()[(b * T + t) * V + token]);
      if (weights) {
        const float* w = weights->data<float>() + (b * T + t) * weights->size(2);
        const int64_t length = source.lengths[static_cast<size_t>(b)];
        h.weights.emplace_back(w, w + (length > 0 ? length : t + 1));
      }
    }
    h.score = normalized(o, h.log_probability, h.ids.size());
    if (o.coverage > 0)
      h.score += o.coverage * coverage(h.weights, source.lengths[static_cast<size_t>(b)]);
    if (!o.want_weights) h.weights.clear();
    shift_weights(h.weights, o.shift);
    out.push_back(std::move(h));
  }
  return out;
}

}  // namespace heed
