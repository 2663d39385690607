#include "apps/bad_lines.h"

#include <cstdio>

namespace heed::apps {

void BadLines::add_flag(CLI::App& command) {
  command.add_flag("--strict", strict_,
                   "stop at a line that is not UTF-8, instead of reading its bad bytes as U+FFFD");
}

BadLine BadLines::told() {
  if (strict_) return {};
  constexpr int64_t kNamed = 5;
  return [this](const std::string& told) {
    if (++count_ <= kNamed) std::fprintf(stderr, "heed: %s\n", told.c_str());
  };
}

void BadLines::sum_up() const {
  if (count_ > 0)
    std::fprintf(stderr,
                 "heed: %lld line%s not UTF-8; what is bad was read as U+FFFD (--strict stops "
                 "at the first)\n",
                 static_cast<long long>(count_), count_ == 1 ? " was" : "s were");
}

}  // namespace heed::apps
