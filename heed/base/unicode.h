// Text as code points: UTF-8 in and out, white space, categories, width, lower case.
//
// Tables are of Unicode 15.0 (unicode_tables.inc, made by tools/make-unicode-tables). Nothing here
// depends on a locale. White space (of all scripts; words.h has that of ASCII) and lower case are
// those of Python's str, since the definitions of the metrics rest on them.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// Where the first byte stands that is not UTF-8 (too long a form, a surrogate, beyond U+10FFFF or
// cut short), or nothing if all of `text` is.
std::optional<size_t> utf8_error(std::string_view text);
inline bool is_utf8(std::string_view text) { return !utf8_error(text); }

// How many bytes the character has that `text` begins with; 0 if it begins with none.
size_t character_bytes(std::string_view text);

// Where `text` begins with no character: how many bytes U+FFFD stands for, a maximal subpart of an
// ill-formed sequence (the Unicode standard, section 3.9). Of all of a text: with U+FFFD for each.
size_t ill_formed_bytes(std::string_view text);
std::string repaired_utf8(std::string_view text);

// What is wrong with a line that should be UTF-8, and what to do: "not UTF-8: byte 4 is 0xE9; ...".
// Nothing if it is UTF-8, and not one in which so many bytes are 0 that it must be UTF-16.
std::optional<std::string> encoding_trouble(std::string_view line);

// The code points of `text`. Throws Error if it is not UTF-8.
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

bool is_white_space(char32_t c);
bool is_punctuation(char32_t c);    // categories P*
bool is_symbol(char32_t c);         // categories S*
bool is_number(char32_t c);         // categories N*
bool is_right_to_left(char32_t c);  // letters of Hebrew, Arabic, ...: bidi classes R and AL

// How many columns of a terminal `c` takes: 2 for wide characters of East Asia and emoji, 0 for
// accents and what only steers those beside it, else 1.
int columns_of(char32_t c);

// Full lower case: a sigma that ends a word becomes the final one, I with a dot keeps its dot.
std::u32string lower_case(std::u32string_view text);

// `text` without white space at its end, and the words between white space. They borrow.
std::u32string_view strip_right(std::u32string_view text);
std::string_view strip_right(std::string_view utf8);
std::vector<std::u32string_view> split_at_white_space(std::u32string_view text);

}  // namespace heed
