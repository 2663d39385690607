#include "heed/attention/mask.h"

#include <algorithm>
#include <cmath>

namespace heed {

Mask Mask::padding(std::span<const Id> lengths) {
  Mask mask;
  mask.lengths_.emplace(lengths.begin(), lengths.end());
  return mask;
}

Mask Mask::causal() {
  Mask mask;
  mask.causal_ = true;
  return mask;
}

Mask Mask::past() {
  Mask mask;
  mask.past_ = true;
  return mask;
}

Mask Mask::window(int64_t before, int64_t after) {
  require(before >= 0 && after >= 0, "mask: a window of ", before, " before and ", after,
          " behind; wants 0 or more");
  Mask mask;
  mask.before_ = before, mask.after_ = after;
  return mask;
}

Mask Mask::around(const Tensor& places, double reach) {
  require(places.rank() == 3 && reach >= 0,
          "mask: wants places [B, H, Tq] and a reach of 0 or more,", " given ", places.shape(),
          " and ", reach);
  Mask mask;
  mask.places_ = places.detached(), mask.reach_ = reach;
  return mask;
}

Mask Mask::of(const Sizes& sizes, const Tensor& ranges) {
  Mask mask;
  mask.found_ = std::make_shared<const Found>(Found{sizes, ranges});
  return mask;
}

Mask Mask::operator&(const Mask& other) const {
  Mask both = *this;
  both.found_.reset();
  if (other.lengths_) {
    require(!lengths_ || lengths_->size() == other.lengths_->size(), "mask: paddings of ",
            lengths_ ? lengths_->size() : 0, " and of ", other.lengths_->size(),
            " sentences do not go together");
    both.lengths_ = other.lengths_;
    for (size_t b = 0; lengths_ && b < lengths_->size(); ++b)
      (*both.lengths_)[b] = std::min((*lengths_)[b], (*other.lengths_)[b]);
  }
  both.causal_ = causal_ || other.causal_;
  both.past_ = past_ || other.past_;
  if (other.before_) {
    both.before_ = std::min(before_.value_or(*other.before_), *other.before_);
    both.after_ = std::min(after_.value_or(*other.after_), *other.after_);
  }
  if (other.places_) {
    require(!places_, "mask: two predicted windows; one query can have one");
    both.places_ = other.places_, both.reach_ = other.reach_;
  }
  return both;
}

Mask Mask::at(const Sizes& sizes) const {
  Mask mask = *this;
  mask.found_ = std::make_shared<const Found>(Found{sizes, ranges(sizes)});
  return mask;
}

std::optional<Tensor> Mask::ranges(const Sizes& s) const {
  if (found_ && found_->sizes == s) return found_->ranges;
  if (!lengths_ && !causal_ && !past_ && !before_ && !places_) return std::nullopt;
  if (lengths_) {
    require(static_cast<int64_t>(lengths_->size()) == s.batch, "mask: ", lengths_->size(),
            " lengths for ", s.batch, " sentences");
    for (const Id length : *lengths_)
      require(length >= 0 && length <= s.keys, "mask: a length of ", length, " among ", s.keys,
              " keys");
  }
  std::vector<double> places;
  if (places_) {
    const Shape want{s.batch, s.heads, s.queries};
    require(places_->shape() == want, "mask: places want ", want, ", given ", places_->shape());
    places = places_->values();
  }
  const bool by_position = causal_ || past_ || before_;
  require(!by_position || !s.first.by_sentence() || std::ssize(s.first.of_sentences()) == s.batch,
          "mask: ", s.first.of_sentences().size(), " positions for ", s.batch, " sentences");
  const bool each = lengths_ || places_ || (by_position && s.first.by_sentence());
  const int64_t B = each ? s.batch : 1, H = places_ ? s.heads : 1;
  std::vector<Id> out;
  out.reserve(static_cast<size_t>(B * H * s.queries * 2));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < s.queries; ++i) {
        int64_t begin = 0, end = s.keys;
        const int64_t position = s.first.at(by_position ? b : 0, i);
        if (lengths_) end = (*lengths_)[static_cast<size_t>(b)];
        if (causal_) end = std::min(end, position + 1);
        if (past_) end = std::min(end, position);
        if (before_) begin = std::max(begin, position - *before_);
        if (after_) end = std::min(end, position + *after_ + 1);
        if (places_) {
          // A place that is no number sees nothing.
          const double at = places[static_cast<size_t>((b * H + h) * s.queries + i)];
          const bool number = std::isfinite(at);
          const auto limit = [&](double x) {
            return static_cast<int64_t>(std::clamp(x, -1.0, double(s.keys) + 1));
          };
          begin = number ? std::max(begin, limit(std::ceil(at - reach_))) : s.keys;
          end = number ? std::min(end, limit(std::floor(at + reach_)) + 1) : 0;
        }
        out.push_back(static_cast<Id>(begin));
        out.push_back(static_cast<Id>(std::max(begin, end)));
      }
  return ids(out, {B, H, s.queries, 2});
}

}  // namespace heed
