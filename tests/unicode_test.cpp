#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

std::string lower_utf8(std::string_view text) { return encode_utf8(lower_case(decode_utf8(text))); }

TEST(Unicode, EveryCodePointGoesThroughUtf8AndBack) {
  std::u32string all;
  for (char32_t c = 0; c <= 0x10FFFF; ++c)
    if (c < 0xD800 || c > 0xDFFF) all += c;
  const std::string bytes = encode_utf8(all);
  EXPECT_FALSE(utf8_error(bytes));
  EXPECT_EQ(decode_utf8(bytes), all);
  EXPECT_EQ(character_bytes(""), 0u);
  for (const std::string character : {"a", "é", "▁", "\U0001F967"})
    EXPECT_EQ(character_bytes(character + "é"), character.size());
}

TEST(Unicode, WhatIsNotUtf8IsFoundWhereItStands) {
  for (const std::string bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "\xE2\x28\xA1",
        "\xF0\x9F\x98", "\xE9", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_EQ(utf8_error("é" + bad), 2u);
    EXPECT_EQ(utf8_error("é" + bad + "a"), 2u);
    EXPECT_THROW(decode_utf8("é" + bad), Error);
    EXPECT_FALSE(is_utf8(bad));
    EXPECT_EQ(character_bytes(bad), 0u);
  }
  EXPECT_TRUE(is_utf8("") && is_utf8("\xED\x9F\xBF") && is_utf8("\xF4\x8F\xBF\xBF"));
}

// The examples of the Unicode standard, tables 3-8 to 3-11.
TEST(Unicode, OneReplacementForEachMaximalSubpart) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(repaired_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repaired_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(repaired_utf8("caf\xE9 et na\xEFve"), "caf" + r + " et na" + r + "ve");
  EXPECT_EQ(repaired_utf8("\xE2\x82"), r);
  for (const std::string whole : {"", "é", "\U0001F967 a", "\uFFFD"})
    EXPECT_EQ(repaired_utf8(whole), whole);
}

TEST(Unicode, WhatAnEncodingLooksLikeIsSaidWithWhatToDo) {
  EXPECT_FALSE(encoding_trouble(""));
  EXPECT_FALSE(encoding_trouble("café"));
  EXPECT_FALSE(encoding_trouble(std::string("a\0b", 3)));
  EXPECT_EQ(encoding_trouble("caf\xE9"),
            "not UTF-8: byte 4 is 0xE9; convert the file first, as with iconv -f latin1 -t utf-8");
  const auto says = [](const std::string& line, const std::string& words) {
    return encoding_trouble(line).value_or("").find(words) != std::string::npos;
  };
  EXPECT_TRUE(says(std::string("\xFF\xFE\x61\0", 4), "iconv -f utf-16 -t utf-8"));
  EXPECT_TRUE(says(std::string("\xFE\xFF\0\x61", 4), "iconv -f utf-16 -t utf-8"));
  // Without a mark it is UTF-8 by the letter.
  EXPECT_TRUE(says(std::string("\0h\0a\0l\0l\0o", 10), "5 of 10 bytes are 0; convert"));
  EXPECT_TRUE(says(std::string("\0h\0a\0l\0l\0o", 10), "iconv -f utf-16 -t utf-8"));
}

TEST(Unicode, LowerCaseKnowsSigmaAndTheDottedI) {
  EXPECT_EQ(lower_utf8("ABC xyz ÀÉÑ ẞ"), "abc xyz àéñ ß");
  EXPECT_EQ(lower_utf8("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(lower_utf8("ΟΔΟΣ."), "οδος.");
  EXPECT_EQ(lower_utf8("Σ ΣΑΣΑ"), "σ σασα");
  EXPECT_EQ(lower_utf8("ΑΣ\u0301"), "ας\u0301");  // an accent does not count as a letter
  EXPECT_EQ(lower_utf8("ΑΣ\u0301Β"), "ασ\u0301β");
  EXPECT_EQ(lower_utf8("İSTANBUL"), "i\u0307stanbul");
  EXPECT_EQ(lower_utf8("ǅ Ⴀ 𐐀 Ａ"), "ǆ ⴀ 𐐨 ａ");
}

TEST(Unicode, CategoriesOfEveryScript) {
  for (const char32_t c : std::u32string(U"!\"%&'()*,-./:;?@[]_{}¡«·»¿‘’“”—…、。「」！"))
    EXPECT_TRUE(is_punctuation(c) && !is_symbol(c) && !is_number(c)) << uint32_t(c);
  for (const char32_t c : std::u32string(U"$+<=>^`|~¢£©°±×÷€→∑☃😀"))
    EXPECT_TRUE(is_symbol(c) && !is_punctuation(c) && !is_number(c)) << uint32_t(c);
  for (const char32_t c : std::u32string(U"0189²½٣Ⅻ③〇𝟘"))
    EXPECT_TRUE(is_number(c) && !is_punctuation(c) && !is_symbol(c)) << uint32_t(c);
  for (const char32_t c : std::u32string(U"aZé猫 \u0301\u200B"))
    EXPECT_FALSE(is_number(c) || is_punctuation(c) || is_symbol(c)) << uint32_t(c);
}

TEST(Unicode, ColumnsAndDirectionsOfEveryScript) {
  for (const char32_t c : std::u32string(U"aé\u00AD…קم\u0903\u0600▁")) EXPECT_EQ(columns_of(c), 1);
  for (const char32_t c : std::u32string(U"猫ア한！😀\u3000\u1100")) EXPECT_EQ(columns_of(c), 2);
  for (const char32_t c : std::u32string(U"\u0301\u05B8\u064B\u200B\u200D\uFE0F\u1161\u20DD\u2067"))
    EXPECT_EQ(columns_of(c), 0) << uint32_t(c);
  for (const char32_t c : std::u32string(U"אםمی𐤀\u07CA\u200F")) EXPECT_TRUE(is_right_to_left(c));
  for (const char32_t c : std::u32string(U"aΩ猫1٣ .\u0301")) EXPECT_FALSE(is_right_to_left(c));
}

TEST(Unicode, WordsAreWhatWhiteSpaceSeparates) {
  const std::u32string text = U"\u3000a\u00A0\u2003b\x1C\x85 c\u200Bd\uFEFF \n";
  EXPECT_EQ(split_at_white_space(text),
            (std::vector<std::u32string_view>{U"a", U"b", U"c\u200Bd\uFEFF"}));
  EXPECT_TRUE(split_at_white_space(U" \t").empty());
  EXPECT_EQ(strip_right(std::u32string_view(U" a \u2029")), U" a");
  EXPECT_EQ(strip_right(std::string_view(" é \u3000\r\n")), " é");
  EXPECT_EQ(strip_right(std::string_view("\u00A0 ")), "");
}

}  // namespace
}  // namespace heed
