// A test of vectors for words in their sentence: is the nearest other sentence with the same word
// one in which it has the same sense? data/senses/senses.tsv has words of several senses, each in
// several sentences of our own.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heed/language/embedder.h"

namespace heed {

struct SenseSentence {
  std::string word, sense, sentence;
};

// A TSV file: word, sense, sentence; lines that begin with '#' are passed over. Throws Error for a
// sentence without its word and for a word of one sense only.
std::vector<SenseSentence> read_senses(const std::filesystem::path& path);

struct SenseResult {
  int64_t sentences = 0;
  double same_sense = 0;                       // share whose nearest neighbour has the same sense
  std::map<std::string, double> by_word = {};  // the same, for each word
};

// Neighbours are the other sentences of the same word; of several that are equally near, each
// counts for its share. A table gives all of them the same vector, so it finds what chance finds.
SenseResult nearest_senses(const std::vector<SenseSentence>& test,
                           const std::vector<std::vector<float>>& vectors);
SenseResult nearest_senses(const Embedder& embedder, const std::vector<SenseSentence>& test,
                           Layer layer);

}  // namespace heed
