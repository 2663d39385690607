// Subtitles (.srt). A sentence often runs over several of them: it is translated as one, and its
// translation is laid over them again, by their share of the text.
#pragma once

#include "heed/serve/documents.h"

namespace heed::serve {

// A line, and what ends it: "\n", "\r\n", or nothing at the end of a file.
struct FileLine {
  std::string text, end;
};
std::vector<FileLine> lines_of(const std::string& content);
bool is_blank(const std::string& text);

std::string translate_subtitles(const std::string& content, const TranslateTexts& translate);

}  // namespace heed::serve
