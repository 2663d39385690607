#include "heed/data/piece_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/data/opus_text.h"
#include "heed/data/text.h"
#include "heed/files/atomic_file.h"

namespace heed {
namespace {

constexpr int kFormat = 1;
constexpr std::string_view kSpace = "▁";

// The byte that "<0x41>" stands for.
std::optional<char> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return {};
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = digit(piece[3]), low = digit(piece[4]);
  return high < 0 || low < 0 ? std::nullopt : std::optional(static_cast<char>(16 * high + low));
}

bool is_language(std::string_view piece) {
  return piece.size() > 4 && piece.starts_with(">>") && piece.ends_with("<<");
}

class Table : public Tokenizer {
 public:
  Table(PieceTable table, const std::string& what) : table_(std::move(table)) {
    const SpecialIds& s = table_.special;
    for (const Id id : {s.pad, s.unknown, s.begin, s.end})
      require(id >= 0 && id < size(), what, ": special piece ", id, " of ", size());
    for (Id id = 0; id < size(); ++id) {
      const std::string& piece = table_.pieces[static_cast<size_t>(id)];
      require(is_utf8(piece), what, ": piece ", id, " is not UTF-8");
      if (is_language(piece)) languages_.push_back(piece);
      if (id != s.pad && id != s.begin && id != s.end) ids_.emplace(piece, id);
    }
    for (const std::string& piece : table_.spelt) {
      const auto found = std::ranges::find(table_.pieces, piece);
      require(!piece.empty() && found != table_.pieces.end(), what, ": has no piece '", piece,
              "' for a text to spell");
      spelt_.emplace(piece, static_cast<Id>(found - table_.pieces.begin()));
    }
    writes_all_ = table_.cutter != nullptr && ids_.contains("<0x00>") && ids_.contains("<0xFF>");
  }

  // The kind of what it does to a text: words, or subwords that heed does not learn.
  std::string_view kind() const override { return table_.cutter ? "sentencepiece" : "words"; }

  Sentence encode(std::string_view text) const override {
    Sentence sentence{.text = std::string(text), .ids = {}, .word = {}};
    std::vector<size_t> offsets;
    const auto add = [&](Id id, size_t offset) {
      sentence.ids.push_back(id);
      offsets.push_back(std::min(offset, text.size()));
    };
    SpeltPlaces places(spelt_.size());
    for (size_t from = 0;;) {
      const Spelt next = spelt_after(text, from, places);
      encode_part(text.substr(from, next.at - from), from, add);
      if (next.at == text.size()) break;
      add(next.id, next.at);
      from = next.at + next.size;
    }
    sentence.word = words_at(text, offsets);
    return sentence;
  }

  Sentence decode(std::span<const Id> ids) const override {
    Sentence sentence{
        .text = {}, .ids = {ids.begin(), ids.end()}, .word = std::vector<int32_t>(ids.size(), -1)};
    std::vector<size_t> shown, offsets;
    std::string bytes;  // of pieces that are bytes
    const auto write_bytes = [&] {
      while (!bytes.empty()) {
        const size_t whole = character_bytes(bytes), n = whole ? whole : ill_formed_bytes(bytes);
        offsets.insert(offsets.end(), n, sentence.text.size());
        sentence.text += whole ? bytes.substr(0, n) : "\uFFFD";
        bytes.erase(0, n);
      }
    };
    const SpecialIds& s = table_.special;
    bool first = true;
    for (size_t i = 0; i < ids.size(); ++i) {
      check(ids[i]);
      if (ids[i] == s.pad || ids[i] == s.begin || ids[i] == s.end) continue;
      shown.push_back(i);
      std::string text = table_.pieces[static_cast<size_t>(ids[i])];
      if (table_.cutter) {
        if (const auto byte = writes_all_ ? byte_of(text) : std::nullopt) {
          bytes += *byte, first = false;
          continue;
        }
        write_bytes();
        if (ids[i] == s.unknown) text = "⁇";
        for (size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos;)
          text.replace(at, kSpace.size(), " ");
        const bool strips = table_.cutter->exact() ? first : sentence.text.empty();
        if (strips && text.starts_with(' ')) text.erase(0, 1);
      } else if (!sentence.text.empty()) {
        sentence.text += ' ';
      }
      first = false;
      offsets.push_back(sentence.text.size());
      sentence.text += text;
    }
    write_bytes();
    if (table_.cutter && !table_.cutter->exact())
      while (sentence.text.ends_with(' ')) sentence.text.pop_back();
    for (size_t& offset : offsets) offset = std::min(offset, sentence.text.size());
    const std::vector<int32_t> words = words_at(sentence.text, offsets);
    for (size_t i = 0; i < std::min(shown.size(), words.size()); ++i)
      sentence.word[shown[i]] = words[i];
    return sentence;
  }

  std::string piece(Id id) const override {
    check(id);
    const SpecialIds& s = table_.special;
    if (id == s.end) return "</s>";
    if (id == s.unknown) return "<unk>";
    return table_.pieces[static_cast<size_t>(id)];
  }

  Id size() const override { return static_cast<Id>(table_.pieces.size()); }
  bool writes_all() const override { return writes_all_; }
  SpecialIds special() const override { return table_.special; }
  std::optional<Id> newline() const override { return std::nullopt; }
  std::shared_ptr<const PieceSampler> sampler(double) const override { return nullptr; }

  void save(const std::filesystem::path& folder, const std::string& name) const override {
    const SpecialIds& s = table_.special;
    const nlohmann::ordered_json json{{"heed.pieces", kFormat},
                                      {"cut", table_.cutter ? "sentencepiece" : "spaces"},
                                      {"pad", s.pad},
                                      {"unknown", s.unknown},
                                      {"begin", s.begin},
                                      {"end", s.end},
                                      {"source_begin", s.source_begin},
                                      {"source_end", s.source_end},
                                      {"opus_text", table_.opus_text},
                                      {"spelt", table_.spelt},
                                      {"pieces", table_.pieces}};
    write_file(folder / (name + kPiecesSuffix), json.dump(0));
    if (table_.cutter) write_file(folder / (name + ".spm"), table_.cutter->file());
  }

  const PieceTable& table() const { return table_; }

 private:
  // Where the text spells a piece next, or its end.
  struct Spelt {
    size_t at, size;
    Id id;
  };
  // Where it spells each of them next, as far as they were looked for: a text is read once.
  using SpeltPlaces = std::vector<std::optional<size_t>>;
  Spelt spelt_after(std::string_view text, size_t from, SpeltPlaces& places) const {
    Spelt next{text.size(), 0, 0};
    size_t number = 0;
    for (const auto& [piece, id] : spelt_) {
      std::optional<size_t>& at = places[number++];
      if (!at || *at < from) at = text.find(piece, from);
      if (*at < next.at || (*at == next.at && piece.size() > next.size))
        next = {*at, piece.size(), id};
    }
    return next;
  }

  // A text that stands `before` bytes from the beginning, without pieces that it spells.
  template <class Add>
  void encode_part(std::string_view text, size_t before, const Add& add) const {
    const auto look_up = [&](const std::string& piece, size_t offset) {
      const auto found = ids_.find(piece);
      add(found == ids_.end() ? table_.special.unknown : found->second, before + offset);
    };
    size_t from = 0;
    if (table_.cutter && text.starts_with(">>"))
      if (const size_t at = text.find("<<"); at != std::string_view::npos) {
        const std::string code(text.substr(0, at + 2));
        require(languages_.empty() || ids_.contains(code),
                "tokenizer: ", unknown_name("target language", code, languages_));
        look_up(code, 0);
        from = at + 2;
      }
    if (table_.cutter && table_.opus_text) {
      const PlainText plain = opus_text(text.substr(from));
      for (PieceCutter::Piece& piece : table_.cutter->cut(plain.text))
        look_up(piece.text, from + plain.from.at(std::min(piece.offset, plain.text.size())));
    } else if (table_.cutter) {
      for (PieceCutter::Piece& piece : table_.cutter->cut(text.substr(from)))
        look_up(piece.text, from + piece.offset);
    } else {
      for (const std::string_view word : split_words(text))
        look_up(std::string(word), static_cast<size_t>(word.data() - text.data()));
    }
  }

  void check(Id id) const {
    require(id >= 0 && id < size(), "tokenizer: no piece ", id, "; it has ", size());
  }

  PieceTable table_;
  std::unordered_map<std::string, Id> ids_;  // without pad, begin and end
  std::unordered_map<std::string, Id> spelt_;
  std::vector<std::string> languages_;
  bool writes_all_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> piece_table(PieceTable table, const std::string& what) {
  return std::make_shared<Table>(std::move(table), what);
}

std::shared_ptr<const Tokenizer> load_piece_table(const std::filesystem::path& path) {
  const std::string what = path.string();
  const std::optional<std::string> text = read_file(path);
  require(text.has_value(), what, ": there is no such file of pieces");
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto wanted = [&](const char* key, auto is) -> const nlohmann::json& {
    const auto found = json.find(key);
    require(found != json.end() && is(*found), what, ": not a file of pieces: '", key,
            "' is missing, or not what it should be");
    return *found;
  };
  const auto is_number = [](const nlohmann::json& j) { return j.is_number_integer(); };
  const auto is_bool = [](const nlohmann::json& j) { return j.is_boolean(); };
  require(json.is_object(), what, ": not a JSON object");
  require(wanted("heed.pieces", is_number) == kFormat, what, ": another format of pieces");
  PieceTable table;
  const auto id = [&](const char* key) {
    const auto number = wanted(key, is_number).get<int64_t>();
    require(number >= 0 && number < (int64_t{1} << 31), what, ": '", key, "' cannot be ", number);
    return static_cast<Id>(number);
  };
  table.special = {.pad = id("pad"),
                   .unknown = id("unknown"),
                   .begin = id("begin"),
                   .end = id("end"),
                   .source_begin = wanted("source_begin", is_bool).get<bool>(),
                   .source_end = wanted("source_end", is_bool).get<bool>()};
  for (const auto& piece : wanted("pieces", [](const nlohmann::json& j) { return j.is_array(); })) {
    require(piece.is_string(), what, ": piece ", table.pieces.size(), " is not a text");
    table.pieces.push_back(piece.get<std::string>());
  }
  table.opus_text = json.contains("opus_text") && wanted("opus_text", is_bool).get<bool>();
  if (json.contains("spelt"))
    for (const auto& piece :
         wanted("spelt", [](const nlohmann::json& j) { return j.is_array(); })) {
      require(piece.is_string(), what, ": 'spelt' has ", piece.dump(), ", not a text");
      table.spelt.push_back(piece.get<std::string>());
    }
  const auto cut = wanted("cut", [](const nlohmann::json& j) { return j.is_string(); });
  require(cut == "spaces" || cut == "sentencepiece", what, ": 'cut' cannot be ", cut.dump());
  if (cut == "sentencepiece")
    table.cutter = load_piece_cutter(std::filesystem::path(path).replace_extension(".spm"));
  return piece_table(std::move(table), what);
}

const PieceTable* as_piece_table(const Tokenizer& tokenizer) {
  const auto* const table = dynamic_cast<const Table*>(&tokenizer);
  return table ? &table->table() : nullptr;
}

}  // namespace heed
