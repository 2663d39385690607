// Subwords write every text as it stands, byte for byte, and so do others of the same text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "heed/base/random.h"
#include "heed/base/unicode.h"
#include "heed/data/corpus.h"
#include "heed/data/text.h"
#include "tests/folder.h"

namespace heed {
namespace {

using Strings = std::vector<std::string>;
const Strings kKinds = {"bpe", "unigram"};

TextStream stream(const Strings& lines) {
  return [lines, i = size_t{0}]() mutable {
    return i < lines.size() ? std::optional(lines[i++]) : std::nullopt;
  };
}

Strings german() {
  Strings lines;
  for (const char* who : {"der Hund", "die Katze", "das Pferd", "eine Frau", "ein Mann"})
    for (const char* does : {"schläft", "läuft", "singt", "spielt Ball", "isst 3 Äpfel"})
      for (const char* where : {"im Garten", "auf der Straße", "zu Hause", "am See"})
        lines.push_back(std::string(who) + " " + does + " " + where + " .");
  return lines;
}

// What has been lost before: compatibility characters, spaces, and what the library reserves.
Strings odd_lines() {
  return {"",
          " ",
          "  ",
          "der",
          " der",
          "  der",
          "der ",
          "der  ",
          "der  Hund   läuft",
          "\tder\tHund\t",
          "10 m² … ﬁne ½ Ａ",
          "10\u00A0km, 5\u202Fkg\u00A0",
          "\u00A0",
          "\u3000a\u3000",
          "日本語 が",
          "👩‍👩‍👧 🏳️‍🌈",
          "e\u0301 é",
          "▁",
          "▁▁der",
          "a▁ b ▁",
          "▅",
          "⁇",
          "\uFFFD",
          "\uFEFFder",
          "\uFFFE\uFFFF",
          "\U0010FFFF",
          "<s> </s> <pad> <unk>",
          "<0x41> <0x0A>",
          "<newline>",
          "a<newline>b",
          std::string("a\0b\x01\x7F\x1B[1m", 9),
          "\v\f",
          "\u0085\u2028\u2029",
          "\u200B\u00AD",
          "\xD8\xB9\xD8\xB1\xD8\xA8",
          "der▁<newline>\t▁ Hund "};
}

// Lines of code points from everywhere, and of what is odd.
Strings random_lines(size_t count) {
  const Strings odd = odd_lines();
  Random random(7);
  Strings lines;
  while (lines.size() < count) {
    std::string line;
    for (uint32_t n = 1 + random.below(12); n > 0; --n) {
      const uint32_t which = random.below(4);
      if (which == 0) line += odd[random.below(static_cast<uint32_t>(odd.size()))];
      if (which == 1) line += "der Hund"[random.below(8)];
      if (which == 2) line += encode_utf8(std::u32string(1, char32_t{1 + random.below(0x7F)}));
      if (which == 3)
        line += encode_utf8(std::u32string(1, char32_t{0xE000 + random.below(0x30000)}));
    }
    std::erase(line, '\n');
    lines.push_back(line);
  }
  return lines;
}

TEST(ExactText, EveryLineComesBackFromItsPieces) {
  Strings lines = odd_lines();
  for (const std::string& line : random_lines(2000)) lines.push_back(line);
  for (const std::string& kind : kKinds)
    for (const bool newlines : {false, true}) {
      const auto tokenizer =
          learn_tokenizer(stream(german()), {.kind = kind, .size = 120, .newlines = newlines});
      EXPECT_TRUE(tokenizer->writes_all());
      for (const std::string& line : lines) {
        ASSERT_TRUE(is_utf8(line));
        const Sentence encoded = tokenizer->encode(line);
        const Sentence decoded = tokenizer->decode(encoded.ids);
        ASSERT_EQ(decoded.text, line) << kind;
        ASSERT_EQ(decoded.word, encoded.word) << kind << ": " << line;
        ASSERT_EQ(std::ranges::count(encoded.ids, tokenizer->special().unknown), 0) << line;
        ASSERT_TRUE(!newlines || std::ranges::count(encoded.ids, *tokenizer->newline()) == 0);
        ASSERT_EQ(encoded.ids.empty(), line.empty());
      }
      if (!newlines) continue;
      const std::string text = "\n der Hund \n\n<newline>\n▁";
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text).ids).text, text) << kind;
    }
}

TEST(ExactText, OtherPiecesOfTheSameTextComeBackToo) {
  const Strings lines = random_lines(500);
  for (const std::string& kind : kKinds) {
    const auto tokenizer = learn_tokenizer(stream(german()), {.kind = kind, .size = 120});
    const auto sampler = tokenizer->sampler(kind == "bpe" ? 0.5 : 0.1);
    Random random(1);
    int64_t others = 0;
    for (Strings all = german();
         const std::string& line : (all.insert(all.end(), lines.begin(), lines.end()), all)) {
      const std::vector<Id> plain = tokenizer->encode(line).ids;
      const std::vector<Id> drawn = sampler->draw(plain, random).ids;
      ASSERT_EQ(tokenizer->decode(drawn).text, line) << kind;
      others += drawn != plain;
    }
    EXPECT_GT(others, 50) << kind;
  }
}

TEST(ExactText, TheBytesOfACharacterAreOneCharacterAndOneWord) {
  for (const std::string& kind : kKinds) {
    const auto tokenizer = learn_tokenizer(stream(german()), {.kind = kind, .size = 120});
    const Sentence sentence = tokenizer->encode("der 🐕 Hund");
    std::vector<Id> bytes;
    for (size_t i = 0; i < sentence.ids.size(); ++i)
      if (tokenizer->piece(sentence.ids[i]).starts_with("<0x")) {
        bytes.push_back(sentence.ids[i]);
        EXPECT_EQ(sentence.word[i], 1) << kind;
      }
    ASSERT_EQ(bytes.size(), 4u) << kind;
    EXPECT_EQ(tokenizer->piece(bytes[0]), "<0xF0>");
    EXPECT_EQ(tokenizer->decode(bytes).text, "🐕") << kind;
    // What a model may write, though no text has it: cut short, doubled, turned around.
    EXPECT_EQ(tokenizer->decode(std::span(bytes).first(3)).text, "\uFFFD") << kind;
    const std::vector<Id> twice = {bytes[0], bytes[0], bytes[1], bytes[2], bytes[3], bytes[3]};
    EXPECT_EQ(tokenizer->decode(twice).text, "\uFFFD🐕\uFFFD") << kind;
    EXPECT_EQ(tokenizer->decode(twice).word, std::vector<int32_t>(6, 0)) << kind;
  }
}

TEST(ExactText, IsLearntFromTextThatSpellsWhatIsReserved) {
  Strings lines = german();
  for (int i = 0; i < 200; ++i)
    for (const char* odd :
         {"<s>", "</s>", "<pad>", "<unk>", "<0x41>", "<newline>", "x▁y", "x▅y", "a\tb"})
      lines.push_back(std::string("der ") + odd + " Hund " + odd + odd);
  for (const std::string& kind : kKinds)
    for (const bool newlines : {false, true}) {
      const auto tokenizer =
          learn_tokenizer(stream(lines), {.kind = kind, .size = 200, .newlines = newlines});
      for (const std::string& line : lines)
        ASSERT_EQ(tokenizer->decode(tokenizer->encode(line).ids).text, line) << kind;
    }
}

TEST(ExactText, LinesOfAnyLengthAreLearntFrom) {
  std::string line, word;
  for (int i = 0; i < 3000; ++i) line += "Donaudampfschiff ";
  for (int i = 0; i < 40000; ++i) word += "ab";  // more than the library's word may have
  for (const std::string& kind : kKinds) {
    const auto tokenizer = learn_tokenizer(stream({line, word}), {.kind = kind, .size = 60});
    EXPECT_LE(tokenizer->encode("Donaudampfschiff").ids.size(), 2u) << kind;
    EXPECT_LE(tokenizer->encode("abab").ids.size(), 3u) << kind;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(line).ids).text, line) << kind;
  }
}

TEST(ExactText, RareCharactersAreBytesThatAreLearntFrom) {
  Strings lines = german();
  for (int i = 0; i < 20; ++i)
    for (const std::string& l : german()) lines.push_back(l);
  lines.push_back("der ȸ Hund");
  const auto tokenizer = learn_tokenizer(stream(lines), {.kind = "bpe", .size = 120});
  EXPECT_EQ(tokenizer->piece(tokenizer->encode("ȸ").ids.back()), "<0xB8>");
  const auto whole = learn_tokenizer(stream(lines), {.kind = "bpe", .size = 120, .coverage = 1});
  EXPECT_EQ(whole->piece(whole->encode("ȸ").ids.back()), "ȸ");
}

// As of Chinese: more characters than entries.
TEST(ExactText, OfMoreCharactersThanEntriesTheFrequentOnesGetHalf) {
  Strings lines;
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::u32string line;
    for (int k = 0; k < 12; ++k) {
      const double u = double(random.uniform());
      line += static_cast<char32_t>(0x4E00 + static_cast<int>(3000 * std::pow(u, 12)));
    }
    lines.push_back(encode_utf8(line));
  }
  for (const std::string& kind : kKinds) {
    const auto t = learn_tokenizer(stream(lines), {.kind = kind, .size = 400});
    EXPECT_LE(t->size(), 400 + kBytePieces);
    EXPECT_GT(t->size(), 350 + kBytePieces);
    for (const std::string& line : lines) {
      const Sentence s = t->encode(line);
      ASSERT_EQ(t->decode(s.ids).text, line);
      ASSERT_EQ(std::ranges::count(s.ids, t->special().unknown), 0);
    }
    EXPECT_LE(t->encode("\u4E00\u4E01").ids.size(), 2u) << kind;  // the most frequent ones
  }
}

TEST(ExactText, ASourceMayBeNormalizedAndItsFileSaysSo) {
  for (const std::string& kind : kKinds) {
    const Folder folder;
    const auto made =
        learn_tokenizer(stream(german()), {.kind = kind, .size = 120, .normalization = "nfkc"});
    made->save(folder.path(), "source");
    const auto kept = load_tokenizer(kind, folder.path() / "source.spm");
    for (const auto& tokenizer : {made, kept}) {
      EXPECT_EQ(tokenizer->encode(" der\u00A0 Ｈund … ").ids,
                tokenizer->encode("der Hund ...").ids);
      EXPECT_EQ(std::ranges::count(tokenizer->encode("日 🐕").ids, tokenizer->special().unknown), 0);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode("日 🐕  m²").ids).text, "日 🐕 m2");
    }
  }
  EXPECT_TRUE(has(message([] {
                    learn_tokenizer(stream(german()), {.kind = "words", .normalization = "nfkc"});
                  }),
                  "'nfkc' is for subwords"));
  EXPECT_TRUE(has(
      message([] { learn_tokenizer(stream(german()), {.kind = "bpe", .normalization = "nfd"}); }),
      "there are identity and nfkc"));
}

TEST(ExactText, AnotherEncodingIsNamedWhereNothingCanBeLearnt) {
  for (const std::string& kind : tokenizer_kinds()) {
    const std::string told = message([&] {
      learn_tokenizer(stream({"", "caf\xE9", "na\xEFve"}), {.kind = kind});
    });
    EXPECT_TRUE(has(told, "byte 4 is 0xE9") && has(told, "iconv -f latin1 -t utf-8")) << told;
  }
}

}  // namespace
}  // namespace heed
