// The page on which attention is seen, in two forms of the same files (web/): one that a server
// sends, which asks it for translations, and one file of HTML that holds its sentences and needs
// nothing but itself.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/view/heatmap.h"
#include "heed/view/tree.h"

namespace heed {

struct AttentionPage {
  struct Layer {
    std::vector<std::vector<double>> heads;  // each rows * columns weights, row by row
    std::string name = "";                   // "forward"; if empty, the layer's number
  };
  // What the tokens of a side are joined to where whole words are shown.
  struct Words {
    std::vector<std::string> names;
    std::vector<int> of;  // of each token but the end, the number of its word
  };
  // What might have stood at a step, likeliest first.
  struct Candidate {
    std::string word;
    double probability = 0;
  };
  // What an attention compares and reads, by layer and head (translation/translator.h: HeadTerms),
  // for "Why this weight". Matrices row by row.
  struct Terms {
    std::string form;                   // "dot", "log_dot", "additive"
    int64_t size = 0, value_size = 0;   // of a row of q and of k, of a value
    std::vector<double> q, k, v, bias;  // [target, size], [keys, size], [size], [target, keys]
    std::vector<double> values;         // [keys, value_size]
    double scale = 1;
  };
  struct Why {
    std::string score, weigh;  // by name
    double temperature = 1;
    std::vector<std::vector<Terms>> layers;
    int64_t before = 0;  // how many keys stand before that of the first source token
  };
  struct Sentence {
    std::vector<std::string> source, target;
    std::vector<Layer> layers;  // target * source
    int64_t number = 0;         // of its line, from 1; 0: its place on the page
    std::string note = "";      // a line of text below the figure
    std::optional<SearchTree> tree = {};
    bool ends = false;  // the last of either side is the end, "</s>"
    // Links to compare, between words where those are given.
    std::optional<Heatmap::Marks> marks = {};
    std::optional<Words> source_words = {}, target_words = {};
    std::vector<Layer> encoder = {}, decoder = {};   // source * source, target * target
    std::optional<std::vector<double>> chosen = {};  // those that align, target * source
    std::optional<double> log_probability = {}, score = {};
    std::vector<std::vector<Candidate>> candidates = {};  // by step
    std::optional<Why> why = {};
    bool past = false;  // a language model: `source` is what it had read
  };
  // What is shown until something else is chosen.
  struct Start {
    std::optional<size_t> layer = {};  // not given: the head that aligns or, with none, the last
    std::optional<size_t> head = {};   // not given: the mean of all
    // A word's weights are those of the step that writes it (0) or of the next, which reads it (1);
    // not given: there is no such choice.
    std::optional<int> shift = {};
    bool scale_rows = false, hide_ends = false, words = false;
  };
  std::string title;
  std::vector<Sentence> sentences;
  Start start = {};
};

// The page as one file. Weights are kept to six digits. Throws Error if sizes do not fit together.
std::string draw_html(const AttentionPage& page);

// The page without sentences: as one file, into which they can be put where `id="data">null` is,
// and as a server sends it, whose other files are below web/.
std::string empty_page();
std::string live_page();
// What may be loaded by the latter: its own files, and answers of the same server.
inline constexpr std::string_view kLivePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'";
// "page.css", "ribbons.js"; none if there is no such file.
std::optional<std::string_view> page_file(std::string_view name);

}  // namespace heed
