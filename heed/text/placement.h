// Puts what is not words back into a translation: tags around the words that come from those they
// stood around, other things beside them, as a word alignment says. Nothing is lost, nothing comes
// twice, and elements stay nested.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/text/tokens.h"

namespace heed {

// Something that stands in a sentence and is not its words.
struct Inlay {
  enum class Kind {
    element,  // around words: `open` before them, `close` after
    point,    // between words: `open`; it has no place in the source's text
    kept,     // instead of words: `open` for the source's text, where the translation has the same
  };
  Kind kind = Kind::point;
  size_t begin = 0, end = 0;  // bytes of the source; the same for a point
  std::string open = {}, close = {};
  // An element that began in a sentence before, or ends in one after: its `open` or `close` is
  // empty, and it reaches to that end of the translation.
  bool from_before = false, goes_on = false;
  // Of what has no width: whether white space stood before and after it.
  bool space_before = false, space_after = false;
  std::optional<size_t> parent = {};  // the number of the element around it
};

// The target with all `inlays`, which are in the order of the source, an element before what is in
// it. Its own text goes through `escape`. What is `goes_on` reaches to the end of the source, what
// is `from_before` from its beginning; their parents, if any, are such, too.
std::string place(const AlignedPair& pair, std::span<const Inlay> inlays,
                  const std::function<std::string(std::string_view)>& escape);

}  // namespace heed
