// Token ids: what stands for a word or a piece of one in a sentence of numbers.
#pragma once

#include <cstdint>

namespace heed {

using Id = int32_t;  // a token, a row of a table

}  // namespace heed
