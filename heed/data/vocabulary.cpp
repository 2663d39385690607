#include "heed/data/vocabulary.h"

#include <algorithm>
#include <array>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"

namespace heed {
namespace {

// In the order of SpecialIds' fields.
constexpr std::array<std::string_view, SpecialIds::kCount> kSpecial = {"<pad>", "<unk>", "<s>",
                                                                       "</s>"};

bool is_special(std::string_view word) {
  return std::find(kSpecial.begin(), kSpecial.end(), word) != kSpecial.end();
}

// What would end an entry of a file, and how it stands there; the last keeps what looks like it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kInFile = {
    {{"\t", "<0x09>"}, {"\n", "<0x0A>"}, {"\r", "<0x0D>"}, {"<0x", "<0x3C>0x"}}};

std::string replaced(std::string_view text, bool for_file) {
  std::string out;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [plain, escaped] : kInFile) {
      const std::string_view from = for_file ? plain : escaped, to = for_file ? escaped : plain;
      if (!text.starts_with(from)) continue;
      out += to, text.remove_prefix(from.size()), found = true;
      break;
    }
    if (!found) out += text.front(), text.remove_prefix(1);
  }
  return out;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> entries, const std::string& what)
    : entries_(std::move(entries)) {
  std::vector<std::string> missing;
  for (const std::string_view word : kSpecial)
    if (std::find(entries_.begin(), entries_.end(), word) == entries_.end())
      missing.emplace_back(word);
  entries_.insert(entries_.begin(), missing.begin(), missing.end());

  const std::array<Id*, SpecialIds::kCount> special = {&special_.pad, &special_.unknown,
                                                       &special_.begin, &special_.end};
  ids_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto id = static_cast<Id>(i);
    const auto [at, is_new] = ids_.emplace(entries_[i], id);
    require(is_new, what, ": '", entries_[i], "' comes twice, as entries ", at->second + 1, " and ",
            id + 1);
    const auto name = std::find(kSpecial.begin(), kSpecial.end(), entries_[i]);
    if (name != kSpecial.end()) *special[static_cast<size_t>(name - kSpecial.begin())] = id;
  }
  for (const std::string_view word : kSpecial) ids_.erase(std::string(word));
}

Vocabulary Vocabulary::learn(const Counts& counts, Limits limits) {
  require(limits.size == 0 || limits.size > SpecialIds::kCount, "vocabulary: a size of ",
          limits.size, " leaves no room for words; ", SpecialIds::kCount, " entries are special");
  std::vector<std::pair<std::string_view, int64_t>> words;
  for (const auto& [word, count] : counts)
    if (count >= limits.min_count && !is_special(word)) words.emplace_back(word, count);
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (limits.size > 0)
    words.resize(std::min(words.size(), static_cast<size_t>(limits.size - SpecialIds::kCount)));
  std::vector<std::string> entries(kSpecial.begin(), kSpecial.end());
  for (const auto& [word, count] : words) entries.emplace_back(word);
  return Vocabulary(std::move(entries), "vocabulary");
}

Vocabulary Vocabulary::load(const std::filesystem::path& path) {
  std::vector<std::string> entries;
  LineReader reader(path.string());
  while (auto line = reader.next()) {
    if (const auto trouble = encoding_trouble(*line))
      fail(path.string(), ": line ", reader.position().line, ": ", *trouble,
           "; a vocabulary is text, one entry a line");
    line->resize(std::min(line->size(), line->find('\t')));
    require(!line->empty(), path.string(), ": line ", reader.position().line,
            " is empty; a vocabulary has one entry on every line");
    entries.push_back(replaced(*line, false));
  }
  require(!entries.empty(), path.string(), ": is empty; a vocabulary has one entry a line");
  return Vocabulary(std::move(entries), path.string());
}

void Vocabulary::save(const std::filesystem::path& path) const {
  std::string text;
  for (const std::string& entry : entries_) text += replaced(entry, true) + "\n";
  write_file(path, text);
}

Id Vocabulary::id(std::string_view word) const {
  const auto at = ids_.find(word);
  return at == ids_.end() ? special_.unknown : at->second;
}

const std::string& Vocabulary::operator[](Id id) const {
  require(id >= 0 && id < size(), "vocabulary: no entry ", id, "; it has ", size());
  return entries_[static_cast<size_t>(id)];
}

}  // namespace heed
