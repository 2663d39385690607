#include "heed/alignment/pair_aligner.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace heed {
namespace {

constexpr float kStemPrior = 1e-3f;

void add_to(uint32_t& sum, uint32_t units) {
  std::atomic_ref<uint32_t>(sum).fetch_add(units, std::memory_order_relaxed);
}

template <class T>
T at_or(const std::vector<T>& values, uint32_t i, T otherwise) {
  return i < values.size() ? values[i] : otherwise;
}

// For counting, the geometric mean, which wants both directions to agree; joint_posterior()
// decides.
float joint(float forward, float backward) { return std::sqrt(forward * backward); }

}  // namespace

void PairAligner::Types::find(std::span<const uint32_t> of) {
  ids.clear();
  index.resize(of.size());
  for (size_t i = 0; i < of.size(); ++i) {
    const auto found = std::ranges::find(ids, of[i]);
    index[i] = static_cast<uint32_t>(found - ids.begin());
    if (found == ids.end()) ids.push_back(of[i]);
  }
  own.assign(ids.size(), 0);
}

void PairAligner::Meetings::find(PairCounts& counts, const Types& source, const Types& target) {
  const size_t n = source.ids.size() * target.ids.size();
  place.resize(n);
  slot.resize(n);
  own.assign(n, 0);
  size_t at = 0;
  for (const uint32_t e : source.ids)
    for (const uint32_t f : target.ids) counts.prefetch(place[at++] = counts.place(e, f));
  at = 0;
  for (const uint32_t e : source.ids)
    for (const uint32_t f : target.ids) slot[at] = counts.find(place[at], e, f), ++at;
}

void PairAligner::take_off() {
  const auto F = static_cast<uint32_t>(target_types_.ids.size());
  const auto FS = static_cast<uint32_t>(target_stems_.ids.size());
  for (uint32_t i = 0, at = 0; i < I_; ++i)
    for (uint32_t j = 0; j < J_; ++j, ++at) {
      if (links_[at] == 0) continue;
      const uint32_t e = source_types_.index[i], f = target_types_.index[j];
      const uint32_t es = source_stems_.index[e], fs = target_stems_.index[f];
      if (!pairs_.slot[e * F + f]) continue;  // was never counted
      const uint32_t units = code_.units(links_[at]);
      pairs_.own[e * F + f] += units;
      source_types_.own[e] += units;
      target_types_.own[f] += units;
      stems_.own[es * FS + fs] += units;
      source_stems_.own[es] += units;
      target_stems_.own[fs] += units;
    }
}

void PairAligner::translations() {
  const AlignmentTables& t = tables_;
  const float each = 1 / static_cast<float>(t.unit);
  const auto E = static_cast<uint32_t>(source_types_.ids.size());
  const auto F = static_cast<uint32_t>(target_types_.ids.size());
  const auto FS = static_cast<uint32_t>(target_stems_.ids.size());
  // 1 / (n(e) + prior) of types and of stems.
  const auto inverse = [&](const std::vector<uint64_t>& totals, const Types& types, float prior) {
    std::vector<float> out(types.ids.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] =
          1 / (static_cast<float>(at_or<uint64_t>(totals, types.ids[i], 0) - types.own[i]) * each +
               prior);
    return out;
  };
  const auto types = [](const PieceIds& ids) { return static_cast<float>(ids.size()); };
  const auto stems = [](const PieceIds& ids) { return static_cast<float>(ids.stem_count()); };
  const auto of_e =
      inverse(t.source.total, source_types_, kLexicalPrior * types(t.target_ids) + kStemWeight);
  const auto of_f =
      inverse(t.target.total, target_types_, kLexicalPrior * types(t.source_ids) + kStemWeight);
  const auto of_es = inverse(t.source.stem_total, source_stems_, kStemPrior * stems(t.target_ids));
  const auto of_fs = inverse(t.target.stem_total, target_stems_, kStemPrior * stems(t.source_ids));
  forward_type_.resize(size_t{E} * F);
  backward_type_.resize(size_t{E} * F);
  for (uint32_t e = 0; e < E; ++e) {
    const uint32_t es = source_stems_.index[e];
    const float share_e = at_or(t.source.share, source_types_.ids[e], 0.1f);
    for (uint32_t f = 0; f < F; ++f) {
      const uint32_t fs = target_stems_.index[f], at = e * F + f, stem = es * FS + fs;
      const float share_f = at_or(t.target.share, target_types_.ids[f], 0.1f);
      const float count =
          pairs_.slot[at] ? static_cast<float>(pairs_.slot[at]->count - pairs_.own[at]) * each : 0;
      const float stem_count =
          (stems_.slot[stem]
               ? static_cast<float>(stems_.slot[stem]->count - stems_.own[stem]) * each
               : 0) +
          kStemPrior;
      forward_type_[at] =
          (count + kLexicalPrior + kStemWeight * share_f * stem_count * of_es[es]) * of_e[e];
      backward_type_[at] =
          (count + kLexicalPrior + kStemWeight * share_e * stem_count * of_fs[fs]) * of_f[f];
    }
  }
  float *forward = forward_.translation(), *backward = backward_.translation();
  for (uint32_t i = 0; i < I_; ++i) {
    const uint32_t row = source_types_.index[i] * F;
    for (uint32_t j = 0; j < J_; ++j) {
      forward[j * I_ + i] = forward_type_[row + target_types_.index[j]];
      backward[i * J_ + j] = backward_type_[row + target_types_.index[j]];
    }
  }
  const auto empty = [&](const SideTables& side, const PieceIds& ids,
                         std::span<const uint32_t> pieces, const std::vector<uint8_t>& own,
                         float* out) {
    const float all =
        1 / (static_cast<float>(side.empty_total) * each + kLexicalPrior * types(ids));
    for (size_t l = 0; l < pieces.size(); ++l) {
      const uint32_t count = at_or(side.empty, pieces[l], 0u) - code_.units(own[l]);
      out[l] = (static_cast<float>(count) * each + kLexicalPrior) * all;
    }
  };
  empty(t.target, t.target_ids, target_, empty_target_, forward_.empty());
  empty(t.source, t.source_ids, source_, empty_source_, backward_.empty());
}

const uint8_t* PairAligner::align(std::span<const uint32_t> source,
                                  std::span<const uint32_t> target, const PairOptions& options) {
  source_ = source, target_ = target;
  I_ = static_cast<uint32_t>(source.size()), J_ = static_cast<uint32_t>(target.size());
  source_types_.find(source);
  target_types_.find(target);
  const auto stems_of = [](const Types& types, const PieceIds& ids, Types& stems) {
    std::vector<uint32_t> all;
    for (const uint32_t id : types.ids) all.push_back(ids.stem(id));
    stems.find(all);
  };
  stems_of(source_types_, source_ids_, source_stems_);
  stems_of(target_types_, target_ids_, target_stems_);
  pairs_.find(tables_.pairs, source_types_, target_types_);
  stems_.find(tables_.stems, source_stems_, target_stems_);
  links_.assign(size_t{I_} * J_, 0);
  empty_source_.assign(I_, 0);
  empty_target_.assign(J_, 0);
  const uint8_t* end = options.own;
  if (end)
    for (std::vector<uint8_t>* codes : {&links_, &empty_source_, &empty_target_})
      end = unpack(end, *codes);
  forward_.start(J_, I_);
  backward_.start(I_, J_);
  if (tables_.stage == AlignmentStage::start) {  // nothing is known: all are alike
    for (ChainAligner* chain : {&forward_, &backward_}) {
      std::fill_n(chain->translation(), size_t{I_} * J_, 1.f);
      std::fill_n(chain->empty(), chain == &forward_ ? J_ : I_, 1.f);
    }
  } else {
    take_off();
    translations();
  }
  const auto run = [&](ChainAligner& chain, const SideTables& states, std::span<const uint32_t> of,
                       std::span<double> jumps) {
    if (options.stage <= AlignmentStage::model1) return chain.model1();
    if (options.stage == AlignmentStage::fertility) {
      chain.hmm(states.jumps, {});
      fertilities_.clear();
      for (const uint32_t piece : of)
        fertilities_.push_back(AlignmentTables::fertility_of(states, piece, tables_.unit));
      chain.apply_fertility(fertilities_);
    }
    chain.hmm(states.jumps, jumps);
  };
  run(forward_, tables_.source, source_, options.forward_jumps);
  run(backward_, tables_.target, target_, options.backward_jumps);
  return end;
}

void PairAligner::add(std::vector<uint8_t>& added, Fertilities fertilities) {
  const auto F = static_cast<uint32_t>(target_types_.ids.size());
  const auto FS = static_cast<uint32_t>(target_stems_.ids.size());
  for (uint32_t i = 0, at = 0; i < I_; ++i)
    for (uint32_t j = 0; j < J_; ++j, ++at) {
      links_[at] = PosteriorCode::of(joint(forward(i, j), backward(i, j)));
      if (links_[at] == 0) continue;
      const uint32_t e = source_types_.index[i], f = target_types_.index[j];
      PairCounts::Slot* slot = pairs_.slot[e * F + f];
      if (!slot) continue;
      const uint32_t units = code_.units(links_[at]);
      slot->add(units);
      stems_.slot[source_stems_.index[e] * FS + target_stems_.index[f]]->add(units);
    }
  for (uint32_t i = 0; i < I_; ++i) {
    empty_source_[i] = PosteriorCode::of(backward_.empty_posterior()[i]);
    add_to(tables_.source.next_empty[source_[i]], code_.units(empty_source_[i]));
  }
  for (uint32_t j = 0; j < J_; ++j) {
    empty_target_[j] = PosteriorCode::of(forward_.empty_posterior()[j]);
    add_to(tables_.target.next_empty[target_[j]], code_.units(empty_target_[j]));
  }
  for (const std::vector<uint8_t>* codes : {&links_, &empty_source_, &empty_target_})
    pack(*codes, added);
  if (fertilities == Fertilities::count) add_fertilities();
}

void PairAligner::add_fertilities() {
  const auto unit = static_cast<float>(tables_.unit);
  fertilities_.assign(I_ + J_, Fertility{1});
  // How many of independent links there are: the distribution with one link more.
  const auto one_more = [](Fertility& p, float link) {
    for (size_t phi = kFertilities; phi-- > 0;) {
      const float stay = phi + 1 == kFertilities ? 1 : 1 - link;
      p[phi] = p[phi] * stay + (phi > 0 ? p[phi - 1] * link : 0);
    }
  };
  for (uint32_t i = 0, at = 0; i < I_; ++i)
    for (uint32_t j = 0; j < J_; ++j, ++at) {
      if (links_[at] == 0) continue;
      one_more(fertilities_[i], code_.posterior(links_[at]));
      one_more(fertilities_[I_ + j], code_.posterior(links_[at]));
    }
  const auto count = [&](SideTables& side, uint32_t piece, const Fertility& p) {
    for (size_t phi = 0; phi < kFertilities; ++phi)
      if (const auto n = static_cast<uint32_t>(p[phi] * unit + 0.5f))
        add_to(side.next_fertility[size_t{piece} * kFertilities + phi], n);
  };
  for (uint32_t i = 0; i < I_; ++i) count(tables_.source, source_[i], fertilities_[i]);
  for (uint32_t j = 0; j < J_; ++j) count(tables_.target, target_[j], fertilities_[I_ + j]);
}

float PairAligner::both(uint32_t i, uint32_t j) const {
  return joint_posterior(forward(i, j), backward(i, j));
}

Links PairAligner::best(bool of_targets) const {
  const ChainAligner& chain = of_targets ? forward_ : backward_;
  const uint32_t L = of_targets ? J_ : I_, K = of_targets ? I_ : J_;
  Links links;
  for (uint32_t l = 0; l < L; ++l) {
    const float* p = chain.posterior() + size_t{l} * K;
    const auto k = static_cast<uint32_t>(std::max_element(p, p + K) - p);
    if (!(p[k] > chain.empty_posterior()[l])) continue;
    const auto step = static_cast<int32_t>(l), state = static_cast<int32_t>(k);
    links.push_back(of_targets ? Link{state, step} : Link{step, state});
  }
  return sorted_links(std::move(links));
}

Links PairAligner::links(Combine how, float threshold) const {
  if (how != Combine::posterior) return combine(best(true), best(false), how);
  Links links;
  for (uint32_t i = 0; i < I_; ++i)
    for (uint32_t j = 0; j < J_; ++j)
      if (const float p = both(i, j); p > threshold)
        links.push_back({static_cast<int32_t>(i), static_cast<int32_t>(j), std::min(p, 1.f)});
  return links;
}

}  // namespace heed
