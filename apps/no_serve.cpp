// In place of serve.cpp, in a build without a server (HEED_SERVE).
#include "apps/commands.h"

namespace heed::apps {

void add_serve(CLI::App&) {}

}  // namespace heed::apps
