// HTML and plain text to translate: whatever is in them, tags and what is kept come back, each as
// often as it was there.
#include <algorithm>
#include <map>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/document.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

namespace {

// A translator that reverses the words, or writes nothing, or copies.
std::string translated(const std::string& line, uint8_t how, Links& links) {
  const auto words = split_words(line);
  std::string out;
  for (size_t t = 0; t < words.size() && how != 0; ++t) {
    const size_t s = how == 1 ? words.size() - 1 - t : t;
    out += (t > 0 ? " " : "") + std::string(words[s]);
    links.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t)});
  }
  std::sort(links.begin(), links.end());
  return out;
}

// What a reader of HTML, or of plain text, promises of its segments.
void check_segments(const std::vector<TextSegment>& segments, size_t size) {
  for (const TextSegment& s : segments) {
    fuzz::demand(s.text.size() == s.source.size() && is_utf8(s.text));
    for (const InlineTag& tag : s.tags) {
      fuzz::demand(tag.source.end <= size && tag.end <= s.text.size());
      if (tag.kind == InlineTag::Kind::open || tag.kind == InlineTag::Kind::close)
        fuzz::demand(s.tags.at(tag.partner).partner == static_cast<size_t>(&tag - s.tags.data()));
    }
  }
}

void run(const std::string& text, bool html, uint8_t how, size_t longest) {
  constexpr const char* kLanguages[] = {"en", "de", "ja", "ar"};
  const Document document(text, {.html = html,
                                 .language = kLanguages[how / 3 % 4],
                                 .longest = longest,
                                 .count_pieces = {},
                                 .knows = {}});
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t p = 0; p < document.parts().size(); ++p) {
    const Document::Part& part = document.parts()[p];
    fuzz::demand(part.source.begin >= at && part.source.end <= text.size());
    at = part.source.end;
    std::string& out = parts.emplace_back();
    std::vector<std::string> targets;
    std::vector<Links> links;
    for (const std::string& line : part.lines) {
      fuzz::demand(is_utf8(line));
      targets.push_back(translated(line, how % 3, links.emplace_back()));
    }
    if (targets.empty()) continue;
    const size_t line = document.choose(p, {targets.begin(), targets.end()});
    out = document.write(p, line, targets[line], links[line]);
    fuzz::demand(is_utf8(out));
  }
  const Document::Joined joined = document.join(parts);
  fuzz::demand(joined.places.size() == parts.size() && is_utf8(joined.text));
  const std::vector<TextSegment> segments = html ? read_html(text) : read_plain(text);
  check_segments(segments, text.size());
  // No tag is lost, and none comes twice.
  std::map<std::string, size_t> tags;
  for (const TextSegment& s : segments)
    for (const InlineTag& tag : s.tags)
      if (tag.kind != InlineTag::Kind::kept)
        ++tags[text.substr(tag.source.begin, tag.source.size())];
  const auto count = [](const std::string& all, const std::string& part) {
    size_t n = 0;
    for (size_t from = 0; (from = all.find(part, from)) != std::string::npos; ++from) ++n;
    return n;
  };
  for (const auto& [tag, times] : tags) {
    fuzz::demand(count(joined.text, tag) >= times);
    // Plain text may have what looks like one beside it: * and **.
    fuzz::demand(!html || count(joined.text, tag) <= count(text, tag));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string text(fuzz::text_of(data + 2, size - 2));
  if (!is_utf8(text)) {
    fuzz::demand(!fuzz::takes([&] { Document(text, {}); }));
    return 0;
  }
  run(text, data[0] & 1, data[1], 8 + data[0]);
  return 0;
}
