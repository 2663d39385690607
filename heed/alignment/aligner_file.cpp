// An aligner's file: safetensors, with the pieces of each language as text, a line each, and the
// counts (docs/formats.md). What follows from these is worked out again.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "heed/alignment/aligner.h"
#include "heed/alignment/tables.h"
#include "heed/base/check.h"
#include "heed/files/safetensors.h"

namespace heed {
namespace {

constexpr const char* kFormatEntry = "heed.aligner";
constexpr const char* kFormat = "1";

template <class T>
constexpr StoredDtype kDtype = std::is_same_v<T, char>       ? StoredDtype::U8
                               : std::is_same_v<T, uint32_t> ? StoredDtype::U32
                                                             : StoredDtype::F64;

template <class Values>
TensorEntry entry(std::string name, const Values& values) {
  using T = typename Values::value_type;
  return {std::move(name),
          kDtype<T>,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

std::string all_pieces(const PieceIds& ids) {
  std::string text;
  for (uint32_t id = 1; id < ids.size(); ++id) text += ids.piece(id) + '\n';
  return text;
}

class Reading {
 public:
  explicit Reading(const std::filesystem::path& path)
      : path_(path.string()), file_(SafetensorsFile::open(path, {.want_checksum = true})) {
    const auto format = file_.metadata().find(kFormatEntry);
    require(format != file_.metadata().end(), path_,
            ": not an aligner's file; 'heed align --save' makes one");
    require(format->second == kFormat, path_, ": an aligner of format ", format->second,
            "; this heed reads format ", kFormat);
  }

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const TensorEntry& found = file_.at(name);
    holds(found.dtype == kDtype<T> && found.shape.size() == 1, name + " is not as it should be");
    std::vector<T> out(found.bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), found.bytes.data(), found.bytes.size());
    return out;
  }
  template <class T>
  std::vector<T> values(const std::string& name, size_t size) const {
    std::vector<T> out = values<T>(name);
    holds(out.size() == size, name + " has not as many values as there are words");
    return out;
  }
  uint32_t number(const char* name, uint32_t most) const {
    const auto found = file_.metadata().find(name);
    uint32_t value = 0;
    const bool read =
        found != file_.metadata().end() &&
        std::from_chars(found->second.data(), found->second.data() + found->second.size(), value)
                .ec == std::errc();
    holds(read && value <= most, std::string(name) + " is not as it should be");
    return value;
  }
  void holds(bool good, const std::string& what) const { require(good, path_, ": ", what); }

 private:
  std::string path_;
  SafetensorsFile file_;
};

void read_side(const Reading& file, const std::string& name, PieceIds& ids, SideTables& side) {
  const std::vector<char> text = file.values<char>(name + ".pieces");
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find(at, text.end(), '\n');
    file.holds(end != text.end() && end != at, name + ".pieces has a line that is none");
    const uint32_t next = ids.size();
    file.holds(ids.add(std::string_view(&*at, static_cast<size_t>(end - at))) == next,
               name + ".pieces has a piece twice");
    at = end + 1;
  }
  side.frequency = file.values<uint32_t>(name + ".frequency", ids.size());
  side.empty = file.values<uint32_t>(name + ".empty", ids.size());
  side.fertility = file.values<uint32_t>(name + ".fertility", ids.size() * kFertilities);
  side.jump_counts = file.values<double>(name + ".jumps", kJumps);
  for (const double count : side.jump_counts)
    file.holds(std::isfinite(count) && count >= 0, name + ".jumps has a count that is none");
}

}  // namespace

void WordAligner::save(const std::filesystem::path& file) const {
  const AlignmentTables& t = *tables_;
  std::vector<const PairCounts::Slot*> pairs;
  for (const PairCounts::Slot& slot : t.pairs.slots())
    if (slot.count > 0) pairs.push_back(&slot);
  std::ranges::sort(pairs, {}, &PairCounts::Slot::key);
  std::vector<uint32_t> sources, targets, counts;
  for (const PairCounts::Slot* slot : pairs) {
    sources.push_back(slot->source());
    targets.push_back(slot->target());
    counts.push_back(slot->count);
  }
  const std::string source_pieces = all_pieces(t.source_ids);
  const std::string target_pieces = all_pieces(t.target_ids);
  const TensorEntry entries[] = {entry("source.pieces", source_pieces),
                                 entry("target.pieces", target_pieces),
                                 entry("source.frequency", t.source.frequency),
                                 entry("target.frequency", t.target.frequency),
                                 entry("source.empty", t.source.empty),
                                 entry("target.empty", t.target.empty),
                                 entry("source.fertility", t.source.fertility),
                                 entry("target.fertility", t.target.fertility),
                                 entry("source.jumps", t.source.jump_counts),
                                 entry("target.jumps", t.target.jump_counts),
                                 entry("pairs.source", sources),
                                 entry("pairs.target", targets),
                                 entry("pairs.count", counts)};
  write_safetensors(file, entries,
                    {{kFormatEntry, kFormat},
                     {"lower_case", lower_case_ ? "1" : "0"},
                     {"stage", std::to_string(static_cast<int>(t.stage))},
                     {"unit", std::to_string(t.unit)},
                     {kChecksumEntry, ""}});
}

WordAligner WordAligner::load(const std::filesystem::path& path) {
  const Reading file(path);
  WordAligner out;
  AlignmentTables& t = *out.tables_;
  out.lower_case_ = file.number("lower_case", 1) == 1;
  t.unit = file.number("unit", 1 << 14);
  t.stage = static_cast<AlignmentStage>(
      file.number("stage", static_cast<uint32_t>(AlignmentStage::fertility)));
  file.holds(t.unit > 0 && t.stage != AlignmentStage::start, "has learnt nothing");
  read_side(file, "source", t.source_ids, t.source);
  read_side(file, "target", t.target_ids, t.target);
  const auto sources = file.values<uint32_t>("pairs.source");
  const auto targets = file.values<uint32_t>("pairs.target", sources.size());
  const auto counts = file.values<uint32_t>("pairs.count", sources.size());
  t.pairs.reserve(sources.size());
  t.stems.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint32_t e = sources[i], f = targets[i];
    file.holds(e > 0 && f > 0 && e < t.source_ids.size() && f < t.target_ids.size() &&
                   (i == 0 ||
                    PairCounts::key_of(sources[i - 1], targets[i - 1]) < PairCounts::key_of(e, f)),
               "pairs are not as they should be");
    t.pairs.count(e, f, counts[i]);
    t.stems.count(t.source_ids.stem(e), t.target_ids.stem(f), counts[i]);
  }
  t.source.jumps = JumpWeights(t.source.jump_counts);
  t.target.jumps = JumpWeights(t.target.jump_counts);
  t.sum_up();
  return out;
}

}  // namespace heed
