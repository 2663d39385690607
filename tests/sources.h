// Sentences of ids as the models' input.
#pragma once

#include <algorithm>
#include <vector>

#include "heed/models/model.h"

namespace heed {

using Words = std::vector<Id>;

// Rows of different length, padded.
inline Source source_of(const std::vector<Words>& rows) {
  size_t width = 0;
  for (const Words& w : rows) width = std::max(width, w.size());
  Words all;
  Source out;
  for (const Words& w : rows) {
    all.insert(all.end(), w.begin(), w.end());
    all.insert(all.end(), width - w.size(), 0);
    out.lengths.push_back(static_cast<Id>(w.size()));
  }
  out.ids = ids(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)});
  return out;
}

}  // namespace heed
