// One sentence of a search, for CPUs and GPUs alike: the choices of search/beam.cpp, in its order.
#pragma once

#include <limits>

#include "heed/kernels/beams.h"

#if defined(__CUDACC__)
#define HEED_BOTH __host__ __device__
#else
#define HEED_BOTH
#endif

namespace heed::kernels {

// Where the rows of a sentence stand in the next step.
HEED_BOTH inline void stand_at(const Beams& b, int64_t slot, Id position) {
  for (int64_t row = slot * b.beam; row < (slot + 1) * b.beam; ++row)
    b.position[row] = position, b.past[2 * row] = 0, b.past[2 * row + 1] = position + 1;
}
HEED_BOTH inline void see_source(const Beams& b, int64_t slot, Id length) {
  for (int64_t row = slot * b.beam; row < (slot + 1) * b.beam; ++row)
    b.source[2 * row] = 0, b.source[2 * row + 1] = length;
}

// A sentence is there, before its first step.
HEED_BOTH inline void begin_beam(const Beams& b, int64_t slot, Id number, Id longest, Id length) {
  stand_at(b, slot, 0), see_source(b, slot, length);
  b.number[slot] = number, b.longest[slot] = longest;
  b.steps[slot] = b.ended[slot] = b.finished[slot] = b.best_ended[slot] = 0;
  b.live[slot] = 1;
  for (int k = 0; k < b.beam; ++k) {
    const int64_t row = slot * b.beam + k;
    b.order[row] = 0;
    b.score[row] = k == 0 ? 0 : -std::numeric_limits<double>::infinity();
    b.last[row] = k == 0 ? b.rules.begin : b.rules.pad;
    b.from[row] = static_cast<Id>(row);
  }
}

// A step of a sentence: what it is now, and what becomes of it.
struct BeamStep {
  static constexpr double kNever = -std::numeric_limits<double>::infinity();

  const GrowBeams& k;
  const Beams& b;
  const int64_t slot, row;
  const float* const value;  // [beam, likeliest] of this sentence
  const Id* const index;
  Id steps, ended, finished;
  bool best_ended;

  HEED_BOTH BeamStep(const GrowBeams& kernel, int64_t at, const float* values, const Id* indices)
      : k(kernel),
        b(kernel.beams),
        slot(at),
        row(at * kernel.beams.beam),
        value(values),
        index(indices),
        steps(b.steps[at]),
        ended(b.ended[at]),
        finished(b.finished[at]),
        best_ended(b.best_ended[at] != 0) {}

  HEED_BOTH bool banned(Id token) const {
    const BeamRules& r = b.rules;
    if (token == r.end && steps < r.min_length) return true;
    if (token == r.unknown && !r.allow_unknown) return true;
    return !r.allow_begin && (token == r.pad || token == r.begin) && token != r.end;
  }
  HEED_BOTH double normalized(double log_probability, Id tokens) const {
    return log_probability / b.power[tokens + 1];
  }

  // Keeps an ended hypothesis, of equals the first one first.
  HEED_BOTH void finish(Id place, double log_probability, Id longest) {
    ++ended;
    const bool cut = b.rules.open_end && steps == longest;  // it has no end
    const double score = normalized(log_probability, cut ? (steps > 0 ? steps - 1 : 0) : steps);
    const int64_t first = slot * b.kept;
    Id at = finished;
    while (at > 0 && b.ended_score[first + at - 1] < score) --at;
    if (at == b.kept) return;
    if (finished < b.kept) ++finished;
    for (Id i = finished - 1; i > at; --i) {
      b.ended_score[first + i] = b.ended_score[first + i - 1];
      b.ended_log_probability[first + i] = b.ended_log_probability[first + i - 1];
      b.ended_length[first + i] = b.ended_length[first + i - 1];
      b.ended_place[first + i] = b.ended_place[first + i - 1];
    }
    b.ended_score[first + at] = score;
    b.ended_log_probability[first + at] = log_probability;
    b.ended_length[first + at] = steps, b.ended_place[first + at] = place;
  }

  // After the step: Beam::enough() and Beam::hopeless().
  HEED_BOTH bool over(double best_live, Id longest) const {
    const BeamRules& r = b.rules;
    const double* const scores = b.ended_score + slot * b.kept;
    if (finished == b.kept && normalized(best_live, longest) <= scores[finished - 1]) return true;
    if (b.beam == 1) return ended > 0;
    switch (r.ending) {
      case BeamRules::Ending::shrinking: return false;
      case BeamRules::Ending::likeliest_counted: return best_ended && ended >= r.best;
      case BeamRules::Ending::counted: return double(ended) >= r.enough;
      case BeamRules::Ending::full:
        return finished == b.kept && normalized(best_live, steps - 1) <= scores[finished - 1];
      case BeamRules::Ending::patience:
        return double(ended) >= r.enough && normalized(best_live, steps) <= scores[0];
    }
    return false;
  }

  // False: the scores are no numbers. `is_over` says whether the search is.
  HEED_BOTH bool grow(bool& is_over) {
    const BeamRules& r = b.rules;
    const int beam = b.beam;
    const Id longest = b.longest[slot], live = b.live[slot];
    const bool stops = steps >= longest;
    // By rank: places, where in their lists they are, how many there may not follow.
    Id order[kMostBeam], head[kMostBeam], passed[kMostBeam];
    double before[kMostBeam];  // their log-probabilities
    for (Id i = 0; i < live; ++i) {
      order[i] = b.order[row + i], before[i] = b.score[row + order[i]], head[i] = passed[i] = 0;
      if (!(value[order[i] * k.likeliest] > -std::numeric_limits<float>::infinity())) return false;
    }
    const bool shrinks = r.ending == BeamRules::Ending::shrinking;
    // Nothing takes the place of one that ends with the last token that there may be.
    const bool last = r.open_end && steps + 1 == longest;
    const int places = shrinks ? (beam > ended ? beam - ended : 0) : beam;

    Id token[kMostBeam], parent[kMostBeam];  // of the new ones, by rank
    double grown[kMostBeam];
    int count = 0;
    for (int rank = 0; count < beam && !((shrinks || last) && rank == places); ++rank) {
      Id best = -1, what = 0;
      double top = kNever;
      for (Id i = 0; i < live; ++i) {
        const int64_t list = order[i] * k.likeliest;
        double found = kNever;
        Id said = r.end;
        bool ends = stops;
        if (!stops) {
          // Where nothing may follow, the sentence ends.
          while (head[i] < k.likeliest && banned(index[list + head[i]])) ++head[i], ++passed[i];
          ends = head[i] == k.likeliest && passed[i] == k.likeliest;
        }
        if (ends) {
          if (head[i] > k.likeliest || (stops && head[i] > 0)) continue;
          const int64_t at = row + order[i];
          found = stops && (r.open_end || r.free_end) ? 0
                  : k.log_sum ? double(k.all[at * k.vocabulary + r.end] - k.log_sum[at])
                              : double(k.all[at * k.vocabulary + r.end]);
        } else {
          if (head[i] >= k.likeliest) continue;
          found = double(value[list + head[i]]), said = index[list + head[i]];
        }
        if (before[i] + found > top) top = before[i] + found, best = i, what = said;
      }
      if (best < 0) break;
      ++head[best];
      if (what == r.end) {
        best_ended = best_ended || rank == 0;
        // Those that only fill the places of ended ones do not end.
        if (rank < beam) finish(order[best], top, longest);
        continue;
      }
      token[count] = what, parent[count] = order[best], grown[count] = top;
      ++count;
    }

    // The first child of each hypothesis has its place, the others have those that are left.
    const int64_t now = (int64_t{steps} * b.slots + slot) * beam;
    Id place[kMostBeam];
    uint32_t taken = 0;
    for (int i = 0; i < count; ++i) {
      place[i] = taken >> parent[i] & 1 ? -1 : parent[i];
      taken |= 1u << parent[i];
    }
    for (int i = 0, free = 0; i < count; ++i) {
      if (place[i] >= 0) continue;
      while (taken >> free & 1) ++free;
      place[i] = free, taken |= 1u << free;
    }
    double best_live = kNever;
    for (int p = 0; p < beam; ++p) {
      if (taken >> p & 1) continue;
      b.score[row + p] = kNever, b.last[row + p] = r.pad;
      b.from[row + p] = static_cast<Id>(row + p);
    }
    for (int i = 0; i < count; ++i) {
      const int64_t at = row + place[i];
      b.order[row + i] = place[i], b.score[at] = grown[i];
      b.last[at] = token[i], b.from[at] = static_cast<Id>(row + parent[i]);
      b.token[now + place[i]] = token[i], b.parent[now + place[i]] = parent[i];
      best_live = best_live < grown[i] ? grown[i] : best_live;
    }
    ++steps;
    is_over = count == 0 || (!last && over(best_live, longest));
    stand_at(b, slot, steps);
    b.steps[slot] = steps, b.ended[slot] = ended, b.finished[slot] = finished;
    b.best_ended[slot] = best_ended, b.live[slot] = count;
    return true;
  }
};

// Nobody is there any more: what the model computes for such a slot is read by nobody.
HEED_BOTH inline void leave_beam(const Beams& b, int64_t slot) {
  stand_at(b, slot, 0), see_source(b, slot, 0);
  b.number[slot] = -1, b.live[slot] = b.steps[slot] = 0;
  for (int k = 0; k < b.beam; ++k) {
    const int64_t row = slot * b.beam + k;
    b.last[row] = b.rules.pad, b.from[row] = static_cast<Id>(row);
  }
}

// The i-th best hypothesis of a sentence that is over, for the host. Of a beam of one the tokens
// stand in a row, and are shared out: this is `lane` of `lanes`.
HEED_BOTH inline void tell_ended(const Beams& b, int64_t slot, int64_t i, int lane = 0,
                                 int lanes = 1) {
  const int64_t kept = slot * b.kept + i, told = slot * b.rules.best + i;
  const Id length = b.ended_length[kept];
  b.over.score[told] = b.ended_score[kept];
  b.over.log_probability[told] = b.ended_log_probability[kept];
  b.over.length[told] = length;
  Id place = b.ended_place[kept];
  for (int64_t t = length - 1 - lane; t >= 0; t -= lanes) {
    const int64_t at = (t * b.slots + slot) * b.beam + place;
    b.over.tokens[told * b.most + t] = b.token[at];
    if (b.beam > 1) place = b.parent[at];
  }
}

}  // namespace heed::kernels
