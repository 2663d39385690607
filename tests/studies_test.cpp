// Each study's small setting: its numbers are what they say they are, and its claims hold.
#include "heed/studies/study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/toy.h"

namespace heed {
namespace {

Study run_small(const std::string& name) {
  StudyOptions o{.small = true};
  o.grammar = std::filesystem::path(__FILE__).parent_path().parent_path() / "data/grammar";
  Study study = study_row(name).run(o);
  EXPECT_FALSE(study.claims.empty());
  for (const StudyClaim& claim : study.claims) EXPECT_TRUE(claim.holds) << claim.text;
  for (const StudyTable& table : study.tables) {
    EXPECT_FALSE(table.rows.empty()) << table.name;
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.name;
    if (!std::all_of(study.claims.begin(), study.claims.end(),
                     [](const auto& c) { return c.holds; }))
      ADD_FAILURE() << to_text(table);
  }
  for (const StudyPicture& picture : study.pictures)
    EXPECT_TRUE(picture.svg.starts_with("<svg") && has(picture.svg, "</svg>")) << picture.name;
  return study;
}

// std::is_sorted would let NaN pass: it is not less than what stands before it.
void expect_rising(const std::vector<double>& x) {
  for (size_t i = 1; i < x.size(); ++i) EXPECT_LE(x[i - 1], x[i]) << i;
}

// Under a sanitizer seconds of training are minutes; what is trained there is tested elsewhere.
#define SKIP_IF_SLOW() \
  if (kSlow) GTEST_SKIP() << "trains; without a sanitizer it takes seconds"

TEST(Study, DictionaryLooksUpExactlyAsTheTemperatureFalls) {
  const Study study = run_small("dictionary");
  const StudyTable& table = study.table("temperature");
  const std::vector<double> distance = table.numbers("distance", {{"query", "a key"}});
  EXPECT_GT(distance.front(), 1);  // the mean of all values is far from each
  EXPECT_LT(distance.back(), 1e-6);
}

TEST(Study, ScaleKeepsEntropyWhereDotLosesIt) {
  SKIP_IF_SLOW();
  const StudyTable table = run_small("scale").table("d_k");
  const std::vector<double> dot = table.numbers("entropy", {{"score", "dot"}});
  expect_rising({dot.rbegin(), dot.rend()});
  for (const double entropy : table.numbers("entropy")) EXPECT_LE(entropy, std::log(32.0));
  // At d_k = 1024 nearly all weight is on one key.
  EXPECT_LT(dot.back(), 0.5);
  EXPECT_GT(table.numbers("entropy", {{"score", "scaled_dot"}}).back(), 2.5);
}

TEST(Study, RecencyTheLastPositionIsKnownBest) {
  SKIP_IF_SLOW();
  const StudyTable table = run_small("recency").table("positions");
  // Gated cells begin by forgetting: from position to position the gradient grows towards the end.
  for (const char* cell : {"gru", "lstm"}) {
    const auto g = table.numbers("at_first", {{"cell", cell}, {"directions", "1"}});
    SCOPED_TRACE(cell);
    expect_rising(g);
    EXPECT_GT(g.back(), 10 * g.front()) << cell;
  }
}

TEST(Study, ScoresThatReadAlignBetterThanThoseThatDoNot) {
  SKIP_IF_SLOW();
  const StudyTable table = run_small("scores").table("scores");
  const std::vector<double> errors = table.numbers("AER");
  EXPECT_TRUE(std::isnan(errors[0]));  // none has no weights
  for (size_t i = 1; i < errors.size(); ++i) EXPECT_TRUE(errors[i] > 0 && errors[i] < 100) << i;
  for (const double speed : table.numbers("words_a_second")) EXPECT_GT(speed, 0);
  // None holds no keys: it is the one that takes the least memory and has the fewest parameters.
  for (const char* column : {"MB_a_step", "parameters"}) {
    const std::vector<double> cost = table.numbers(column);
    for (const double other : cost) EXPECT_LE(cost.front(), other) << column;
  }
}

TEST(Study, BottleneckWithoutAttentionQualityFallsWithLength) {
  SKIP_IF_SLOW();
  const StudyTable table = run_small("bottleneck").table("copy");
  const std::vector<double> without = table.numbers("BLEU", {{"attention", "none"}});
  EXPECT_GT(without.front(), 30);  // it learns the short ones
  EXPECT_GT(table.numbers("BLEU", {{"attention", "additive"}}).back(), 80);
}

TEST(Study, SensesAreToldApartInContextAlone) {
  SKIP_IF_SLOW();
  const StudyTable table = run_small("senses").table("layers");
  // By a table all of a word's sentences are equally near: 5 of the other 11 have the same sense.
  EXPECT_NEAR(table.numbers("same_sense", {{"layer", "table"}})[0], 100 * 5 / 11.0, 1e-6);
  EXPECT_GT(table.numbers("same_sense", {{"layer", "mix"}})[0], 70);
}

TEST(Study, TablesAreTextAndJson) {
  Study study;
  study.tables.push_back({.name = "t", .title = "Title", .columns = {"who", "value"}});
  study.tables[0].rows = {{"a", 0.5}, {"long", 1234.0}, {"none", "-"}};
  study.claims = {{"so it is", true}};
  EXPECT_EQ(to_text(study.tables[0]),
            "Title\n  who    value\n  a     0.5000\n  long    1234\n  none  -\n");
  const auto json = nlohmann::json::parse(to_json("mine", {.small = true}, study));
  EXPECT_EQ(json["study"], "mine");
  EXPECT_EQ(json["setting"], "small");
  EXPECT_EQ(json["tables"]["t"][1]["value"], 1234);
  EXPECT_EQ(json["tables"]["t"][2]["value"], "-");
  EXPECT_EQ(json["claims"][0]["holds"], true);
  EXPECT_EQ(study.table("t").numbers("value", {{"who", "a"}}), std::vector<double>{0.5});
  EXPECT_TRUE(std::isnan(study.table("t").numbers("value", {{"who", "none"}})[0]));
  EXPECT_TRUE(has(message([&] { study.table("u"); }), "unknown table 'u'"));
  EXPECT_TRUE(has(message([&] { study.table("t").numbers("valu"); }), "did you mean 'value'"));
  EXPECT_TRUE(has(message([] { study_row("recence"); }), "did you mean 'recency'"));
}

}  // namespace
}  // namespace heed
