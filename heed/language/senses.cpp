#include "heed/language/senses.h"

#include <algorithm>
#include <set>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/data/text.h"
#include "heed/files/lines.h"

namespace heed {

std::vector<SenseSentence> read_senses(const std::filesystem::path& path) {
  std::vector<SenseSentence> out;
  std::map<std::string, std::set<std::string>> senses;
  LineReader reader(path.string());
  while (const std::optional<std::string> line = reader.next()) {
    if (line->empty() || line->front() == '#') continue;
    const auto fields = split_fields(*line, '\t');
    const auto number = reader.position().line;
    require(fields.size() == 3, path.string(), ": line ", number,
            ": wants a word, a sense and a sentence with tabs between, has ", fields.size(),
            " fields");
    SenseSentence s{std::string(fields[0]), std::string(fields[1]), std::string(fields[2])};
    std::vector<std::string> words;
    for (const std::string_view w : split_words(s.sentence)) words.emplace_back(w);
    require(find_word(words, s.word).has_value(), path.string(), ": line ", number, ": no word '",
            s.word, "' in the sentence");
    senses[s.word].insert(s.sense);
    out.push_back(std::move(s));
  }
  for (const auto& [word, some] : senses)
    require(some.size() > 1, path.string(), ": '", word, "' has one sense only");
  require(!out.empty(), path.string(), ": has no sentences");
  return out;
}

SenseResult nearest_senses(const std::vector<SenseSentence>& test,
                           const std::vector<std::vector<float>>& vectors) {
  require(test.size() == vectors.size(), "nearest_senses: ", vectors.size(), " vectors for ",
          test.size(), " sentences");
  SenseResult out;
  std::map<std::string, int64_t> counts;
  for (size_t i = 0; i < test.size(); ++i) {
    double best = -2, same = 0, all = 0;
    for (size_t j = 0; j < test.size(); ++j) {
      if (j == i || test[j].word != test[i].word) continue;
      const double near = cosine(vectors[i], vectors[j]);
      // Equal but for the rounding of a mean.
      constexpr double kEqual = 1e-9;
      if (near > best + kEqual) same = all = 0;
      if (near >= best - kEqual) {
        all += 1, same += test[j].sense == test[i].sense;
        best = std::max(best, near);
      }
    }
    if (all == 0) continue;  // the only sentence of its word
    ++out.sentences, ++counts[test[i].word];
    out.same_sense += same / all;
    out.by_word[test[i].word] += same / all;
  }
  if (out.sentences > 0) out.same_sense /= double(out.sentences);
  for (auto& [word, share] : out.by_word) share /= double(counts[word]);
  return out;
}

SenseResult nearest_senses(const Embedder& embedder, const std::vector<SenseSentence>& test,
                           Layer layer) {
  std::vector<std::string> lines;
  for (const SenseSentence& s : test) lines.push_back(s.sentence);
  const std::vector<WordVectors> found = embedder.embed(lines, layer);
  std::vector<std::vector<float>> vectors;
  for (size_t i = 0; i < test.size(); ++i) {
    const auto v = found[i][*find_word(found[i].words, test[i].word)];
    vectors.emplace_back(v.begin(), v.end());
  }
  return nearest_senses(test, vectors);
}

}  // namespace heed
