// How many lines of a text come back from their pieces as they were, and how many pieces it takes:
// what a vocabulary of subwords costs, and what it loses.
//
//   round_trip LEARN_FROM TEXT KIND SIZE NORMALIZATION      bpe or unigram; identity or nfkc
#include <cstdio>
#include <cstdlib>

#include "heed/files/lines.h"
#include "heed/heed.h"

using namespace heed;

namespace {

void run(char** argv) {
  const TokenizerOptions options{
      .kind = argv[3], .size = std::atoll(argv[4]), .normalization = argv[5]};
  const auto tokenizer = learn_tokenizer(texts(TextPart{.path = argv[1]}), options);
  const std::vector<std::string> lines = read_text(argv[2]);
  int64_t changed = 0, pieces = 0, bytes = 0;
  for (const std::string& line : lines) {
    const std::vector<Id> ids = tokenizer->encode(line).ids;
    changed += tokenizer->decode(ids).text != line;
    pieces += std::ssize(ids);
    for (const Id id : ids) bytes += tokenizer->piece(id).starts_with("<0x");
  }
  const double n = double(std::max<size_t>(lines.size(), 1));
  std::printf(
      "%s, %s of %s, %s: %zu lines, %lld (%.2f %%) come back changed; %.2f pieces a line, "
      "%.3f of them bytes; vocabulary of %d\n",
      argv[2], argv[3], argv[4], argv[5], lines.size(), static_cast<long long>(changed),
      100 * double(changed) / n, double(pieces) / n, double(bytes) / n, tokenizer->size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: round_trip LEARN_FROM TEXT KIND SIZE NORMALIZATION\n");
    return 2;
  }
  try {
    run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "round_trip: %s\n", error.what());
    return 1;
  }
  return 0;
}
