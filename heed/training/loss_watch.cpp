#include "heed/training/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace heed {

// A uniform guess costs log V, with label smoothing too: the cross entropy of it is the same for
// every distribution of targets.
LossWatch::LossWatch(int64_t tokens, int64_t warmup)
    : uniform_(std::log(double(tokens))), warmup_(warmup) {}

// More than half the way from the best to a uniform guess's, and a nat at least: what no harder
// part of a corpus brings about.
bool LossWatch::is_far(double loss) const {
  return loss > state_.best + std::max(0.5 * (uniform_ - state_.best), 1.0);
}

bool LossWatch::doubtful() const {
  return is_far(last_) || (state_.best < uniform_ && last_ > uniform_);
}

std::optional<std::string> LossWatch::add(int64_t step, double loss, int64_t tokens) {
  State& s = state_;
  last_ = loss;
  s.loss += loss * double(tokens), s.tokens += tokens;
  if (++s.updates < kBlock) return {};
  const double mean = s.loss / double(std::max<int64_t>(s.tokens, 1));
  s.loss = 0, s.tokens = 0, s.updates = 0;
  const bool better = mean < s.best;
  s.far = !better && is_far(mean) ? s.far + 1 : 0;
  // One that still falls is let go on, however slowly.
  const bool warm = step - kBlock >= warmup_;
  s.uniform = !better && warm && mean > uniform_ ? s.uniform + 1 : 0;
  s.best = std::min(s.best, mean);
  std::ostringstream out;
  out.precision(3);
  if (s.far >= kBlocks)
    out << "the run has diverged: the loss of the last " << kBlock << " updates is " << mean
        << ", its best was " << s.best << ", and for " << kBlocks * kBlock
        << " updates it has not come back";
  else if (s.uniform >= kBlocks)
    out << "nothing is learnt: the loss is " << mean << ", above the " << uniform_
        << " of a guess by chance, and for " << kBlocks * kBlock << " updates it has not fallen";
  else
    return {};
  return out.str();
}

}  // namespace heed
