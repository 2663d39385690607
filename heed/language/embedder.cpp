#include "heed/language/embedder.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

// Lower case, without punctuation at the ends.
std::u32string plain(const std::string& word) {
  std::u32string text = lower_case(decode_utf8(word));
  while (!text.empty() && is_punctuation(text.back())) text.pop_back();
  while (!text.empty() && is_punctuation(text.front())) text.erase(0, 1);
  return text;
}

// The means of the rows of one word's pieces, of row b of x [B, T, n].
WordVectors joined(const Sentence& s, const Tensor& x, int64_t b) {
  WordVectors out{.words = {}, .size = x.size(2), .values = {}};
  for (const std::string_view w : split_words(s.text)) out.words.emplace_back(w);
  const size_t n = static_cast<size_t>(x.size(2));
  std::vector<double> sums(out.words.size() * n);
  std::vector<double> counts(out.words.size());
  const float* row = x.data<float>() + b * x.size(1) * x.size(2);
  for (size_t t = 0; t < s.ids.size(); ++t, row += n) {
    const auto word = static_cast<size_t>(s.word[t]);
    counts[word] += 1;
    for (size_t i = 0; i < n; ++i) sums[word * n + i] += double(row[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i)
    out.values.push_back(static_cast<float>(sums[i] / std::max(counts[i / n], 1.0)));
  return out;
}

}  // namespace

Layer layer_from(const std::string& text) {
  if (text == "mix") return Layer::mix();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && end == text.data() + text.size() && number >= 0,
          "layer: wants 'mix' or a number of at least 0, given '", text, "'");
  return Layer::at(number);
}

Embedder::Embedder(const std::filesystem::path& folder) : Embedder(LoadedModel::open(folder)) {}
Embedder::Embedder(const ModelFolder& folder) : Embedder(LoadedModel::borrow(folder)) {}
Embedder::Embedder(std::shared_ptr<const LoadedModel> model) : model_(std::move(model)) {
  const ModelConfig& config = this->model().config;
  require(!is_language_model(config) || is_bidirectional_language_model(config),
          this->model().path.string(),
          ": a language model in one direction, which knows of a word only what ",
          "stands before it; train one in both (heed lm train --preset elmo), or a translator");
}

int64_t Embedder::layers() const {
  const ModelConfig& c = model().config;
  return is_language_model(c) ? c.decoder_layers : c.encoder_layers;
}

Layer Embedder::usual() const {
  return is_language_model(model().config) ? Layer::mix() : Layer::at(layers());
}

std::vector<WordVectors> Embedder::embed(const std::vector<std::string>& lines, Layer layer) const {
  require(!layer.number || (*layer.number >= 0 && *layer.number <= layers()), "embed: layer ",
          layer.number.value_or(0), " of a model that has 0 (the table) to ", layers());
  require(layer.number || is_language_model(model().config),
          "embed: a translator's encoder has learned no mix of its layers; choose one from 0 (the ",
          "table) to ", layers());
  const Tokenizer& tokenizer = *model().tokenizers.source;
  const SpecialIds special = tokenizer.special();
  const int64_t most = longest_sentence(model().config).value_or(100'000);
  std::vector<Sentence> sentences;
  std::vector<size_t> order;
  for (size_t i = 0; i < lines.size(); ++i) {
    require(is_utf8(lines[i]), "line ", i + 1, ": not UTF-8");
    sentences.push_back(tokenizer.encode(lines[i]));
    require(static_cast<int64_t>(sentences[i].ids.size()) <= most, "embed: line ", i + 1, " has ",
            sentences[i].ids.size(), " pieces; the model reads ", most, " at most");
    if (!sentences[i].ids.empty()) order.push_back(i);
  }
  // Lines of similar length waste little.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sentences[a].ids.size() > sentences[b].ids.size();
  });
  std::vector<WordVectors> out(lines.size());
  constexpr size_t kBatch = 32;
  for (size_t at = 0; at < order.size(); at += kBatch) {
    const size_t end = std::min(order.size(), at + kBatch);
    const size_t width = framed(sentences[order[at]].ids, special).size();
    std::vector<Id> rows;
    Source source;
    for (size_t i = at; i < end; ++i) {
      const std::vector<Id> s = framed(sentences[order[i]].ids, special);
      rows.insert(rows.end(), s.begin(), s.end());
      rows.insert(rows.end(), width - s.size(), special.pad);
      source.lengths.push_back(static_cast<Id>(s.size()));
    }
    const LoadedModel::Turn turn(*model_);
    source.ids = ids(rows, {static_cast<int64_t>(end - at), static_cast<int64_t>(width)});
    WordLayers found = model().model->word_layers(source, special.begin);
    if (special.source_begin)  // the rows of a sentence are its words
      for (Tensor& x : found.layers) x = slice(x, 1, 1, x.size(1));
    const Tensor x =
        to(contiguous(layer.number ? found.layers[static_cast<size_t>(*layer.number)] : *found.mix),
           Device::cpu);
    for (size_t i = at; i < end; ++i)
      out[order[i]] = joined(sentences[order[i]], x, static_cast<int64_t>(i - at));
  }
  return out;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  require(a.size() == b.size(), "cosine: vectors of ", a.size(), " and ", b.size(), " numbers");
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double(a[i]) * double(b[i]);
    aa += double(a[i]) * double(a[i]);
    bb += double(b[i]) * double(b[i]);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

std::optional<size_t> find_word(const std::vector<std::string>& words, const std::string& word) {
  const std::u32string wanted = plain(word);
  for (size_t i = 0; i < words.size(); ++i)
    if (plain(words[i]) == wanted) return i;
  return std::nullopt;
}

Nearness compare(const Embedder& embedder, const std::string& a, const std::string& b,
                 const std::string& word, Layer layer) {
  const auto cosine_at = [&](Layer at) {
    const std::vector<WordVectors> v = embedder.embed({a, b}, at);
    const std::optional<size_t> i = find_word(v[0].words, word), j = find_word(v[1].words, word);
    require(i && j, "compare: no word '", word, "' in '", i ? b : a, "'");
    return cosine(v[0][*i], v[1][*j]);
  };
  return {.contextual = cosine_at(layer), .table = cosine_at(Layer::at(0))};
}

}  // namespace heed
