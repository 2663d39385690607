// The parameters as one flat array, and which part of it each rank has: whose gradients it adds up,
// and which it moves.
//
// Parts begin where blocks do, so many elements of one parameter counted from its first. What is
// summed by blocks, as the norm is, has the same bits on any number of ranks.
//
// Threads: an object does not change; functions that take ranks are called as those are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/nn/module.h"
#include "heed/ranks/nccl.h"
#include "heed/ranks/ranks.h"
#include "heed/training/optimizer.h"

namespace heed {

class Shards {
 public:
  // Ranks that exchange with each other: first those of a machine, then those in the same place on
  // every machine. A network then carries the gradients of a machine once, and not of each rank.
  struct Level {
    std::vector<int> ranks;
    size_t own = 0;             // which of them this one is
    std::vector<Range> ranges;  // that each of them ends with
    Range whole;                // of these
    int of = 1;                 // each begins with the sum of so many ranks
  };

  // Without `shares` ranks share out the sum alone, and each then has all of it.
  Shards(const Params& params, const Ranks& ranks, bool shares = true);

  int64_t elements() const { return elements_; }
  int64_t begin(size_t parameter) const { return begin_[parameter]; }
  const std::vector<Level>& levels() const { return levels_; }
  // What a rank has, and what of a parameter, counted from its first element.
  Range range(int rank) const { return ranges_[static_cast<size_t>(rank)]; }
  Range own() const { return range(rank_); }
  Range piece(size_t parameter, int rank) const;
  Range piece(size_t parameter) const { return piece(parameter, rank_); }
  bool shared() const { return shared_; }  // among several
  // Blocks, over all parameters; and those of a range that begins and ends where they do.
  int64_t blocks() const { return blocks_; }
  Range blocks_of(Range range) const { return {block_of(range.first), block_of(range.last)}; }

  // Of an array [elements()], or [blocks()], what everybody added up, to all: `own`, where there is
  // one, which does not lie in the array yet.
  void gather(const std::string& what, const Tensor& array, Ranks& ranks, GpuExchange* gpus,
              const Tensor& own = {}) const;
  // What everybody has of the parameters' values, to all, compute copies included.
  void gather(const Params& params, Ranks& ranks, GpuExchange* gpus) const;

 private:
  std::vector<Level> levels_for(int rank, int ranks, int each) const;
  int64_t border(Range whole, int64_t part, int64_t parts) const;
  int64_t block_of(int64_t border) const;
  size_t parameter_at(int64_t element) const;

  int rank_;
  bool shared_;
  std::vector<int64_t> begin_, count_, first_block_;  // by parameter
  int64_t elements_ = 0, blocks_ = 0;
  std::vector<Level> levels_;
  std::vector<Range> ranges_;  // by rank
};

std::span<std::byte> bytes_of(const Tensor& x);

// Ranks::exchange, or that of GPUs where there is one.
void exchange(const std::string& what, const std::vector<Ranks::Sent>& to,
              const std::vector<Ranks::Received>& from, Ranks& ranks, GpuExchange* gpus);

}  // namespace heed
