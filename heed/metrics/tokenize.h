// How the metrics cut a line into words. A tokenizer is part of a score's definition: the same
// translation has another BLEU under another one, so these do exactly what sacreBLEU's do, its
// surprises included.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/base/unicode.h"

namespace heed {

// Code points in, code points out; the tokens are what white space separates in the result.
using BleuTokenizer = std::u32string (*)(std::u32string_view line);

// 13a, none, intl, char or zh. Throws Error, with the nearest name, for any other.
BleuTokenizer find_bleu_tokenizer(std::string_view name);
const std::vector<std::string>& bleu_tokenizer_names();

// The tokens of a line, with one space between them.
std::string tokenize_for_bleu(std::string_view line, std::string_view tokenizer = "13a");

struct TerOptions {
  bool normalized = false;      // set punctuation off and decode entities first
  bool no_punctuation = false;  // drop . , ? : ; ! " ( )
  bool asian_support = false;   // with either of these: the same for Chinese and Japanese
  bool case_sensitive = false;
};

// Tercom's own preparation of a line, which TER uses instead of a tokenizer. The result has one
// space between words.
std::u32string prepare_for_ter(std::u32string_view line, const TerOptions& options);

}  // namespace heed
