// Whole texts through a model. It need not be a good one: what is promised holds for any.
#include "heed/translation/text_translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "heed/base/check.h"
#include "heed/models/tensor_file.h"
#include "heed/text/markup.h"
#include "heed/text/spans.h"
#include "heed/training/run_folder.h"
#include "tests/toy.h"

namespace heed {
namespace {

// A model with its first parameters; with `sampling` by subwords, else by words.
struct Untrained {
  Folder folder;
  explicit Untrained(const std::string& family, double sampling = 0.1) {
    ModelConfig c;
    c.family = family, c.size = 16, c.inner = 24, c.heads = 2;
    c.score = family == "rnn" ? "additive" : "scaled_dot";
    TrainConfig training;
    training.steps = 1;
    const auto corpus = toy_corpus(folder, {.sampling = sampling});
    const ModelFolder model = create_model(folder.path(), c, training, corpus->tokenizers());
    save_parameters(model.params, folder / "model.safetensors");
  }
  TextTranslator translator() const { return TextTranslator{Translator(folder.path())}; }
};

const std::vector<std::string> kTexts = {
    "a b c. D e f! g h\n\n  a b {name} c, d.\n",
    "a b https://example.org/x?y=z c.\tD %1$s e 😀.",
    "",
    " \n ",
    "{a} {b}.",
    "a b c d e f g h a b c d e f g h, a b c d e f g h; a b c d e f g h a b c d e f g h",
    "a <x/> b. C.",
};

std::vector<std::string> kept_in(const std::string& text) {
  std::vector<std::string> out;
  for (const KeptSpan& k : find_kept(text)) out.push_back(text.substr(k.span.begin, k.span.size()));
  std::sort(out.begin(), out.end());
  return out;
}

bool has(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

TEST(TextTranslator, KeepsLinesAndWhatIsToBeKept) {
  for (const char* family : {"rnn", "transformer"})
    for (const double sampling : {0.0, 0.1}) {
      const Untrained model(family, sampling);
      const auto found = model.translator().translate(kTexts, {.longest_part = 12});
      ASSERT_EQ(found.size(), kTexts.size());
      for (size_t i = 0; i < kTexts.size(); ++i) {
        const std::string& text = found[i].text;
        EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
                  std::count(kTexts[i].begin(), kTexts[i].end(), '\n'));
        EXPECT_TRUE(has(kept_in(text), kept_in(kTexts[i]))) << kTexts[i] << "\n" << text;
        for (const auto& part : found[i].parts) {
          EXPECT_LE(part.source_begin, part.source_end);
          EXPECT_LE(part.source_end, kTexts[i].size());
          EXPECT_LE(part.target_begin, part.target_end);
          EXPECT_LE(part.target_end, text.size());
          EXPECT_FALSE(part.translation.cut);
        }
      }
      EXPECT_EQ(found[2].text, "");
      EXPECT_EQ(found[3].text, " \n ");
      EXPECT_EQ(found[4].text, "{a} {b}.");
      EXPECT_TRUE(found[4].parts.at(0).translation.candidates.empty());
      EXPECT_GE(found[5].parts.size(), 3u);
    }
}

TEST(TextTranslator, TheResultOfATextIsItsOwn) {
  const Untrained model("rnn");
  const TextTranslator translator = model.translator();
  for (const bool sample : {false, true}) {
    TextOptions o{.alternatives = 2, .longest_part = 12};
    o.translate.search.sample = sample;
    const auto together = translator.translate(kTexts, o);
    std::vector<TranslatedText> alone(kTexts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kTexts.size(); ++i)
      threads.emplace_back([&, i] { alone[i] = translator.translate({kTexts[i]}, o)[0]; });
    for (std::thread& t : threads) t.join();
    for (size_t i = 0; i < kTexts.size(); ++i) {
      EXPECT_EQ(alone[i].text, together[i].text);
      EXPECT_EQ(alone[i].alternatives, together[i].alternatives);
    }
    EXPECT_LE(together[0].alternatives.size(), 2u);
    EXPECT_TRUE(sample || !together[0].alternatives.empty());
  }
}

TEST(TextTranslator, HtmlKeepsItsTags) {
  const Untrained model("transformer");
  const std::string html =
      "<h1>a b</h1><p>a <b>b <i>c</i></b> d. E <a href=\"x\">f &amp; g</a> h.<br>a</p>"
      "<script>a b</script><code>a</code>";
  const auto found = model.translator().translate({html}, {.format = TextOptions::Format::html})[0];
  for (const char* tag : {"<h1>", "</h1>", "<p>", "</p>", "<b>", "</b>", "<i>", "</i>", "<br>",
                          "<a href=\"x\">", "</a>", "<script>a b</script>", "<code>a</code>"}) {
    const size_t at = found.text.find(tag);
    EXPECT_NE(at, std::string::npos) << tag << " in " << found.text;
    EXPECT_EQ(found.text.find(tag, at + 1), std::string::npos) << tag;
  }
  const auto alone = [](const std::string& text) {  // tags whose other half is missing
    size_t count = 0;
    for (const TextSegment& s : read_html(text))
      for (const InlineTag& t : s.tags) count += t.kind == InlineTag::Kind::point;
    return count;
  };
  EXPECT_EQ(alone(found.text), alone(html)) << found.text;
}

TEST(TextTranslator, SaysWhatItCannotDo) {
  const Untrained model("rnn");
  const TextTranslator translator = model.translator();
  EXPECT_THROW(translator.translate({"a", "\xFF"}), Error);
  EXPECT_THROW(translator.translate({"a"}, {.alternatives = -1}), Error);
  EXPECT_THROW(translator.translate({"a"}, {.longest_part = 0}), Error);
  TextOptions prefixed;
  prefixed.translate.search.prefixes = {{5}};
  EXPECT_THROW(translator.translate({"a"}, prefixed), Error);
}

}  // namespace
}  // namespace heed
