// The learning rate as a function of the step.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heed {

struct Schedule {
  std::string kind = "inverse_sqrt";  // or cosine, constant, plateau
  double rate = 1e-3;                 // the highest
  int64_t warmup = 1000;              // steps of linear growth up to it
  int64_t steps = 0;                  // cosine: where it reaches 0
  double factor = 1;                  // plateau: what is left of the rate so far
};

std::vector<std::string> schedule_kinds();

// Of step t, from 1 on.
double rate_at(const Schedule& schedule, int64_t t);

}  // namespace heed
