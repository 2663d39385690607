#include "heed/studies/grammar.h"

#include <unordered_set>

#include "heed/base/check.h"
#include "heed/studies/grammar/lexicon.h"
#include "heed/studies/grammar/phrase.h"
#include "heed/studies/grammar/speaker.h"
#include "heed/data/text.h"

namespace heed {

Grammar::Grammar(const std::filesystem::path& folder)
    : lexicon_(std::make_unique<grammar::Lexicon>(grammar::Lexicon::load(folder))) {}

Grammar::~Grammar() = default;

AlignedPair Grammar::pair(Random& random) const {
  return grammar::spelled(grammar::Speaker(*lexicon_, random).sentence());
}

std::vector<AlignedPair> Grammar::pairs(int64_t count, uint64_t seed) const {
  require(count >= 0, "grammar: ", count, " sentences were asked for");
  Random random(seed);
  std::unordered_set<std::string> said;  // English and French are never spelled alike
  std::vector<AlignedPair> pairs;
  constexpr int64_t kTries = 100'000;  // in vain, in a row
  for (int64_t tries = 0; static_cast<int64_t>(pairs.size()) < count; ++tries) {
    require(tries < kTries, "grammar: cannot say ", grouped(count), " different sentences; after ",
            grouped(static_cast<int64_t>(pairs.size())), " it repeats itself");
    AlignedPair next = pair(random);
    if (said.contains(next.english) || said.contains(next.french)) continue;
    said.insert(next.english);
    said.insert(next.french);
    pairs.push_back(std::move(next));
    tries = 0;
  }
  return pairs;
}

}  // namespace heed
