#include <cstdlib>

#include "heed/base/check.h"
#include "heed/ranks/ranks.h"

namespace heed {

std::shared_ptr<Ranks> join_ranks(const WaitOptions&) {
  const Launch launch = launched();
  require(launch.count == 1, "this is rank ", launch.rank, " of ", launch.count,
          ", and this heed was built without MPI; build with 'make mpi', or start one process");
  return alone();
}

void abort_ranks(int code) { std::_Exit(code); }

}  // namespace heed
