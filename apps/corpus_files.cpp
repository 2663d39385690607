#include "apps/corpus_files.h"

#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed::apps {

CorpusFiles chosen_files(const GivenFiles& given, const std::string& prefix) {
  const std::string source = prefix + "source", target = prefix + "target";
  if (!given.tsv.empty())
    want(given.source.empty() && given.target.empty(),
         prefix + "tsv stands for " + source + " and " + target + "; give it alone");
  else
    want(given.source.empty() == given.target.empty(),
         given.source.empty() ? target + " wants " + source + " beside it"
                              : source + " wants " + target + " beside it");
  return {.source = expanded(given.tsv.empty() ? given.source : given.tsv),
          .target = expanded(given.target),
          .alignment = expanded(given.alignment)};
}

void want_text(const CorpusFiles& files) {
  PairReader reader(files);
  bool any = false, whole = false, bad = false;
  while (const std::optional<TextPair> pair = reader.next()) {
    const bool utf8 = !encoding_trouble(pair->source) && !encoding_trouble(pair->target);
    if (utf8 && !pair->source.empty() && !pair->target.empty()) return;
    any = true, whole = whole || !pair->torn, bad = bad || !utf8;
  }
  if (bad)
    fail("there is no pair of lines in UTF-8 to learn from. ", first_bad_line(files).value_or(""));
  require(!any || whole, files.source.name(),
          ": no line has a tab between source and target, as --tsv wants it");
  fail(files.source.name(), files.target.empty() ? "" : " or " + files.target.name(),
       ": has no text");
}

}  // namespace heed::apps
