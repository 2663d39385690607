// One alignment from two: those of the two directions, each of which gives a word of one side at
// most one partner on the other.
//
//   intersection          links that both have: few, and mostly right
//   unite ("union")       links that either has: many
//   grow-diag             the intersection, then links of the union beside one that is there, as
//                         long as they align a word that is not aligned (Koehn et al., 2003)
//   grow-diag-final-and   then links of either between two words that are both not aligned
//   posterior             by probabilities, which links alone do not have: only an aligner that
//                         knows them can (aligner.h)
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/alignment.h"

namespace heed {

enum class Combine { intersection, unite, grow_diag, grow_diag_final_and, posterior };

// "union", "grow-diag": as flags spell them, in the order of the enum.
const std::vector<std::string>& combine_names();
// Throws Error, with the nearest name, for any other.
Combine combine_named(std::string_view name);

// Both sides' links are source first. Throws Error for Combine::posterior.
Links combine(std::span<const Link> forward, std::span<const Link> backward, Combine how);

// Target first: 3-4 becomes 4-3.
Links reversed_links(std::span<const Link> links);

}  // namespace heed
