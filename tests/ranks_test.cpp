// Sums in a fixed tree, and who has which part of an update; the program over MPI is in
// ranks_test.sh.
#include "heed/ranks/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "heed/data/batch.h"
#include "heed/ranks/nccl_library.h"
#include "heed/training/gradient_sum.h"
#include "heed/training/shards.h"
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

// Ranks that are threads of this process, `each` of them on a machine.
struct Meeting {
  explicit Meeting(int n) : sent(static_cast<size_t>(n)), all(n) {}
  std::vector<std::span<const Ranks::Sent>> sent;  // by rank
  std::barrier<> all;
  std::atomic<size_t> abroad = 0;  // bytes that went to another machine
};
class Thread : public Ranks {
 public:
  Thread(Meeting& meeting, int rank, int n, int each)
      : Ranks(rank, hosts(n, each)), meeting_(meeting), each_(each) {}

 private:
  static std::vector<std::string> hosts(int n, int each) {
    std::vector<std::string> out;
    for (int r = 0; r < n; ++r) out.push_back("machine " + std::to_string(r / each));
    return out;
  }
  void move(const std::string&, std::span<const Sent> to, std::span<const Received> from) override {
    const auto own = static_cast<size_t>(rank());
    meeting_.sent[own] = to;
    meeting_.all.arrive_and_wait();
    for (size_t r = 0; r < from.size(); ++r) {
      if (r == own) continue;
      const Sent& theirs = meeting_.sent[r][own];
      ASSERT_EQ(theirs.size(), from[r].size());
      if (!theirs.empty()) std::memcpy(from[r].data(), theirs.data(), theirs.size());
      if (static_cast<int>(r) / each_ != rank() / each_) meeting_.abroad += theirs.size();
    }
    meeting_.all.arrive_and_wait();
  }
  Meeting& meeting_;
  int each_;
};

TEST(Ranks, KnowTheirMachine) {
  Meeting meeting(6);
  for (int r = 0; r < 6; ++r) {
    const Thread pairs(meeting, r, 6, 2), fours(meeting, r, 6, 4);
    EXPECT_EQ(pairs.on_this_machine(), 2);
    EXPECT_EQ(pairs.order_on_machine(), r % 2);
    EXPECT_EQ(pairs.on_each_machine(), 2);
    EXPECT_EQ(fours.on_this_machine(), r < 4 ? 4 : 2);
    EXPECT_EQ(fours.order_on_machine(), r % 4);
    EXPECT_EQ(fours.on_each_machine(), 1);  // the second has fewer
  }
}

struct Summed {
  std::vector<std::vector<std::vector<double>>> gradients;  // by rank and parameter
  std::vector<std::vector<double>> squares;                 // by rank
  std::vector<std::vector<Range>> pieces;                   // by rank and parameter
  size_t abroad = 0;
};
// Of so many micro-batches over n ranks, `each` on a machine. The second parameter has a gradient
// in some of them, the last in none.
Summed summed(int64_t all, int n, int each, Type wire = Type::f32) {
  Meeting meeting(n);
  Summed out;
  out.gradients.resize(static_cast<size_t>(n)), out.squares.resize(static_cast<size_t>(n));
  out.pieces.resize(static_cast<size_t>(n));
  std::vector<std::jthread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      const auto context = Context::make({.threads = 1});
      const UseContext here(*context);
      Thread ranks(meeting, r, n, each);
      const Params params(1);
      for (const Shape& shape : {Shape{301, 73}, Shape{5}, Shape{64}, Shape{2}})
        params.add("p" + std::to_string(params.all().size()), shape, constant(0));
      const Shards shards(params, ranks, wire == Type::f32);
      GradientSum sum(params, shards, all, wire);
      const Share share = share_of(r, n, all);
      for (int64_t at = share.first; at < share.last; ++at) {
        Random random(static_cast<uint64_t>(at + 1));
        for (size_t i = 0; i < 3; ++i)
          if (i != 1 || at % 3 == 1) {
            const Parameter& p = params.all()[i];
            p.value.parameter_state()->grad =
                std::make_shared<Tensor>(normal(p.value.shape(), 1, random));
          }
        sum.take(at);
      }
      const auto own = static_cast<size_t>(r);
      const SummedGradients found = sum.give(ranks, nullptr);
      out.squares[own] = found.squares.values();
      for (size_t i = 0; i < params.all().size(); ++i) {
        out.pieces[own].push_back(shards.piece(i));
        out.gradients[own].push_back(found.pieces[i] ? found.pieces[i]->values()
                                                     : std::vector<double>());
      }
    });
  threads.clear();  // joins
  out.abroad = meeting.abroad;
  return out;
}

// Every element is one rank's, and has the bits of one process, as have the squares on all ranks.
TEST(GradientSum, HasTheSameBitsOnAnyRanksAndMachines) {
  for (const int64_t all : {1, 2, 3, 4, 6, 7, 8, 12}) {
    const Summed wanted = summed(all, 1, 1);
    EXPECT_EQ(wanted.gradients[0][1].empty(), all < 2);
    EXPECT_TRUE(wanted.gradients[0][3].empty());
    double squares = 0, by_block = 0;
    for (const auto& gradient : wanted.gradients[0])
      for (const double x : gradient) squares += x * x;
    for (const double x : wanted.squares[0]) by_block += x;
    EXPECT_NEAR(by_block, squares, 1e-5 * squares);
    EXPECT_EQ(wanted.squares[0].size(), 9u);  // six of the first, one of each other
    for (int n = 2; n <= all; ++n)
      for (int each = 1; each <= n; ++each) {
        const Summed found = summed(all, n, each);
        int with_some = 0;
        for (size_t i = 0; i < 4; ++i) {
          std::vector<double> joined(wanted.gradients[0][i].size(), NAN);
          std::vector<int> had(joined.size());
          for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
            const Range piece = found.pieces[r][i];
            with_some += i == 0 && piece.count() > 0;
            for (size_t j = 0; j < found.gradients[r][i].size(); ++j)
              joined.at(static_cast<size_t>(piece.first) +
                        j) = found.gradients[r][i][j],
                        ++had[static_cast<size_t>(piece.first) + j];
          }
          EXPECT_EQ(joined, wanted.gradients[0][i]) << all << " over " << n << ", " << each;
          EXPECT_EQ(std::count(had.begin(), had.end(), 1), std::ssize(had));
        }
        EXPECT_GE(with_some, std::min(n, 4)) << "the first is not shared out";
        for (size_t r = 0; r < static_cast<size_t>(n); ++r)
          EXPECT_EQ(found.squares[r], wanted.squares[0]) << all << " over " << n << ", " << each;
      }
  }
}

// The moments of all ranks together are those of one.
TEST(Shards, EachRankHasItsPartOfTheMoments) {
  Meeting meeting(4);
  const Params params(1);
  for (const Shape& shape : {Shape{500, 100}, Shape{7}, Shape{200, 100}})
    params.add("p" + std::to_string(params.all().size()), shape, constant(0));
  int64_t all = 0, most = 0;
  for (int r = 0; r < 4; ++r) {
    const Thread rank(meeting, r, 4, 2);
    const Shards shards(params, rank);
    std::vector<Range> pieces;
    for (size_t i = 0; i < params.all().size(); ++i) pieces.push_back(shards.piece(i));
    const Adam adam(params, {}, pieces);
    int64_t here = 0;
    for (const Tensor& m : adam.m()) here += m.count();
    all += here, most = std::max(most, here);
  }
  EXPECT_EQ(all, params.count());
  EXPECT_LT(most, params.count() / 4 + 4096);
}

// What each moved of its own, all have.
TEST(Shards, GiveWhatEachHasOfParametersToAll) {
  for (const int n : {1, 2, 3, 4, 6})
    for (int each = 1; each <= n; ++each) {
      Meeting meeting(n);
      std::vector<std::vector<double>> found(static_cast<size_t>(n));
      std::vector<std::jthread> threads;
      for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
          const auto context = Context::make({.threads = 1});
          const UseContext here(*context);
          Thread ranks(meeting, r, n, each);
          const Params params(1);
          for (const Shape& shape : {Shape{3}, Shape{137, 100}, Shape{4096}, Shape{1}})
            params.add("p" + std::to_string(params.all().size()), shape, constant(-1));
          const Shards shards(params, ranks);
          for (size_t i = 0; i < params.all().size(); ++i) {
            const Range piece = shards.piece(i);
            float* const w = params.all()[i].value.data<float>();
            for (int64_t j = piece.first; j < piece.last; ++j)
              w[j] = static_cast<float>(10'000 * static_cast<int64_t>(i) + j);
          }
          shards.gather(params, ranks, nullptr);
          for (const Parameter& p : params.all())
            for (const double w : p.value.values()) found[static_cast<size_t>(r)].push_back(w);
        });
      threads.clear();
      for (const auto& values : found) {
        ASSERT_EQ(values.size(), 3u + 13'700 + 4096 + 1);
        for (size_t j = 0; j < values.size(); ++j) {
          const size_t i = j < 3 ? 0 : j < 13'703 ? 1 : j < 17'799 ? 2 : 3;
          const size_t begin = i == 0 ? 0 : i == 1 ? 3 : i == 2 ? 13'703 : 17'799;
          ASSERT_EQ(values[j], double(10'000 * i + j - begin)) << n << " ranks, " << each;
        }
      }
    }
}

// In bf16 gradients are rounded, to 8 bits at most three times, and all ranks have all of them.
TEST(GradientSum, InBf16IsNearlyTheSameAndTheSameOnAllRanks) {
  for (const int each : {2, 4}) {
    const Summed exact = summed(4, 1, 1), found = summed(4, 4, each, Type::bf16);
    ASSERT_EQ(found.gradients[0][0].size(), exact.gradients[0][0].size());
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(found.gradients[r], found.gradients[0]);
      EXPECT_EQ(found.squares[r], found.squares[0]);
    }
    double most = 0;
    for (size_t i = 0; i < exact.gradients[0][0].size(); ++i) {
      const double error = std::abs(found.gradients[0][0][i] - exact.gradients[0][0][i]);
      EXPECT_LE(error, 3.0 / 512 * 16) << i;  // three halves of a last bit, of four numbers below 4
      most = std::max(most, error);
    }
    EXPECT_GT(most, 0.001) << "nothing was rounded";
  }
}

// Machines exchange a machine's sum, and not each rank's: of four ranks on two machines, half of
// what four machines send.
TEST(GradientSum, OfAMachineGoesOverTheNetworkOnce) {
  const size_t apart = summed(4, 4, 1).abroad, together = summed(4, 4, 2).abroad;
  EXPECT_GT(together, apart / 4);
  EXPECT_LT(together, apart / 2);
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

// By which memory is tried out: no batch is larger on any side, and none is lost.
TEST(Batches, TheLongestIsAsLargeAsAny) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  const BatchOptions options{.tokens = 64, .seed = 3};
  Batches plain(corpus, options), asked(corpus, options);
  const Batch longest = asked.longest();
  EXPECT_LE(longest.rows * std::max(longest.source_width, longest.target_width), options.tokens);
  EXPECT_EQ(longest.source_tokens(), longest.rows * longest.source_width);
  int64_t widest_source = 0, widest_target = 0;
  for (int i = 0; i < 100; ++i) {
    const Batch want = plain.next(), got = asked.next();
    EXPECT_EQ(got.source, want.source);
    EXPECT_EQ(got.position, want.position);
    widest_source = std::max(widest_source, got.source_width);
    widest_target = std::max(widest_target, got.target_width);
  }
  EXPECT_EQ(longest.source_width, widest_source);
  EXPECT_EQ(longest.target_width, widest_target);
}

std::string said_of(const char* file) {
  try {
    nccl::load(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Nccl, ThatIsMissingOrTooOldIsAskedFor) {
  const std::string missing = said_of("/nowhere/libnccl.so.2");
  EXPECT_NE(missing.find("GPUs exchange by NVIDIA's NCCL (/nowhere/libnccl.so.2, 2.14 or newer), "
                         "which cannot be loaded: /nowhere/libnccl.so.2: cannot open"),
            std::string::npos)
      << missing;
  EXPECT_NE(missing.find("install it, or say by LD_LIBRARY_PATH where it is"), std::string::npos);
  // A library, but another one.
  EXPECT_EQ(said_of("libm.so.6"),
            "ranks: this libm.so.6 has no ncclGetUniqueId; take NCCL 2.14 or newer");
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
