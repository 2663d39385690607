// A step of work on a GPU as one graph. Launching kernels one by one takes the host longer than
// small models take the GPU; a graph of all of them is launched at once.
//
//   StepGraphs graphs(arena);
//   graphs.run({rows, width}, [&] { forward, backward, update });
//
// The first time that a shape comes its step just runs, the second time it is captured, and from
// then on it is replayed: the same host code runs and takes the same memory from the arena, but its
// kernels are left out, since the graph has them; only what it uploads (ids, random keys, rates) is
// new. That asks three things of a step: the same shapes make the same requests of memory, nothing
// is read back within it, and everything it took from the arena is given back before the next one
// begins: results may be kept until then. What lasts longer, such as a decoder's state, lies in
// memory of another arena, at the same place whenever the shape comes. A number that the host
// computes from the data is uploaded too (as a tensor), never an argument of a kernel. A step that
// took other memory (its allocation trace) than when it was captured is run again, kernel by
// kernel, and its shape is captured anew.
//
// On a CPU a step simply runs.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "heed/tensor/context.h"

namespace heed {

class StepGraphs {
 public:
  using Shape = std::array<int64_t, 8>;  // all that the step's sizes depend on

  explicit StepGraphs(std::shared_ptr<Arena> arena);
  ~StepGraphs();

  // New tensors of `body` come from the arena. It may be called twice for one step: what it changes
  // of the host's state it must set, not add to.
  void run(const Shape& shape, const std::function<void()>& body);

  // The same step once more, without the host: launched as it is, if it has been captured and
  // uploads nothing. What it changes of the host's state is left to the caller. Else false.
  bool repeat(const Shape& shape);

  int64_t replayed() const { return replayed_; }  // steps so far that were one launch

 private:
  struct Captured;
  struct Inside;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Inside> inside_;  // none on a CPU
  int64_t replayed_ = 0;
};

// Says that what is done from here on depends on more than shapes: such a step is not captured, and
// one that has been is captured anew.
void cannot_be_captured();

// ---- for tensors, the tape and dispatch.h

// Is the step that is under way a replayed one, whose kernels are left out?
bool kernels_left_out();
// While a step is captured or replayed: where `bytes` of the host are going to lie on the GPU when
// the graph runs. Null otherwise.
void* graph_upload(const void* host, size_t bytes);

}  // namespace heed
