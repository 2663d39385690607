// Classes of characters that cutting text needs: those of UAX #29 (sentence boundaries), emoji, and
// scripts that are written without spaces. Tables are of Unicode 15.0 (break_tables.inc, made by
// tools/make-unicode-tables --breaks).
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string_view>

namespace heed {

bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_letter(char32_t c);            // of any script, cased or not; accents are not
bool ends_sentence(char32_t c);        // STerm: ! ? 。 । ؟ …, less the full stop
bool is_full_stop(char32_t c);         // ATerm: . and its other forms
bool may_close(char32_t c);            // Close: quotes and brackets, opening ones too
bool goes_on(char32_t c);              // SContinue: comma, colon, dashes
bool joins_before(char32_t c);         // Extend and Format: accents, joiners, selectors
bool is_written_unspaced(char32_t c);  // Han, kana, Thai, Lao, Khmer, Burmese

// How many code points of `text` from `at` on are one emoji, with its modifiers, joiners and
// selectors; 0 if none begins there.
size_t emoji_at(std::u32string_view text, size_t at);

}  // namespace heed
