#include "heed/exchange/pieces.h"

#include <algorithm>
#include <cmath>

#include "heed/exchange/bytes.h"
#include "heed/nn/layers.h"

namespace heed {

std::shared_ptr<const PieceCutter> read_cutter(const std::filesystem::path& path) {
  read_whole(path.string());
  return load_piece_cutter(path);
}

CutterPair piece_cutters(const std::filesystem::path& folder, const ImportOptions& options) {
  namespace fs = std::filesystem;
  const auto found = [&](const char* name) -> std::optional<fs::path> {
    for (const fs::path& place : {folder / name, fs::absolute(folder).parent_path() / name})
      if (fs::is_regular_file(place)) return place;
    return std::nullopt;
  };
  std::optional<fs::path> joint;
  for (const char* name : {"sentencepiece.model", "spm.model", "joint.spm"})
    if (!joint) joint = found(name);
  std::optional<fs::path> source =
                              options.source_pieces ? options.source_pieces : found("source.spm"),
                          target =
                              options.target_pieces ? options.target_pieces : found("target.spm");
  if (!source) source = joint;
  if (!target) target = joint ? joint : source;
  if (!source) source = target;
  if (!source) return {};
  const std::shared_ptr<const PieceCutter> one = read_cutter(*source);
  return {one, *target == *source ? one : read_cutter(*target)};
}

std::string new_begin(const std::vector<std::string>& pieces) {
  std::string name = "<s>";
  while (std::ranges::find(pieces, name) != pieces.end()) name = "<" + name + ">";
  return name;
}

std::string position_named(const Array& table) {
  const int64_t rows = table.shape.at(0), size = table.shape.at(1);
  if (size % 2 == 0 && rows > 0)
    for (const char* name :
         {"sinusoidal", "sinusoidal_marian", "sinusoidal_from_one", "sinusoidal_interleaved"}) {
      const std::vector<double> wanted =
          sinusoidal_positions(rows, size, 0, Type::f64, *sinusoid_named(name)).values();
      bool same = true;
      // As far as f32 tells angles of so many turns; else the table itself is taken.
      for (size_t i = 0; same && i < wanted.size(); ++i)
        same = std::abs(wanted[i] - double(table.values[i])) < 2e-4;
      if (same) return name;
    }
  return "learned";
}

}  // namespace heed
