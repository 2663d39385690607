// A text to be translated: cut into parts, each with what a model is to read for it, and put
// together again from what the model wrote. Knows no model: it is told how long a line is to it and
// which characters it has.
//
// What is kept (spans.h, markup.h) is shown to the model in up to three ways, each a line of its
// own: as it is, as a number that stands for it, and not at all. The first whose translation has
// all of it is taken; from the last, things are put back by their neighbours, so that nothing can
// be lost.
//
// Threads: a value; different ones may be used by different threads, one by many that only read it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/markup.h"
#include "heed/text/placement.h"

namespace heed {

struct DocumentOptions {
  bool html = false;
  std::string language = {};  // as split_sentences() has it
  // A sentence of more pieces than `longest` is cut where it hurts least.
  size_t longest = 200;
  std::function<size_t(std::string_view)> count_pieces = {};  // not given: characters
  std::function<bool(char32_t)> knows = {};                   // not given: all
};

class Document {
 public:
  // Throws Error if the text is not UTF-8.
  Document(std::string_view text, const DocumentOptions& options);

  // A sentence, or a part of a long one.
  struct Part {
    TextSpan source = {};  // bytes of the text
    // What the model is to read, in one way or another; none if it need not be asked, because
    // nothing of it is for translation.
    std::vector<std::string> lines = {};
  };
  const std::vector<Part>& parts() const { return parts_; }

  // Which of a part's lines has the translation to take, given those of all of them.
  size_t choose(size_t part, const std::vector<std::string_view>& targets) const;

  // The part's translation, with all that belongs into it: of line number `line`, and with links
  // between that line's words and the target's.
  std::string write(size_t part, size_t line, std::string_view target,
                    std::span<const Link> links) const;

  // The whole, from translations of all parts, with all that stands between them; `places` says
  // where each is. Of a part that has no lines the source is taken, whatever is given for it.
  struct Joined {
    std::string text;
    std::vector<TextSpan> places = {};
  };
  Joined join(const std::vector<std::string>& parts) const;

 private:
  struct Line {
    std::string text;
    std::vector<Inlay> inlays;
  };
  struct Plan {
    TextSpan outer = {};  // what of the source the part replaces: its text and the tags in it
    std::vector<Line> lines = {};
  };

  class Planner;

  std::string text_;
  bool html_ = false;
  std::vector<Part> parts_;
  std::vector<Plan> plans_;
};

}  // namespace heed
