// What stands for a word in a sentence of numbers.
#pragma once

#include <cstdint>

namespace heed {

using Id = int32_t;  // a word, a row of a table

}  // namespace heed
