// The KV cache: keys and values of the positions so far, of a decoder that goes step by step.
//
// A row is a hypothesis; each has a length of its own, so that rows that began at different times
// take a step together. Memory grows in place, by positions and by rows. Not for training: nothing
// is recorded. A copy shares the memory.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heed/attention/attend.h"
#include "heed/ops/cache.h"

namespace heed {

// Projected keys, as the score prepared them, and values: what a layer keeps of a sequence.
struct KeysValues {
  PreparedKeys keys;  // [B, G, Tk, any]
  Tensor values;      // [B, G, Tk, d]
};

class KeyValueCache {
 public:
  KeyValueCache() = default;
  // With memory for so many positions and no more, of the arena in use: it stays where it is, so
  // that a step can be captured (tensor/graph.h). all() is the whole capacity then. With rows: that
  // many, all empty.
  explicit KeyValueCache(int64_t capacity, int64_t rows = 0);

  int64_t rows() const { return std::ssize(lengths_); }
  int64_t length() const;  // of the longest row
  std::span<const Id> lengths() const { return lengths_; }

  // Adds the keys and values of further positions, to each row after its own.
  // What a step appends `at` positions that the device knows, ids [rows], the host need not.
  void append(const KeysValues& more, const std::optional<Tensor>& at = {});
  // All so far: views, valid until the next append. What a row does not have, mask() hides.
  KeysValues all();
  // The same as they lie in memory: reordering moves nothing on a CPU, and who reads follows
  // PreparedKeys::origins.
  KeysValues as_they_lie() const;
  Mask mask() const;

  // Rows that have nothing yet, after the others.
  void add_rows(int64_t count);
  // Row to[i] becomes what row from[i] is, no row being both; then only the first `count` stay.
  void keep_rows(std::span<const Id> from, std::span<const Id> to, int64_t count);
  // These rows have nothing any more.
  void empty_rows(std::span<const Id> rows);

  // Becomes what `other` is, its row from[i] as row i.
  void take(const KeyValueCache& other, std::span<const Id> from);

  // Row i of all of them, which are equally long, becomes what row from[i] was: after a search has
  // chosen. In place where from[i] is one of the `group` rows, hypotheses of one sentence, that i
  // belongs to.
  static void reorder(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                      int64_t group = 1);
  void reorder(std::span<const Id> from, int64_t group = 1);
  // The same with ids that the host need not know, within groups alone, which are equally long:
  // with a fixed capacity. `lengths`: of the groups, if the host does not know these either.
  static void reorder(std::span<KeyValueCache* const> caches, const Tensor& from, int64_t group,
                      const std::optional<Tensor>& lengths);
  // All rows are so long.
  void set_lengths(std::span<const Id> lengths) { lengths_.assign(lengths.begin(), lengths.end()); }

 private:
  void make_room(int64_t rows, const Tensor& keys, const Tensor& values, int64_t capacity);
  void move_to(const KeyValueCache& before, int64_t rows, int64_t capacity);
  void gather();
  static void follow(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                     int64_t group);

  std::vector<Id> lengths_;       // of the rows
  int64_t fixed_ = 0;             // the capacity, if it is fixed
  std::shared_ptr<Arena> arena_;  // of a fixed one
  Tensor keys_, values_;          // [at least rows, G, capacity, any]
  // Where positions lie that were there at the last reordering, [rows, positions]; null: all in
  // their own row. The same for caches that were reordered together.
  std::shared_ptr<const Tensor> origins_;
  int64_t group_ = 1;  // rows, one after the other, that they stay within
};

}  // namespace heed
