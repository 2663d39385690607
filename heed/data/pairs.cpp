#include "heed/data/pairs.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <future>
#include <memory>
#include <numeric>
#include <utility>

#include "heed/base/check.h"
#include "heed/data/text.h"
#include "heed/files/checksum.h"

namespace heed {

std::string name_of(const CorpusFiles& files) {
  return files.source.name() + (files.target.empty() ? "" : ", " + files.target.name());
}

std::optional<std::string> first_bad_line(const CorpusFiles& files) {
  for (const Paths& side : {files.source, files.target})
    for (const std::string& path : side)
      if (const std::optional<std::string> bad = first_bad_line(path)) return bad;
  return {};
}

PairReader::PairReader(const CorpusFiles& files, const Position& position)
    : source_(files.source, position.source) {
  if (!files.target.empty()) target_.emplace(files.target, position.target);
  if (!files.alignment.empty()) alignment_.emplace(files.alignment, position.alignment);
}

std::optional<TextPair> PairReader::next() {
  auto source = source_.next();
  if (!source) return std::nullopt;
  TextPair pair;
  pair.line = line();
  if (target_) {
    auto target = target_->next();
    if (!target) return std::nullopt;
    pair.source = std::move(*source);
    pair.target = std::move(*target);
  } else {
    const std::vector<std::string_view> columns = split_fields(*source, '\t');
    pair.torn = columns.size() < 2;
    pair.source = columns[0];
    if (!pair.torn) pair.target = columns[1];
  }
  if (alignment_) {
    auto alignment = alignment_->next();
    if (!alignment) return std::nullopt;
    pair.alignment = std::move(*alignment);
  }
  return pair;
}

void PairReader::skip(uint64_t count) {
  source_.skip(count);
  if (target_) target_->skip(count);
  if (alignment_) alignment_->skip(count);
}

TextStream texts(const CorpusFiles& files, Side side) {
  // Shared, because a std::function must be copyable.
  auto reader = std::make_shared<PairReader>(
      CorpusFiles{.source = files.source, .target = files.target, .alignment = {}});
  return [reader, side, held = std::optional<std::string>()]() mutable {
    if (held) return std::exchange(held, std::nullopt);
    auto pair = reader->next();
    if (!pair) return std::optional<std::string>();
    if (side == Side::both) held = std::move(pair->target);
    return std::optional(std::move(side == Side::target ? pair->target : pair->source));
  };
}

// ---- the index

namespace {

std::array<const Paths*, 3> sides_of(const CorpusFiles& files) {
  return {&files.source, &files.target, &files.alignment};
}

// Before any is read through.
void want_as_many_files(const CorpusFiles& files) {
  const auto want = [&](const Paths& here, const char* what) {
    require(here.empty() || here.size() == files.source.size(), files.source.name(), " and ",
            here.name(), ": ", files.source.size(), " and ", here.size(), " files; each wants its ",
            what, " beside it");
  };
  want(files.target, "translation");
  if (files.alignment.size() != 1) want(files.alignment, "links");  // one: of all lines
}

// Nothing tells files of one length from others more surely than each of them.
void want_same_lengths(const CorpusFiles& files, const std::array<TextIndex, 3>& sides) {
  for (size_t side = 1; side < sides.size(); ++side) {
    const Paths& here = *sides_of(files)[side];
    for (size_t f = 0; f < here.size() && here.size() > 1; ++f) {
      const uint64_t a = sides[0].data().files[f].lines, b = sides[side].data().files[f].lines;
      require(a == b, files.source[f], " has ", grouped(int64_t(a)), " lines and ", here[f], " ",
              grouped(int64_t(b)),
              ": they are no translations of each other line by line; mend the files");
    }
  }
}

}  // namespace

CorpusIndex::CorpusIndex(CorpusFiles files, Surplus surplus, const std::filesystem::path& kept)
    : files_(std::move(files)) {
  require(!files_.source.empty(), "corpus: no files were given");
  want_as_many_files(files_);
  const std::array<const Paths*, 3> paths = sides_of(files_);
  const std::array<TextIndex, 3> known = kept_in(kept);
  // Sides are read at the same time.
  std::array<std::future<TextIndex>, 3> coming;
  for (size_t i = 0; i < paths.size(); ++i) {
    for (const std::string& path : *paths[i]) want_file(path);
    if (known[i].is_of(*paths[i])) {
      sides_[i] = known[i];
      continue;
    }
    was_kept_ = false;
    coming[i] = std::async([p = paths[i]] { return TextIndex(*p); });
  }
  for (size_t i = 0; i < paths.size(); ++i)
    if (coming[i].valid()) sides_[i] = coming[i].get();
  struct Counted {
    std::string name;
    int64_t lines;
  };
  std::vector<Counted> counted;
  for (size_t i = 0; i < paths.size(); ++i)
    if (!paths[i]->empty())
      counted.push_back({paths[i]->name(), static_cast<int64_t>(sides_[i].lines())});
  want_same_lengths(files_, sides_);
  const auto by_lines = [](const Counted& a, const Counted& b) { return a.lines < b.lines; };
  const auto [fewest, most] = std::minmax_element(counted.begin(), counted.end(), by_lines);
  require(most->lines > 0, name_of(files_), ": empty; one sentence a line was wanted");
  lines_ = fewest->lines, surplus_ = most->lines - fewest->lines;
  require(surplus_ == 0 || surplus == Surplus::cut, most->name, " has ", grouped(most->lines),
          " lines and ", fewest->name, " ", grouped(fewest->lines),
          ": they are no translations of each other line by line; mend the files, or have the ",
          "surplus cut (--cut)");
  require(lines_ > 0, fewest->name, ": empty; one sentence a line was wanted");
}

std::shared_ptr<const CorpusIndex> CorpusIndex::without_links() const {
  auto out = std::make_shared<CorpusIndex>(*this);
  out->files_.alignment = {}, out->sides_[2] = {};
  return out;
}

bool CorpusIndex::anywhere() const { return std::ranges::all_of(sides_, &TextIndex::anywhere); }

std::string CorpusIndex::checksum() const {
  std::array<uint64_t, 3> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = sides_[i].data().checksum;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(xxh64(std::as_bytes(std::span(all)))));
  return digits;
}

PairReader CorpusIndex::at(int64_t line) const {
  const auto before = static_cast<uint64_t>(line);
  PairReader reader(files_, {.source = sides_[0].before(before),
                             .target = sides_[1].before(before),
                             .alignment = sides_[2].before(before)});
  reader.skip(before - static_cast<uint64_t>(reader.line()));
  return reader;
}

void CorpusIndex::go(PairReader& reader, int64_t line) const {
  const int64_t ahead = line - reader.line();
  // To jump costs as much as to read some lines; and what cannot be gone to at once is read once.
  const bool near = ahead >= 0 && (ahead < int64_t{TextIndex::kEvery} || !anywhere());
  if (near)
    reader.skip(static_cast<uint64_t>(ahead));
  else
    reader = at(line);
}

int64_t CorpusIndex::look(int64_t most, const std::function<void(const TextPair&)>& show) const {
  int64_t shown = 0;
  PairReader reader = at(0);
  for (const LineRun& run : here_and_there(lines_, most))
    for (int64_t i = 0; i < run.count; ++i) {
      if (i == 0) go(reader, run.first);
      const std::optional<TextPair> pair = reader.next();
      if (!pair) fail(name_of(files_), ": has become shorter while it was being read");
      show(*pair);
      ++shown;
    }
  return shown;
}

std::vector<LineRun> here_and_there(int64_t lines, int64_t most, int64_t each) {
  int64_t every = std::max<int64_t>(1, lines / std::max<int64_t>(1, most));
  while (std::gcd(every, each) > 1) ++every;
  // What lies between two lines is passed over quickly, but not thousands of times.
  constexpr int64_t kNear = 64, kRun = 100;
  const int64_t run = every <= kNear ? 1 : kRun;
  std::vector<LineRun> runs;
  for (int64_t first = 0; first < lines && std::ssize(runs) * run < most; first += every * run)
    runs.push_back({first, std::min(run, lines - first)});
  return runs;
}

}  // namespace heed
