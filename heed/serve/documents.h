// Files that are translated as wholes: what is no text in them stays as it is, to the byte.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/translation/text_translator.h"

namespace heed::serve {

// As many texts as it is given, in their order.
using TranslateTexts =
    std::function<std::vector<std::string>(const std::vector<std::string>&, TextOptions::Format)>;

std::vector<std::string> document_kinds();  // ".html", ".po", ".srt", ".txt"
bool is_document_kind(std::string_view kind);

// .srt: a sentence is translated as one, also where it runs over several subtitles, each of which
// has as many lines at most as it had. .po: entries without a
// translation get one, marked fuzzy, since nobody has read it. `content` is UTF-8.
std::string translate_document(std::string_view kind, const std::string& content,
                               const TranslateTexts& translate);

}  // namespace heed::serve
