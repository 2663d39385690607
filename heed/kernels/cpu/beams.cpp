#include "heed/kernels/beams.h"

#include <algorithm>
#include <atomic>

#include "heed/kernels/beams-inl.h"

namespace heed::kernels {

void run(Cpu, const BeginBeams& k) {
  for (int64_t i = 0; i < k.count; ++i)
    if (k.slot[i] >= 0) begin_beam(k.beams, k.slot[i], k.number[i], k.longest[i], k.length[i]);
}

void run(Cpu, const GrowBeams& k) {
  const Beams& b = k.beams;
  for (int64_t slot = 0; slot < b.slots; ++slot) {
    const Id number = b.number[slot];
    if (number < 0) continue;
    const int64_t list = slot * b.beam * k.likeliest;
    BeamStep step(k, slot, k.value + list, k.index + list);
    bool over = false;
    const bool numbers = step.grow(over);
    if (numbers && !over) continue;
    const int64_t count = numbers ? std::min<int64_t>(step.finished, b.rules.best) : -1;
    for (int64_t i = 0; i < count; ++i) tell_ended(b, slot, i);
    b.over.count[slot] = static_cast<Id>(count);
    b.over.number[slot] = number;
    leave_beam(b, slot);
  }
}

}  // namespace heed::kernels
