// Several heads side by side (Vaswani et al., 2017, section 3.2.2), with any score:
//   [head_1; ...; head_H] W^O,  head_i = attend(Q W^Q_i, K W^K_i, V W^V_i).
// Heads of queries may share heads of keys and values (Ainslie et al., 2023).
#pragma once

#include <memory>
#include <string>

#include "heed/attention/attend.h"
#include "heed/nn/layers.h"
#include "heed/tensor/memory.h"

namespace heed {

// Projected keys, as the score prepared them, and values: what a layer remembers of a sequence.
struct KeysValues {
  PreparedKeys keys;  // [B, G, Tk, any]
  Tensor values;      // [B, G, Tk, d]
};

// Keys and values of a decoder that goes step by step; grows in place, and its room is doubled when
// it is full. Not for training: nothing is recorded. A copy shares the memory.
class KeyValueCache {
 public:
  KeyValueCache() = default;
  // One with a fixed room, in memory of the arena in use now: it stays where it is, so that a step
  // can be captured (tensor/graph.h). all() is the whole room then.
  explicit KeyValueCache(int64_t room);

  int64_t length() const { return length_; }
  // Adds the keys and values of further positions.
  void append(const KeysValues& more);
  // All so far: views, valid until the next append. Where the room is fixed there is more behind
  // them, which mask() hides.
  KeysValues all() const;
  Mask mask() const;

  // The same memory, in which nothing is remembered.
  KeyValueCache emptied() const;
  // Becomes what `other` is, its sentence from[i] as sentence i.
  void take(const KeyValueCache& other, std::span<const Id> from);

  // Sentence i of all of them, which are equally long, becomes what sentence from[i] was: after a
  // search has chosen. In place where from[i] is one of the `group` sentences, or hypotheses, that
  // i belongs to.
  static void reorder(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                      int64_t group = 1);
  void reorder(std::span<const Id> from, int64_t group = 1);

 private:
  void make_room(int64_t sentences, const Tensor& keys, const Tensor& values, int64_t room);

  int64_t length_ = 0, fixed_ = 0;  // 0: the room is not fixed
  std::shared_ptr<Arena> arena_;    // of a fixed one
  Tensor keys_, values_;            // [B, G, room, any]
};

class MultiHead {
 public:
  struct Sizes {
    int64_t model = 0;      // D of queries and of the result
    int64_t memory = 0;     // of what is attended to; 0: as model
    int64_t heads = 1;      // H
    int64_t key_heads = 0;  // G; 0: as heads
    int64_t head_size = 0;  // d; 0: model / heads
    std::string score = "scaled_dot";
    int64_t rank = 0, positions = 0;  // of scores that want them
    bool rotary = false;              // queries and keys are rotated by their positions
  };
  MultiHead(const Params& params, const Sizes& sizes);

  // Keys and values of x [B, Tk, memory], whose first position is `first`.
  KeysValues project_kv(const Tensor& x, int64_t first = 0) const;

  struct Output {
    Tensor y;           // [B, Tq, model]
    Attended attended;  // by head
  };
  Output operator()(const Tensor& x, const KeysValues& memory,
                    const AttendOptions& options = {}) const;
  // x attends to itself: (*this)(x, project_kv(x), options), with one product for all three.
  Output itself(const Tensor& x, const AttendOptions& options = {}) const;

 private:
  Tensor split(const Tensor& x, int64_t heads) const;
  Tensor for_score(const Tensor& x) const;
  KeysValues prepared(const Tensor& k, const Tensor& v, int64_t first) const;
  Output read(const Tensor& x, const Tensor& query, const KeysValues& memory,
              const AttendOptions& options) const;

  Sizes sizes_;
  Linear query_, key_, value_, output_;
  std::unique_ptr<Score> score_;
};

}  // namespace heed
