// Several heads, and their cache.
#include <gtest/gtest.h>

#include "heed/ops/gradient_check.h"
#include "tests/attending.h"
#include "tests/targets.h"

namespace heed {
namespace {

TEST(MultiHead, StepByStepIsTheSameAsAllAtOnceBitForBit) {
  struct Heads {
    int64_t queries, keys, length, size;
  };
  int tried = 0;
  for (const AttentionSpec& s : cases::scores())
    for (const auto& [heads, key_heads, T, size] :
         {Heads{1, 1, 20, 24}, Heads{2, 2, 20, 24}, Heads{4, 2, 150, 24}, Heads{4, 2, 40, 128}})
      for (const bool rotary : {false, true}) {
        if (rotary && s.score != "scaled_dot") continue;
        const Params params(1);
        const MultiHead mh(params, {.model = size,
                                    .heads = heads,
                                    .key_heads = key_heads,
                                    .score = s.score,
                                    .rank = s.rank,
                                    .positions = T,
                                    .rotary = rotary});
        AttentionSpec one = s;
        one.query_size = one.key_size = 4;
        if (!attention_case(one).form) continue;
        Random random(2);
        const Tensor x = normal({2, T, size}, 1, random);
        const auto bias = alibi(heads);
        on_every_target([&](const char* target) {
          const Tensor all =
              mh(x, mh.project_kv(x), {.mask = Mask::causal(), .bias = bias.get()}).y;
          KeyValueCache cache;
          int64_t wrong = 0;
          // The first few at once, as a prompt, the others one by one.
          for (int64_t t = 0, next = 3; t < T; t = next, next = t + 1) {
            const Tensor step = slice(x, 1, t, next);
            cache.append(mh.project_kv(step, t));
            const Tensor y =
                mh(step, cache.all(), {.mask = Mask::causal(), .bias = bias.get(), .first = t}).y;
            wrong += y.values() != slice(all, 1, t, next).values();
          }
          EXPECT_EQ(wrong, 0) << s.name() << ", " << heads << "/" << key_heads << " heads"
                              << (rotary ? ", rotary" : "") << ": steps that differ, " << target;
        });
        ++tried;
      }
  EXPECT_GT(tried, 20);
}

TEST(MultiHead, IsItsFormula) {
  const Params params(1, Type::f64);
  const MultiHead mh(params, {.model = 6, .memory = 5, .heads = 2, .head_size = 4});
  const Tensor x = normal64({2, 3, 6}, 1), memory = normal64({2, 7, 5}, 2);
  const auto projected = [&](const Tensor& from, const std::string& part) {
    return linear(from, params.at(part + ".weight").value, params.at(part + ".bias").value);
  };
  const Tensor q = projected(x, "query"), k = projected(memory, "key"),
               v = projected(memory, "value");
  std::vector<Tensor> heads;
  for (int64_t h = 0; h < 2; ++h) {
    const auto of = [&](const Tensor& y) { return slice(y, 2, 4 * h, 4 * h + 4); };
    heads.push_back(
        matmul(softmax(matmul(of(q), transpose(of(k), 1, 2)) * 0.5), contiguous(of(v))));
  }
  EXPECT_LE(worst(projected(concat(heads, 2), "output").values(),
                  mh(x, mh.project_kv(memory)).y.values()),
            1e-13);
  const auto f = [&](const std::vector<Tensor>& in) { return mh(in[0], mh.project_kv(in[1])).y; };
  const GradientCheck check = check_gradient(f, {x, memory});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

KeysValues some_keys(int64_t batch, int64_t length, uint64_t seed) {
  return {{normal64({batch, 2, length, 3}, seed)}, normal64({batch, 2, length, 4}, seed + 1)};
}

TEST(KeyValueCache, GrowsInPlaceAndDoublesItsCapacity) {
  KeyValueCache cache;
  std::vector<Tensor> keys, values;
  const void* before = nullptr;
  int moved = 0;
  for (int64_t t = 0; t < 100; ++t) {
    const KeysValues more = some_keys(2, 1, static_cast<uint64_t>(t));
    keys.push_back(more.keys.k), values.push_back(more.values);
    cache.append(more);
    ASSERT_EQ(cache.length(), t + 1);
    const KeysValues all = cache.all();
    moved += all.keys.k.raw() != before;
    before = all.keys.k.raw();
    if (t % 9 == 0 || t == 99) {
      EXPECT_EQ(all.keys.k.values(), concat(keys, 2).values()) << t;
      EXPECT_EQ(all.values.values(), concat(values, 2).values()) << t;
    }
  }
  EXPECT_LE(moved, 4);  // 24, 48, 96, 192
}

// In place within groups, and with a capacity that is fixed: the same numbers, at the same place.
TEST(KeyValueCache, AFixedCapacityStaysWhereItIs) {
  KeyValueCache grown, fixed(40);
  const KeysValues first = some_keys(6, 5, 1);
  grown.append(first), fixed.append(first);
  const void* const before = fixed.all().keys.k.raw();
  for (int64_t t = 5; t < 12; ++t) {
    const std::vector<Id> from{1, 0, 1, 3, 3, 5};  // groups of three; two change places
    grown.reorder(from);
    fixed.reorder(from, 3);
    const KeysValues more = some_keys(6, 1, 100 + static_cast<uint64_t>(t));
    grown.append(more), fixed.append(more);
  }
  EXPECT_EQ(fixed.all().keys.k.raw(), before);
  const auto seen = [](const Tensor& x) { return slice(x, 2, 0, 12).values(); };
  EXPECT_EQ(fixed.all().keys.k.size(2), 40);
  EXPECT_EQ(seen(fixed.all().keys.k), grown.all().keys.k.values());
  EXPECT_EQ(seen(fixed.all().values), grown.all().values.values());
  EXPECT_FALSE(grown.mask().ranges({6, 1, 1, 12}));
  const Tensor range = *fixed.mask().ranges({6, 1, 1, 40});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(range.host_ids()[i], i % 2 ? 12 : 0);
  // The two last sentences, twice, into room for fewer.
  KeyValueCache other(20);
  const std::vector<Id> last{4, 5, 4, 5};
  other.take(fixed, last), grown.reorder(last);
  EXPECT_EQ(seen(other.all().keys.k), grown.all().keys.k.values());
  EXPECT_EQ(seen(other.all().values), grown.all().values.values());
  EXPECT_NE(message([&] { other.append(some_keys(4, 9, 1)); }).find("a capacity of 20"),
            std::string::npos);
}

TEST(KeyValueCache, ReordersSentences) {
  KeyValueCache cache;
  EXPECT_NE(message([&] { cache.all(); }).find("nothing has been added"), std::string::npos);
  cache.reorder(std::vector<Id>{0});  // nothing to do yet
  const KeysValues first = some_keys(3, 5, 1), second = some_keys(4, 2, 9);
  cache.append(first);
  // A search kept two followers of the last sentence, none of the second.
  cache.reorder(std::vector<Id>{2, 0, 2, 0});
  cache.append(second);
  const KeysValues all = cache.all();
  const std::vector<int64_t> from{2, 0, 2, 0};
  for (int64_t b = 0; b < 4; ++b) {
    const auto of = [](const Tensor& x, int64_t i) { return slice(x, 0, i, i + 1); };
    const int64_t was = from[static_cast<size_t>(b)];
    EXPECT_EQ(of(all.keys.k, b).values(),
              concat({of(first.keys.k, was), of(second.keys.k, b)}, 2).values());
    EXPECT_EQ(of(all.values, b).values(),
              concat({of(first.values, was), of(second.values, b)}, 2).values());
  }
  const std::vector<Id> beyond{0, 4};
  EXPECT_NE(message([&] { cache.reorder(beyond); }).find("sentence 4 of 4"), std::string::npos);
  EXPECT_NE(message([&] { cache.append(some_keys(3, 1, 1)); }).find("key/value cache: holds"),
            std::string::npos);
  KeysValues uneven = some_keys(4, 2, 1);
  uneven.values = slice(uneven.values, 2, 0, 1);
  EXPECT_NE(message([&] { cache.append(uneven); }).find("key/value cache: holds values"),
            std::string::npos);
  EXPECT_EQ(cache.length(), 7);
  KeyValueCache shorter;
  shorter.append(some_keys(4, 2, 1));
  KeyValueCache* const both[] = {&cache, &shorter};
  EXPECT_NE(message([&] {
              KeyValueCache::reorder(both, std::vector<Id>{0, 1, 2, 3}, 1);
            }).find("they cannot be reordered together"),
            std::string::npos);
}

// Reordering within sentences moves nothing; what is read is as if it had.
TEST(KeyValueCache, WhatWasReorderedIsReadWhereItLies) {
  constexpr int64_t kBeam = 3, kSize = 32;
  const Params params(1);
  const auto score = make_score("scaled_dot", params, {.query = kSize, .key = kSize, .heads = 4});
  KeyValueCache cache;
  cache.add_rows(2 * kBeam);
  std::vector<std::vector<Tensor>> wanted(2 * kBeam);  // keys of each row, by position
  Random random(3);
  int64_t compared = 0;
  const auto of = [](const Tensor& x, int64_t row) { return slice(x, 0, row, row + 1); };
  const auto reordered = [&] {
    std::vector<Id> from;
    for (int64_t i = 0; i < cache.rows(); ++i)
      from.push_back(static_cast<Id>(i / kBeam * kBeam + random.below(kBeam)));
    cache.reorder(from, kBeam);
    std::vector<std::vector<Tensor>> before = wanted;
    for (size_t i = 0; i < from.size(); ++i) wanted[i] = before[static_cast<size_t>(from[i])];
  };
  for (int64_t t = 0; t < 30; ++t) {
    const Tensor k = normal({cache.rows(), 2, 1, kSize}, 1, random);
    cache.append({{k}, k * 2});
    for (int64_t i = 0; i < cache.rows(); ++i) wanted[static_cast<size_t>(i)].push_back(of(k, i));
    const Tensor q = normal({cache.rows(), 4, 1, kSize}, 1, random);
    KeyValueCache moved = cache;
    const KeysValues all = moved.all(), lie = cache.as_they_lie();
    EXPECT_FALSE(all.keys.origins.has_value());
    compared += lie.keys.origins.has_value();
    for (int64_t i = 0; i < cache.rows(); ++i) {
      const auto& own = wanted[static_cast<size_t>(i)];
      const Tensor expected = concat(own, 2);
      const auto first = [&](const Tensor& x) { return slice(of(x, i), 2, 0, std::ssize(own)); };
      EXPECT_EQ(first(all.keys.k).values(), expected.values()) << i << " at " << t;
      EXPECT_EQ(first(all.values).values(), (expected * 2).values()) << i << " at " << t;
    }
    for (const bool weights : {false, true})
      on_every_target([&](const char* target) {
        const AttendOptions options{.mask = cache.mask(), .want_weights = weights};
        EXPECT_EQ(attend(*score, q, lie.keys, lie.values, options).context.values(),
                  attend(*score, q, all.keys, all.values, options).context.values())
            << target << " at " << t;
      });
    reordered();
    if (t == 9) {  // the second sentence takes the first one's place
      cache.keep_rows(std::vector<Id>{3, 4, 5}, std::vector<Id>{0, 1, 2}, kBeam);
      wanted.erase(wanted.begin(), wanted.begin() + kBeam);
    } else if (t == 14) {
      cache.add_rows(kBeam);
      wanted.resize(2 * kBeam);
    } else if (t == 19) {  // the longer one leaves
      cache.keep_rows(std::vector<Id>{3, 4, 5}, std::vector<Id>{0, 1, 2}, kBeam);
      wanted.erase(wanted.begin(), wanted.begin() + kBeam);
    }
  }
  EXPECT_GT(compared, 20);
}

}  // namespace
}  // namespace heed
