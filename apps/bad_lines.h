// Lines of input that are not UTF-8: they do not end a job, but are repaired, named and counted.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "apps/flags.h"
#include "heed/files/lines.h"

namespace heed::apps {

class BadLines {
 public:
  // The flag --strict, with which the first is an error.
  void add_flag(CLI::App& command);
  // What reads lines tells them to; none with --strict. Borrows this.
  BadLine told();
  // Says on stderr how many there were.
  void sum_up() const;

 private:
  bool strict_ = false;
  int64_t count_ = 0;
};

}  // namespace heed::apps
