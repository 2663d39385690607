// Sums in a fixed tree, and who has which part of an update; the program over MPI is in
// ranks_test.sh.
#include "heed/ranks/ranks.h"

#include <gtest/gtest.h>

#include <random>

#include "heed/data/batch.h"
#include "heed/training/gradient_sum.h"
#include "tests/folder.h"
#include "tests/toy.h"

namespace heed {
namespace {

void add(float& y, const float& x) { y += x; }
using Sum = TreeSum<float, void (*)(float&, const float&)>;

// By its definition.
float tree(const std::vector<float>& terms, size_t first, size_t last) {
  if (last - first == 1) return terms[first];
  size_t p = 1;
  while (2 * p < last - first) p *= 2;
  return tree(terms, first, first + p) + tree(terms, first + p, last);
}

TEST(TreeSum, HasTheBitsOfItsDefinitionForEveryNumberOfRanks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  int other_than_in_order = 0;
  for (int64_t all = 1; all <= 24; ++all) {
    std::vector<float> terms;
    for (int64_t i = 0; i < all; ++i) terms.push_back(normal(random));
    const float wanted = tree(terms, 0, terms.size());
    float in_order = 0;
    for (const float x : terms) in_order += x;
    other_than_in_order += in_order != wanted;
    for (int n = 1; n <= all; ++n) {
      Sum total(&add);
      for (int r = 0; r < n; ++r) {
        const Share share = share_of(r, n, all);
        ASSERT_LT(share.first, share.last);
        Sum mine(&add);
        for (int64_t i = share.first; i < share.last; ++i)
          mine.put({.first = i, .value = terms[static_cast<size_t>(i)]});
        for (const Sum::Block& block : mine.blocks()) total.put(block);
      }
      EXPECT_EQ(total.total(), wanted) << all << " terms over " << n << " ranks";
    }
  }
  EXPECT_GT(other_than_in_order, 5) << "a sum in order would pass as well";
}

TEST(Batches, OfAnUpdateARankMakesItsOwn) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  const BatchOptions all{.tokens = 64, .seed = 3};
  Batches whole(corpus, all);
  std::vector<Batch> wanted;
  for (int i = 0; i < 24; ++i) wanted.push_back(whole.next());  // several epochs
  for (int r = 0; r < 3; ++r) {
    BatchOptions part = all;
    const Share share = share_of(r, 3, 4);
    part.every = 4, part.first = share.first, part.last = share.last;
    Batches mine(corpus, part);
    for (size_t update = 0; update < 6; ++update)
      for (int64_t i = share.first; i < share.last; ++i) {
        const Batch got = mine.next(), &want = wanted[4 * update + static_cast<size_t>(i)];
        EXPECT_EQ(got.source, want.source);
        EXPECT_EQ(got.lines, want.lines);
        EXPECT_EQ(got.after, want.after);
      }
  }
}

TEST(Ranks, AloneIsARankLikeAnyOther) {
  const auto one = alone();
  EXPECT_EQ(one->count(), 1);
  EXPECT_TRUE(one->first());
  EXPECT_EQ(one->gather("words", std::string("mine")), std::vector<std::string>{"mine"});
  EXPECT_EQ(one->gather("a number", 7), std::vector<int>{7});
  const std::vector<std::string> texts{"a\nb", "", std::string(1, '\0')};
  EXPECT_EQ(one->gather("texts", texts), std::vector<std::vector<std::string>>{texts});
  EXPECT_EQ(one->scatter("a text", {"mine"}), "mine");
  EXPECT_EQ(one->collect("a text", "mine"), std::vector<std::string>{"mine"});
  one->want_same("words", "mine");
  std::vector<Ranks::Sent> to(2);
  std::vector<Ranks::Received> from(2);
  EXPECT_THROW(one->exchange("too many", to, from), Error);
}

}  // namespace
}  // namespace heed
