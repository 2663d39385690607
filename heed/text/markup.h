// HTML as text to translate: what stands between two block tags is one segment, whose inline tags
// are set apart from its words. Reads whatever it is given; what it does not understand is kept as
// it is. Every byte of the source is in a segment's text, in one of its tags, or between segments,
// so that a writer that copies the latter two loses nothing.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/sentences.h"

namespace heed {

// In a segment, between or instead of its characters.
struct InlineTag {
  enum class Kind {
    open,   // of an element that is closed in the segment: `partner` is its end's number
    close,  // and the other way round
    point,  // alone: <img>, <x/>, a comment, a tag whose other half is elsewhere
    kept,   // an element whose content is not for translation, as <code>, or an entity such as
            // &copy;
  };
  Kind kind = Kind::point;
  size_t at = 0, end = 0;  // bytes of the segment's text; the same but for `kept`
  TextSpan source = {};
  size_t partner = 0;
};

struct TextSegment {
  std::string text;  // with characters for entities, and spaces for line breaks
  // For each byte of `text`: where in the source its character stands.
  std::vector<TextSpan> source = {};
  std::vector<InlineTag> tags = {};  // in the order of the source
};

// Those that have text, in order.
std::vector<TextSegment> read_html(std::string_view html);

// Plain text: a segment for each line. Its tags are those that open and close an element there.
std::vector<TextSegment> read_plain(std::string_view text);

// With entities for & < and >.
std::string escape_html(std::string_view text);

}  // namespace heed
