#include "heed/base/alignment.h"

#include <gtest/gtest.h>

namespace heed {
namespace {

TEST(Alignment, PharaohLinesAreReadAndWritten) {
  EXPECT_EQ(to_pharaoh(*parse_pharaoh("2-1 0-0  2-1 10-3")), "0-0 2-1 10-3");
  EXPECT_TRUE(parse_pharaoh("")->empty());
  for (const char* bad : {"0", "0-", "-1", "a-b", "1-2-3", "1--2", "1--0", "99999999999-0", "0p1"})
    EXPECT_FALSE(parse_pharaoh(bad)) << bad;
}

TEST(Alignment, ALinkMaySayHowProbableItIs) {
  const Links links = *parse_pharaoh("2-1:0.25 0-0 2-1:0.5 1-0:1");
  EXPECT_EQ(links, (Links{{0, 0}, {1, 0}, {2, 1, 0.5f}}));  // the most probable one
  EXPECT_EQ(to_pharaoh(links), "0-0 1-0 2-1:0.5000");
  EXPECT_EQ(*parse_pharaoh(to_pharaoh(links)), links);
  EXPECT_EQ(to_pharaoh(Links{{0, 1, 1e-9f}}), "0-1:0.0001");  // that can be read again
  for (const char* bad : {"0-0:", "0-0:0", "0-0:-1", "0-0:1.1", "0-0:nan", "0-0:x", "0-0:1:1",
                          "0:1-0", ":0.5", "0-0:1e99", "0-0:0.5x"})
    EXPECT_FALSE(parse_pharaoh(bad)) << bad;
}

TEST(Alignment, ALinkMayHaveAnotherMark) {
  EXPECT_EQ(parse_link("3p4", 'p'), (Link{3, 4}));
  EXPECT_FALSE(parse_link("3-4", 'p'));
}

TEST(Alignment, ALinkIsProbableIfBothThinkSoOrOneIsSure) {
  EXPECT_FLOAT_EQ(joint_posterior(0.4f, 0.4f), 0.4f);
  EXPECT_FLOAT_EQ(joint_posterior(0.8f, 0.2f), 0.45f);
  EXPECT_FLOAT_EQ(joint_posterior(1, 0), 0.5f);
  EXPECT_FLOAT_EQ(joint_posterior(0, 0.6f), 0.3f);
}

}  // namespace
}  // namespace heed
