// What a corpus's index says of a text's files and of positions in them, as it was read.
#include <cstring>
#include <optional>

#include "heed/files/text_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

namespace {

const std::string& text() {
  static const std::string all = [] {
    std::string lines;
    for (int i = 0; i < 5000; ++i) lines += std::to_string(i) + '\n';
    return lines;
  }();
  return all;
}

}  // namespace

// How many files, for each its bytes, lines and whether it is packed; then positions.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 0;
  const auto next = [&]() -> std::uint64_t {
    std::uint64_t number = 0;
    if (size - at >= sizeof number) std::memcpy(&number, data + at, sizeof number);
    at += std::min(size - at, sizeof number);
    return number;
  };
  TextIndex::Data given;
  for (std::uint64_t n = next() % 4; n > 0; --n) {
    TextIndex::File& file = given.files.emplace_back();
    file.size = next(), file.lines = next(), file.packed = next();
  }
  while (size - at >= 6 * sizeof(std::uint64_t)) {
    TextReader::Position& p = given.positions.emplace_back();
    p.file = next(), p.in_file.byte = next(), p.in_file.line = next();
    p.in_file.member.file = next(), p.in_file.member.text = next(), p.line = next();
  }
  std::optional<TextIndex> index;
  if (!fuzz::takes([&] { index.emplace(given); })) return 0;
  (void)index->anywhere();
  // Files that have become others give other lines or an error, nothing else.
  static const fuzz::MemoryFile file(text());
  const Paths paths(std::vector<std::string>(given.files.size(), file.path()));
  for (const std::uint64_t line : {std::uint64_t{0}, index->lines() / 2, index->lines() - 1}) {
    if (line >= index->lines()) continue;
    const TextReader::Position from = index->before(line);
    fuzz::demand(from.line <= line && line - from.line < TextIndex::kEvery);
    fuzz::demand(from.file < given.files.size());
    fuzz::takes([&] {
      TextReader reader(paths, from);
      reader.skip(line - from.line);
      (void)reader.next();
    });
  }
  return 0;
}
