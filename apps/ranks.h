// The ranks that this process is one of, where mpirun or srun started several. Only the first one
// talks: the others' stdout and stderr lead nowhere, but for what ends them.
#pragma once

#include <memory>
#include <string>

#include "apps/flags.h"
#include "heed/ranks/ranks.h"

namespace heed::apps {

// First of all: before this process says anything.
void silence_other_ranks();
// Joins at the first call, waiting for the others up to `joining` seconds. What takes long before a
// run begins (a vocabulary, an alignment) is waited for up to an hour, then up to `deadline`
// seconds.
std::shared_ptr<Ranks> ranks(double joining = 300);
void set_deadline(double seconds);
// Of the machine's cores, unless --threads says how many, and of its GPUs, this rank's.
void take_share(Machine& machine);

// At the end of the program: `code` is what it ends with.
void leave_ranks(int code);
// What ends this process, told also where it is not the first rank.
void tell_failure(const std::string& words);

}  // namespace heed::apps
