// Links between the words of a corpus, learnt from it (alignment/aligner.h): what 'heed train
// --guided auto' teaches.
//
// Threads: an object belongs to one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "heed/alignment/aligner.h"
#include "heed/data/corpus.h"
#include "heed/training/link_threshold.h"

namespace heed {

// They are in a file of the model's folder that is gone with this, and the same whenever they are
// learnt. Some of the pairs that are validated on, if there are any, are learnt from as well, to
// have links of pairs that are not trained on.
class LearntLinks {
 public:
  using Shown = std::function<void(const AlignerProgress&)>;
  // `valid`: null where there is nothing to validate on.
  LearntLinks(const CorpusFiles& files, const CorpusIndex* valid,
              const std::filesystem::path& folder, const Shown& progress = {});
  ~LearntLinks();
  LearntLinks(const LearntLinks&) = delete;
  LearntLinks& operator=(const LearntLinks&) = delete;

  const std::string& path() const { return path_; }
  // Of pairs that are validated on.
  const AlignedLines& held_out() const { return held_out_; }
  const std::string& told() const { return told_; }  // lines for people

 private:
  std::string path_, told_;
  AlignedLines held_out_;
};

}  // namespace heed
