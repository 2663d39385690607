// The files of a parallel corpus as they are given: names, or patterns of names.
#pragma once

#include <string>
#include <vector>

#include "heed/data/pairs.h"

namespace heed::apps {

struct GivenFiles {
  std::vector<std::string> source, target, alignment, tsv;  // tsv: instead of source and target
};

// Either files for each side or TSV files. Throws what is told as a mistake in the arguments for
// others; `prefix` is that of the flags.
CorpusFiles chosen_files(const GivenFiles& given, const std::string& prefix);

// Throws Error unless there is a line that both sides have words in.
void want_text(const CorpusFiles& files);

}  // namespace heed::apps
