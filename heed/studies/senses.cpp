// One word, several senses: a static table gives a word one vector, a contextual one another in
// each sentence. Is the nearest other sentence with the same word one in which it has the same
// sense?
#include <array>

#include "heed/data/text_corpus.h"
#include "heed/files/atomic_file.h"
#include "heed/language/senses.h"
#include "heed/studies/study.h"
#include "heed/studies/translators.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

// A text that can be learned in seconds: words of two senses among words of each sense's world.
struct World {
  const char* word;
  const char* sense;
  std::array<const char*, 6> things, doings;
};
constexpr World kWorlds[] = {
    {"bark",
     "dog",
     {"dog", "puppy", "hound", "wolf", "stranger", "postman"},
     {"hears", "fears", "hates", "stops", "starts", "likes"}},
    {"bark",
     "tree",
     {"oak", "trunk", "branch", "forest", "squirrel", "woodcutter"},
     {"sheds", "peels", "cuts", "grows", "covers", "scratches"}},
    {"bat",
     "animal",
     {"cave", "owl", "night", "moth", "tower", "moon"},
     {"hides", "wakes", "shelters", "hunts", "frightens", "follows"}},
    {"bat",
     "club",
     {"player", "pitcher", "umpire", "ball", "team", "coach"},
     {"swings", "lifts", "drops", "throws", "buys", "breaks"}},
    {"bank",
     "money",
     {"loan", "clerk", "account", "robber", "lawyer", "coin"},
     {"pays", "owes", "enters", "leaves", "trusts", "robs"}},
    {"bank",
     "river",
     {"river", "boat", "fisher", "duck", "bridge", "reed"},
     {"reaches", "floods", "touches", "passes", "lines", "climbs"}},
    {"spring",
     "season",
     {"winter", "flower", "swallow", "blossom", "gardener", "april"},
     {"greets", "awaits", "brings", "announces", "welcomes", "enjoys"}},
    {"spring",
     "metal",
     {"clock", "engine", "screw", "mattress", "wheel", "smith"},
     {"bends", "winds", "holds", "needs", "presses", "repairs"}},
};

std::string sentence(const World& w, Random& random) {
  const auto any = [&](const auto& words) { return std::string(words[random.below(6)]); };
  switch (random.below(3)) {
    case 0: return "the " + any(w.things) + " " + any(w.doings) + " the " + w.word + " .";
    case 1:
      return "the " + std::string(w.word) + " of the " + any(w.things) + " " + any(w.doings) +
             " the " + any(w.things) + " .";
    default:
      return "a " + any(w.things) + " " + any(w.doings) + " the " + w.word + " and the " +
             any(w.things) + " .";
  }
}

std::vector<SenseSentence> made_test(Random& random) {
  std::vector<SenseSentence> out;
  for (const World& w : kWorlds)
    for (int i = 0; i < 6; ++i) out.push_back({w.word, w.sense, sentence(w, random)});
  return out;
}

std::string made_text(Random& random) {
  std::string out;
  for (int i = 0; i < 4000; ++i)
    out += sentence(kWorlds[random.below(std::size(kWorlds))], random) + "\n";
  return out;
}

// A bidirectional language model of the lines in a file.
ModelFolder train_embedder(const StudyOptions& o, const std::string& text,
                           const std::filesystem::path& folder) {
  const bool made = o.text.source.empty();
  const TextPart part{.path = text};
  const auto tokenizer =
      learn_tokenizer(texts(part), {.kind = made ? "words" : "unigram", .size = 8000});
  Lesson lesson = small_lesson(made ? 32 : 256, o.small ? 1000 : made ? 4000 : 6000, o.seed);
  ModelConfig config = preset("elmo");
  config.size = lesson.model.size;
  if (made) config.dropout = 0;
  if (!made)
    lesson.training.rate = 1e-3, lesson.training.warmup = 500, lesson.training.batch_tokens = 2048;
  const ModelFolder model = create_model(folder, config, lesson.training, {tokenizer, tokenizer});
  const TextCorpusOptions options{
      .lines = true, .context = *longest_sentence(config), .with_sources = true, .seed = o.seed};
  Trainer trainer(*model.model, model.params,
                  std::make_shared<TextCorpus>(part, tokenizer, options), lesson.training, folder);
  train(trainer, lesson.training, "bidirectional language model", o);
  return open_model(folder);
}

}  // namespace

Study senses_study(const StudyOptions& o) {
  const TemporaryFolder work;
  Random random(o.seed);
  const bool made = o.text.source.empty();
  require(made || std::filesystem::exists(o.senses), o.senses.string(),
          ": is not there; --senses names the file of the word-sense test");
  const std::vector<SenseSentence> test = made ? made_test(random) : read_senses(o.senses);
  std::string text = o.text.source.name();
  if (made) write_file(text = (work.path() / "text").string(), made_text(random));
  const ModelFolder model = train_embedder(o, text, work.path() / "model");
  const Embedder embedder(model);

  Study study;
  StudyTable layers{.name = "layers",
                    .title = "Nearest neighbour of the same sense, of " +
                             std::to_string(test.size()) + " sentences",
                    .columns = {"layer", "same_sense"}};
  for (int64_t i = 0; i <= embedder.layers(); ++i)
    layers.rows.push_back({i == 0 ? "table" : std::to_string(i),
                           100 * nearest_senses(embedder, test, Layer::at(i)).same_sense});
  const SenseResult table = nearest_senses(embedder, test, Layer::at(0));
  const SenseResult mix = nearest_senses(embedder, test, Layer::mix());
  layers.rows.push_back({"mix", 100 * mix.same_sense});
  StudyTable words{.name = "words",
                   .title = "The same by word: the table, and the mix of all layers",
                   .columns = {"word", "table", "mix"}};
  BarChart chart{.title = "Nearest neighbour of the same sense",
                 .y_label = "% of sentences",
                 .series = {{"static table", {}}, {"in context", {}}}};
  for (const auto& [word, share] : mix.by_word) {
    words.rows.push_back({word, 100 * table.by_word.at(word), 100 * share});
    chart.groups.push_back(word);
    chart.series[0].values.push_back(100 * table.by_word.at(word));
    chart.series[1].values.push_back(100 * share);
  }
  study.claims = {{"in context the nearest neighbour has the same sense at least one and a half "
                   "times as often as by the table",
                   mix.same_sense >= 1.5 * table.same_sense},
                  {"the table finds what chance finds: less than half", table.same_sense < 0.5}};
  study.pictures = {{"senses", draw_svg(chart)}};
  study.tables = {std::move(layers), std::move(words)};
  return study;
}

}  // namespace heed
