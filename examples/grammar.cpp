// Writes a small English-French corpus with its true word alignments (heed/studies/grammar.h):
// train, valid and test, each as .en, .fr and .align (Pharaoh: source-target, from 0). No sentence
// is in two of them, and "il m'a entarté" is in none but test, so that it can be shown off.
//
//   grammar FOLDER [TRAINING_SENTENCES [SEED [LEXICON]]]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "heed/files/atomic_file.h"
#include "heed/heed.h"
#include "heed/studies/grammar.h"

using namespace heed;

namespace {

void write(const std::filesystem::path& folder, const std::string& name,
           const std::vector<AlignedPair>& pairs) {
  std::string english, french, links;
  for (const AlignedPair& pair : pairs) {
    english += pair.english + "\n";
    french += pair.french + "\n";
    links += to_pharaoh(pair.links) + "\n";
  }
  write_file(folder / (name + ".en"), english);
  write_file(folder / (name + ".fr"), french);
  write_file(folder / (name + ".align"), links);
}

void run(int argc, char** argv) {
  const std::filesystem::path folder = argv[1];
  const int64_t count = argc > 2 ? std::atoll(argv[2]) : 20'000;
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  require(count > 0, "grammar: '", argc > 2 ? argv[2] : "", "' sentences; a number was wanted");
  const Grammar grammar(argc > 4 ? argv[4] : "data/grammar");

  constexpr int64_t kTest = 1000, kValid = 500;
  std::vector<AlignedPair> all = grammar.pairs(kTest + kValid + count, seed);
  const auto from = [&](int64_t begin, int64_t end) {
    return std::vector<AlignedPair>(std::make_move_iterator(all.begin() + begin),
                                    std::make_move_iterator(all.begin() + end));
  };
  std::vector<AlignedPair> test = from(0, kTest), valid = from(kTest, kTest + kValid),
                           train = from(kTest + kValid, static_cast<int64_t>(all.size()));
  const auto shown = [](const AlignedPair& p) {
    return p.french.find("il m' a entarté") != std::string::npos;
  };
  std::erase_if(train, shown);
  std::erase_if(valid, shown);

  std::filesystem::create_directories(folder);
  write(folder, "train", train);
  write(folder, "valid", valid);
  write(folder, "test", test);
  std::printf("%s: %zu sentence pairs to train on, %zu to validate, %zu to test\n", folder.c_str(),
              train.size(), valid.size(), test.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar FOLDER [TRAINING_SENTENCES [SEED [LEXICON]]]\n");
    return 2;
  }
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grammar: %s\n", error.what());
    return 1;
  }
  return 0;
}
