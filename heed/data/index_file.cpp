// A corpus's index as a file: safetensors, with the files, the positions and the checksum of each
// side (docs/formats.md).
#include <cstring>

#include "heed/base/check.h"
#include "heed/data/pairs.h"
#include "heed/files/safetensors.h"

namespace heed {
namespace {

constexpr const char *kFormatEntry = "heed.corpus", *kFormat = "1";
constexpr std::array<const char*, 3> kSides{"source", "target", "alignment"};

using Numbers = std::vector<uint64_t>;

Numbers numbers_of(const std::vector<TextIndex::File>& files) {
  Numbers out;
  for (const TextIndex::File& f : files)
    out.insert(out.end(), {f.size, f.modified, f.lines, f.packed});
  return out;
}

Numbers numbers_of(const std::vector<TextReader::Position>& positions) {
  Numbers out;
  for (const TextReader::Position& p : positions) {
    const LineReader::Position& in = p.in_file;
    out.insert(out.end(), {p.file, in.byte, in.line, in.member.file, in.member.text, p.line});
  }
  return out;
}

// Rows of so many numbers.
Numbers read(const SafetensorsFile& file, const std::string& name, int64_t row) {
  const TensorEntry& found = file.at(name);
  require(found.dtype == StoredDtype::U64 && found.shape.size() == 2 && found.shape[1] == row, name,
          " is not as it should be");
  Numbers out(found.bytes.size() / sizeof(uint64_t));
  if (!out.empty()) std::memcpy(out.data(), found.bytes.data(), found.bytes.size());
  return out;
}

TextIndex read_side(const SafetensorsFile& file, const std::string& side) {
  TextIndex::Data data;
  const Numbers files = read(file, side + ".files", 4);
  for (size_t i = 0; i < files.size(); i += 4)
    data.files.push_back({files[i], files[i + 1], files[i + 2], files[i + 3]});
  const Numbers positions = read(file, side + ".positions", 6);
  for (size_t i = 0; i < positions.size(); i += 6)
    data.positions.push_back(
        {.file = positions[i],
         .in_file = {.byte = positions[i + 1],
                     .line = positions[i + 2],
                     .member = {.file = positions[i + 3], .text = positions[i + 4]}},
         .line = positions[i + 5]});
  const Numbers checksum = read(file, side + ".checksum", 1);
  require(checksum.size() == 1, side, ".checksum is not as it should be");
  data.checksum = checksum[0];
  return TextIndex(std::move(data));
}

}  // namespace

void CorpusIndex::keep(const std::filesystem::path& path) const {
  std::vector<Numbers> held;
  held.reserve(3 * kSides.size());
  std::vector<TensorEntry> entries;
  const auto put = [&](const std::string& name, int64_t row, Numbers numbers) {
    held.push_back(std::move(numbers));
    const Numbers& here = held.back();
    entries.push_back({name,
                       StoredDtype::U64,
                       {static_cast<int64_t>(here.size()) / row, row},
                       std::as_bytes(std::span(here))});
  };
  for (size_t i = 0; i < kSides.size(); ++i) {
    const TextIndex::Data& data = sides_[i].data();
    if (data.files.empty()) continue;
    const std::string side = kSides[i];
    put(side + ".files", 4, numbers_of(data.files));
    put(side + ".positions", 6, numbers_of(data.positions));
    put(side + ".checksum", 1, {data.checksum});
  }
  write_safetensors(path, entries, {{kFormatEntry, kFormat}, {kChecksumEntry, ""}});
}

// What cannot be used is made again: nothing is lost but time.
std::array<TextIndex, 3> CorpusIndex::kept_in(const std::filesystem::path& path) {
  std::array<TextIndex, 3> sides;
  if (path.empty()) return sides;
  try {
    const auto file = SafetensorsFile::open(path, {.want_checksum = true});
    const auto format = file.metadata().find(kFormatEntry);
    if (format == file.metadata().end() || format->second != kFormat) return sides;
    for (size_t i = 0; i < kSides.size(); ++i)
      if (file.find(std::string(kSides[i]) + ".files")) sides[i] = read_side(file, kSides[i]);
  } catch (const Error&) {
    return {};
  }
  return sides;
}

}  // namespace heed
