// Which attention of a model aligns words best, measured on pairs whose alignment is known, or
// which someone else has aligned.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <vector>

#include "heed/translation/translator.h"

namespace heed {

struct HeadError {
  AlignmentHead head;  // its head is -1 for the mean of a layer's heads; with its best threshold
  double aer = 0;      // with that
};

// Every head of every layer, and where a layer has several also their mean, in this order, as they
// are while a model translates; and the head that sees the whole target, if the model has one that
// aligns or was taught. `gold` has a line of links for each pair, "0-0 1p2": sure and possible
// ones. Throws Error if numbers of lines differ, a line of gold is no alignment, or the model has
// no attention.
std::vector<HeadError> head_errors(const Translator& translator,
                                   const std::vector<std::string>& sources,
                                   const std::vector<std::string>& targets,
                                   const std::vector<std::string>& gold,
                                   const TranslateOptions& options = {});

// The one with the smallest error; of equals the first.
HeadError best_head(const std::vector<HeadError>& errors);

}  // namespace heed
