#include "heed/translation/shortlist.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/files/atomic_file.h"

namespace heed {
namespace {

constexpr uint64_t kMagic = 0xF11A48D5013417F5;
constexpr size_t kHeader = 48;

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

}  // namespace

Shortlist::Shortlist(std::string_view bytes, const std::string& what) {
  require(bytes.size() >= kHeader && number_at<uint64_t>(bytes, 0) == kMagic, what,
          ": not a binary shortlist of Marian's");
  first_ = number_at<uint64_t>(bytes, 16);
  const auto offsets = number_at<uint64_t>(bytes, 32), entries = number_at<uint64_t>(bytes, 40);
  require(offsets > 0 && offsets <= bytes.size() / 8 && entries <= bytes.size() / 4 &&
              bytes.size() == kHeader + 8 * offsets + 4 * entries,
          what, ": a shortlist of ", offsets, " offsets and ", entries, " entries in ",
          bytes.size(), " bytes; it is damaged");
  for (uint64_t i = 0; i < offsets; ++i) {
    offsets_.push_back(number_at<uint64_t>(bytes, kHeader + 8 * i));
    require(offsets_[i] <= entries && (i == 0 || offsets_[i - 1] <= offsets_[i]), what, ": word ",
            i, " of the shortlist has no entries; it is damaged");
  }
  constexpr uint64_t kMost = 1 << 30;
  require(first_ <= kMost, what, ": a shortlist that always allows ", first_, " words");
  largest_ = static_cast<Id>(first_ > 0 ? first_ - 1 : 0);
  for (uint64_t i = 0; i < entries; ++i) {
    const auto id = number_at<uint32_t>(bytes, kHeader + 8 * offsets + 4 * i);
    require(id <= kMost, what, ": the shortlist has id ", id);
    ids_.push_back(static_cast<Id>(id));
    largest_ = std::max(largest_, ids_.back());
  }
}

Shortlist::Shortlist(const std::vector<std::vector<Id>>& targets, const std::vector<Id>& always)
    : offsets_{0} {
  for (const std::vector<Id>& given : targets) {
    std::set<Id> own(given.begin(), given.end());
    own.insert(always.begin(), always.end());
    ids_.insert(ids_.end(), own.begin(), own.end());
    offsets_.push_back(ids_.size());
  }
  for (const Id id : ids_) largest_ = std::max(largest_, id);
}

std::span<const Id> Shortlist::entries(size_t word) const {
  return std::span(ids_).subspan(offsets_[word], offsets_[word + 1] - offsets_[word]);
}

std::vector<Id> Shortlist::of(std::span<const Id> source) const {
  std::vector<Id> out(first_);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Id>(i);
  for (const Id w : source) {
    if (w < 0 || w >= source_words()) continue;  // such as what was added to begin with
    const std::span<const Id> own = entries(static_cast<size_t>(w));
    out.insert(out.end(), own.begin(), own.end());
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

std::string Shortlist::bytes() const {
  std::string out;
  const auto put = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  size_t best = 0;
  for (size_t w = 0; std::cmp_less(w, source_words()); ++w)
    best = std::max(best, entries(w).size());
  for (const uint64_t number : {kMagic, uint64_t{0}, first_, uint64_t{best},
                                uint64_t{offsets_.size()}, uint64_t{ids_.size()}})
    put(number);
  for (const uint64_t offset : offsets_) put(offset);
  for (const Id id : ids_) put(static_cast<uint32_t>(id));
  return out;
}

// ---- making one

namespace {

// How often a source piece goes with each target piece, or how probably.
using Counts = std::vector<std::map<Id, double>>;  // by source piece

// The `most` keys of the largest numbers; of equals the smaller.
std::vector<Id> largest_of(const std::map<Id, double>& numbers, int64_t most) {
  std::vector<std::pair<double, Id>> order;
  for (const auto& [id, number] : numbers) order.emplace_back(-number, id);
  const auto count = std::min<size_t>(order.size(), static_cast<size_t>(most));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<Id> out;
  for (size_t i = 0; i < count; ++i) out.push_back(order[i].second);
  return out;
}

// `frequent`: how often, or how probably, each target piece is said.
Shortlist made(const TokenizerPair& tokenizers, const Counts& counts,
               const std::map<Id, double>& frequent, const ShortlistOptions& options) {
  const Tokenizer &source = *tokenizers.source, &target = *tokenizers.target;
  std::vector<Id> always = largest_of(frequent, options.always);
  always.push_back(target.special().end);
  if (!target.writes_all()) always.push_back(target.special().unknown);
  std::map<std::string, Id> known;
  for (Id id = 0; id < target.size(); ++id) known.emplace(target.piece(id), id);
  std::vector<std::vector<Id>> targets;
  for (Id id = 0; id < source.size(); ++id) {
    std::vector<Id>& own =
        targets.emplace_back(largest_of(counts[static_cast<size_t>(id)], options.best));
    if (const auto same = known.find(source.piece(id)); same != known.end())
      own.push_back(same->second);
  }
  // What every source has, its end or its begin, allows what is always allowed; where one has
  // neither, every piece does.
  const std::vector<Id> everywhere = framed({}, source.special());
  if (everywhere.empty()) return Shortlist(targets, always);
  std::vector<Id>& end = targets.at(static_cast<size_t>(everywhere.back()));
  end.insert(end.end(), always.begin(), always.end());
  return Shortlist(targets, {});
}

// Pieces as words that an aligner takes as they are: two characters for private use each, so that
// none is punctuation, and none shares a stem with another.
std::string as_words(std::span<const Id> pieces) {
  constexpr char32_t kFirst = 0xE000;
  constexpr Id kCharacters = 6400;
  std::u32string out;
  for (const Id id : pieces) {
    if (!out.empty()) out += U' ';
    out += kFirst + static_cast<char32_t>(id / kCharacters);
    out += kFirst + static_cast<char32_t>(id % kCharacters);
  }
  return encode_utf8(out);
}

struct Side {
  std::vector<std::vector<Id>> pieces;  // by line
  std::vector<std::string> words;
};
Side side_of(const Tokenizer& tokenizer, std::span<const std::string> lines) {
  Side out;
  for (const std::string& line : lines) {
    out.pieces.push_back(tokenizer.encode(line).ids);
    out.words.push_back(as_words(out.pieces.back()));
  }
  return out;
}

}  // namespace

Shortlist learn_shortlist(const TokenizerPair& tokenizers, std::span<const std::string> sources,
                          std::span<const std::string> targets, const ShortlistOptions& options) {
  const Side source = side_of(*tokenizers.source, sources),
             target = side_of(*tokenizers.target, targets);
  // What either direction links: of a word that has become several pieces the other finds one.
  const std::vector<Links> links =
      WordAligner::learn(
          source.words, target.words,
          {.lower_case = false, .combine = Combine::unite, .progress = options.progress})
          .links;
  std::map<Id, double> frequent;
  Counts counts(static_cast<size_t>(tokenizers.source->size()));
  for (size_t i = 0; i < links.size(); ++i) {
    for (const Id id : target.pieces[i]) ++frequent[id];
    for (const Link& link : links[i])
      ++counts[static_cast<size_t>(source.pieces[i][static_cast<size_t>(link.source)])]
              [target.pieces[i][static_cast<size_t>(link.target)]];
  }
  return made(tokenizers, counts, frequent, options);
}

namespace {

Shortlist of_lexicon(std::string_view text, const std::string& name,
                     const TokenizerPair& tokenizers, const ShortlistOptions& options) {
  Counts counts(static_cast<size_t>(tokenizers.source->size()));
  std::map<Id, double> frequent;
  require(!text.empty(), name, ": is empty; a shortlist was wanted");
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    double probability = 0;
    const char* const end = line.data() + line.size();
    require(is_utf8(line) && first != line.npos && second != line.npos &&
                std::from_chars(line.data() + second + 1, end, probability).ptr == end &&
                second + 1 < line.size() && probability >= 0 && std::isfinite(probability),
            name, ": line ", number,
            ": neither a binary shortlist of Marian's nor a lexicon; "
            "wanted: source word, target word and probability, tabs between");
    const std::vector<Id> to =
        tokenizers.target->encode(line.substr(first + 1, second - first - 1)).ids;
    for (const Id id : to) frequent[id] += probability;
    for (const Id from : tokenizers.source->encode(line.substr(0, first)).ids)
      for (const Id id : to) counts[static_cast<size_t>(from)][id] += probability;
  }
  return made(tokenizers, counts, frequent, options);
}

}  // namespace

Shortlist read_shortlist(const std::filesystem::path& file, const TokenizerPair& tokenizers,
                         const ShortlistOptions& options) {
  const std::optional<std::string> bytes = read_file(file);
  require(bytes.has_value(), file.string(), ": there is no such file");
  if (bytes->size() < sizeof kMagic || number_at<uint64_t>(*bytes, 0) != kMagic)
    return of_lexicon(*bytes, file.string(), tokenizers, options);
  Shortlist list(*bytes, file.string());
  require(list.largest() < tokenizers.target->size(), file.string(), ": has word ", list.largest(),
          ", the vocabulary has ", tokenizers.target->size());
  return list;
}

}  // namespace heed
