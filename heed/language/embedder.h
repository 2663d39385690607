// A vector for each word in its sentence: from a bidirectional language model (ELMo, Peters et al.,
// 2018) or from a translator's encoder.
//
//   const Embedder embedder("m");
//   const WordVectors v = embedder.embed({"dogs may bark"})[0];   // v[2]: "bark", as dogs do it
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/translation/loaded_model.h"

namespace heed {

// Which vectors: a layer, 0 being the static table, or the learned mix of all.
struct Layer {
  std::optional<int64_t> number = {};  // none: the mix
  static Layer mix() { return {}; }
  static Layer at(int64_t number) { return {number}; }
};
// "mix" or a number.
Layer layer_from(const std::string& text);

// The words of a line, what stands between whitespace, each with its vector: the mean of those of
// its pieces.
struct WordVectors {
  std::vector<std::string> words;
  int64_t size = 0;
  std::vector<float> values;  // [words, size]

  std::span<const float> operator[](size_t word) const {
    return std::span(values).subspan(word * static_cast<size_t>(size), static_cast<size_t>(size));
  }
};

class Embedder {
 public:
  explicit Embedder(const std::filesystem::path& folder);
  explicit Embedder(std::shared_ptr<const LoadedModel> model);
  // Borrows a model that is being trained: for one thread.
  explicit Embedder(const ModelFolder& folder);

  // In the order of the lines; the result of one does not depend on the others. An empty line has
  // no vectors.
  std::vector<WordVectors> embed(const std::vector<std::string>& lines, Layer layer) const;
  std::vector<WordVectors> embed(const std::vector<std::string>& lines) const {
    return embed(lines, usual());
  }

  // The mix where one is learned, else the last layer.
  Layer usual() const;
  // Layers above the table.
  int64_t layers() const;
  const ModelFolder& model() const { return model_->folder(); }

 private:
  std::shared_ptr<const LoadedModel> model_;
};

double cosine(std::span<const float> a, std::span<const float> b);

// How near the vectors of a word in two sentences are, and those of the static table, which cannot
// tell them apart: 1, unless the word is written differently. Throws Error if a sentence does not
// have the word.
struct Nearness {
  double contextual = 0, table = 0;
};
Nearness compare(const Embedder& embedder, const std::string& a, const std::string& b,
                 const std::string& word, Layer layer);

// Which word of a line `word` is: letters alike, capitals and punctuation around it aside.
std::optional<size_t> find_word(const std::vector<std::string>& words, const std::string& word);

}  // namespace heed
