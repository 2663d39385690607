// Attention as one page of HTML, which needs nothing but itself: sentences, layers and heads to
// choose from, the row and column of a word lit up under the pointer or the keyboard, exact
// weights, the beam as a tree. Its parts are in web/.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/view/heatmap.h"
#include "heed/view/tree.h"

namespace heed {

struct AttentionPage {
  struct Layer {
    std::vector<std::vector<double>> heads;  // each target * source weights, row by row
    std::string name = "";                   // "decoder 2"; if empty, the layer's number
  };
  struct Sentence {
    std::vector<std::string> source, target;
    std::vector<Layer> layers;
    std::string note = "";  // a line of text below the choices
    std::optional<SearchTree> tree = {};
    bool ends = false;                         // the last of either side is the end, "</s>"
    std::optional<Heatmap::Marks> marks = {};  // links to compare
  };
  // What is shown until something else is chosen.
  struct Start {
    size_t layer = 0;
    std::optional<size_t> head = {};  // not given: the mean of all
    // A word's weights are those of the step that writes it (0) or of the next, which reads it (1);
    // not given: there is no such choice.
    std::optional<int> shift = {};
    bool scale_rows = false, hide_ends = false;
  };
  std::string title;
  std::vector<Sentence> sentences;
  Start start = {};
};

// The page. Weights are kept to six digits. Throws Error if sizes do not fit together.
std::string draw_html(const AttentionPage& page);

}  // namespace heed
