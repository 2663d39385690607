// What stands around sentences besides words: quotes and brackets, faces made of signs, titles,
// "(...)"; numerals and letters that words are made of. For sentences.cpp.
//
// A function with `text` and `at` looks at what begins there; beyond the end there is nothing.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string_view>

namespace heed {

// Quotes and brackets that can stand before a sentence.
bool may_open(char32_t c);
// ,,Yes'': two commas that open a quotation, on keyboards without „.
bool is_low_quote(std::u32string_view text, size_t at);
// After the quotes and brackets before a word.
size_t skip_opening(std::u32string_view text, size_t at);
// Where, from `begin` on, the quotation was opened that ends before `close`; begin if nowhere.
size_t quotation_begin(std::u32string_view text, size_t begin, size_t close);

// After a title, whose marks are its own, 《你好！李焕英》, and after "(...)", which says that
// something was left out; `at` if there is none.
size_t title_end(std::u32string_view text, size_t at);
size_t omission_end(std::u32string_view text, size_t at);

// The length of a face made of signs that stands by itself, ":-)", and of a word in brackets,
// （笑）; 0 if there is none.
size_t face_at(std::u32string_view text, size_t at);
size_t aside_at(std::u32string_view text, size_t at);

// A particle of Japanese, after a name or a thought that ends with a mark: モーニング娘。の歌,
// 何？と思った. Before kana it may be a word's beginning: とても.
bool is_particle(std::u32string_view text, size_t at);

// Of lists: "ii. Second", "B. Methods".
bool is_list_letter(std::u32string_view word);
// "XIV". A single letter is more often a word ("I"), an initial or what an apostrophe follows.
bool is_roman(std::u32string_view word);
// Letters with stops between them, few in each part: "U.S", "J.-C", "p.m".
bool is_lettered(std::u32string_view word);

}  // namespace heed
