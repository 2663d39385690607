#include "heed/alignment/symmetrize.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "heed/base/check.h"

namespace heed {
namespace {

// The alignment while it grows: which links of the union are in it, and which words they align.
class Growing {
 public:
  Growing(std::span<const Link> forward, std::span<const Link> backward) {
    std::ranges::set_union(forward, backward, std::back_inserter(all_));
    in_.resize(all_.size());
    Links both;
    std::ranges::set_intersection(forward, backward, std::back_inserter(both));
    for (const Link& link : both) add(find(link));
  }

  // Until nothing is added: for every link that is in, in order, its neighbors. Words in the order
  // of the paper's pseudocode, so that every implementation gives the same.
  void grow_diag() {
    static constexpr Link kNeighbors[] = {{-1, 0},  {0, -1}, {1, 0},  {0, 1},
                                          {-1, -1}, {-1, 1}, {1, -1}, {1, 1}};
    for (bool added = true; added;) {
      added = false;
      for (size_t at = 0; at < all_.size(); ++at) {
        if (!in_[at]) continue;
        for (const Link& step : kNeighbors) {
          const size_t next = find({all_[at].source + step.source, all_[at].target + step.target});
          if (next == all_.size() || in_[next] || (has_source(next) && has_target(next))) continue;
          add(next);
          added = true;
        }
      }
    }
  }

  void final_and(std::span<const Link> links) {
    for (const Link& link : links)
      if (const size_t at = find(link); !has_source(at) && !has_target(at)) add(at);
  }

  Links links() const {
    Links out;
    for (size_t at = 0; at < all_.size(); ++at)
      if (in_[at]) out.push_back(all_[at]);
    return out;
  }

 private:
  size_t find(Link link) const {
    const auto found = std::ranges::lower_bound(all_, link);
    return found != all_.end() && *found == link ? static_cast<size_t>(found - all_.begin())
                                                 : all_.size();
  }
  bool has_source(size_t at) const { return sources_.contains(all_[at].source); }
  bool has_target(size_t at) const { return targets_.contains(all_[at].target); }
  void add(size_t at) {
    in_[at] = true;
    sources_.insert(all_[at].source);
    targets_.insert(all_[at].target);
  }

  Links all_;
  std::vector<bool> in_;
  std::unordered_set<int32_t> sources_, targets_;
};

}  // namespace

const std::vector<std::string>& combine_names() {
  static const std::vector<std::string> names = {"intersection", "union", "grow-diag",
                                                 "grow-diag-final-and", "posterior"};
  return names;
}

Combine combine_named(std::string_view name) {
  const auto& names = combine_names();
  const auto found = std::ranges::find(names, name);
  require(found != names.end(), unknown_name("way to combine", name, names));
  return static_cast<Combine>(found - names.begin());
}

Links combine(std::span<const Link> forward, std::span<const Link> backward, Combine how) {
  require(how != Combine::posterior,
          "combine: 'posterior' wants the links' probabilities, given links alone");
  Links out;
  if (how == Combine::intersection) {
    std::ranges::set_intersection(forward, backward, std::back_inserter(out));
    return out;
  }
  if (how == Combine::unite) {
    std::ranges::set_union(forward, backward, std::back_inserter(out));
    return out;
  }
  Growing growing(forward, backward);
  growing.grow_diag();
  if (how == Combine::grow_diag_final_and) {
    growing.final_and(forward);
    growing.final_and(backward);
  }
  return growing.links();
}

Links reversed_links(std::span<const Link> links) {
  Links out;
  out.reserve(links.size());
  for (const Link& link : links) out.push_back({link.target, link.source});
  return sorted_links(std::move(out));
}

}  // namespace heed
