// The backward pass of attention where it is not linked in: heed::inference records nothing, so that
// nobody asks for it.
#include "heed/base/check.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {
namespace {

[[noreturn]] void missing() {
  fail("attention: no backward pass in heed::inference; to train, link heed::heed");
}

}  // namespace

void run(Cpu, const AttentionGrad<float>&) { missing(); }
void run(Cpu, const AttentionGrad<double>&) { missing(); }
void run(Cpu, const KeyPowers<float>&) { missing(); }
void run(Cpu, const KeyPowers<double>&) { missing(); }
int64_t key_powers_size(int64_t, int64_t) { missing(); }
void run(Cpu, const StepGrad<float>&) { missing(); }
void run(Cpu, const StepGrad<double>&) { missing(); }
void run(Cpu, const StepsGrad<float>&) { missing(); }
void run(Cpu, const StepsGrad<double>&) { missing(); }

}  // namespace heed::kernels
