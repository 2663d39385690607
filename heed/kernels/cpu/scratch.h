// Memory that a kernel needs while it works, in the workspace of its thread.
#pragma once

#include <cstdint>

#include "heed/base/parallel.h"

namespace heed::kernels {

// What a thread's memory is used for. Two that are needed at the same time have two names.
enum class Scratch {
  product_left,     // a product's packed operands
  product_right,    //
  rows,             // sums over rows, or one row
  attention_block,  // attention: what a thread works on
  attention_whole   // and what all threads read, or save for the last step
};
static_assert(static_cast<int>(Scratch::attention_whole) < Workspace::kBlocks);

// This thread's, until it asks for the same again.
template <Scratch part, class T>
T* scratch(int64_t count) {
  return static_cast<T*>(
      workspace().at_least(static_cast<int>(part), static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace heed::kernels
