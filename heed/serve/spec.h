// What a server says of itself (GET /spec): the OpenAPI description with its own languages and
// limits, so that a request that fits the description is one that is answered.
#pragma once

#include <string>

#include "heed/serve/service.h"

namespace heed::serve {

std::string spec_of(const Models& models, const ServiceOptions& options);

}  // namespace heed::serve
