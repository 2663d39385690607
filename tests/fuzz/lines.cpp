// Text line by line, plain or gzip, as its first bytes say.
#include "heed/files/lines.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  std::vector<std::string> lines;
  std::vector<LineReader::Position> after;
  const bool whole = fuzz::takes([&] {
    LineReader reader(file.path());
    while (auto line = reader.next()) {
      fuzz::demand(line->find('\n') == std::string::npos);
      lines.push_back(std::move(*line)), after.push_back(reader.position());
    }
  });
  // A file that is damaged is damaged for every way to read it.
  std::int64_t count = -1;
  fuzz::demand(fuzz::takes([&] { count = count_lines(file.path()); }) == whole);
  if (!whole || lines.empty()) return 0;
  fuzz::demand(count == static_cast<std::int64_t>(lines.size()));
  // From any place on, the same lines follow.
  const std::size_t middle = lines.size() / 2;
  LineReader rest(file.path(), after[middle]);
  for (std::size_t i = middle + 1; i < lines.size(); ++i) fuzz::demand(rest.next() == lines[i]);
  fuzz::demand(!rest.next());
  return 0;
}
