#include "heed/base/check.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace heed {
namespace {

// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view given, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, given.size() / 2);
  for (const std::string& name : known) {
    const size_t distance = edit_distance(given, name);
    if (distance <= best_distance && (best.empty() || distance < best_distance)) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view kind, std::string_view given,
                         const std::vector<std::string>& known) {
  std::ostringstream message;
  message << "unknown " << kind << " '" << given << "'";
  if (const std::string near = nearest(given, known); !near.empty())
    message << "; did you mean '" << near << "'?";
  else
    message << ";";
  message << " have:";
  for (size_t i = 0; i < known.size(); ++i) message << (i ? ", " : " ") << known[i];
  return message.str();
}

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: this should hold and does not: %s\n", file, line, condition);
  std::abort();
}

}  // namespace heed
