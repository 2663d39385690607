// A score that was added as docs/recipes/add-a-score.md says: follow_recipe.py has put its class
// and its row into this program's score.cpp. One class and one row are all that every model needs.
#include <gtest/gtest.h>

#include <cmath>

#include "heed/models/model.h"
#include "heed/search/search.h"
#include "heed/training/loss.h"
#include "tests/toy.h"

namespace heed {
namespace {

TEST(Recipe, ARowIsFoundByItsName) {
  EXPECT_STREQ(score_table().back().name, "distance");
  EXPECT_TRUE(score_row("distance").facts.equal_sizes);
}

// Presets are small enough but for their width.
ModelConfig with_distance(const std::string& name) {
  ModelConfig c = preset(name);
  c.score = "distance", c.dropout = 0;
  if (c.size > 128) c.size = 64 * c.heads;
  return c;
}

TEST(Recipe, EveryTranslatorTrainsAndSearchesWithIt) {
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  const Batch batch = batches_once(*corpus, {.tokens = 200}).front();
  const TokenizerPair& t = corpus->tokenizers();
  for (const std::string& name : preset_names(ModelKind::translator)) {
    SCOPED_TRACE(name);
    if (name == "transformer-base") continue;  // as transformer-small, and slow
    const ModelConfig config = with_distance(name);
    check(config);
    const Params params(1);
    const auto model = make_model(params, config, {t.source->size(), t.target->size()});
    {
      Tape tape;
      tape.backward(batch_loss(*model, batch, {}).total);
    }
    size_t found = 0;
    for (const Parameter& p : params.all()) {
      ASSERT_TRUE(p.value.parameter_state()->grad) << p.name;
      double size = 0;
      for (const double g : p.value.parameter_state()->grad->values()) size += std::abs(g);
      EXPECT_TRUE(std::isfinite(size)) << p.name;
      if (!p.name.ends_with("gamma")) continue;
      EXPECT_GT(size, 0) << p.name;
      ++found;
    }
    EXPECT_GE(found, 1u);
    // As many hypotheses as sentences, and the same for one alone.
    SearchOptions o;
    o.beam = 2, o.max_length = 6;
    const Source all = source_of(batch);
    const auto together = search(*model, all, o);
    ASSERT_EQ(std::ssize(together), batch.rows);
    const Source first{slice(all.ids, 0, 0, 1), {all.lengths[0]}};
    EXPECT_EQ(search(*model, first, o)[0][0].ids, together[0][0].ids);
  }
}

}  // namespace
}  // namespace heed
