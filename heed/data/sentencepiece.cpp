#include "heed/data/sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "heed/base/check.h"
#include "heed/base/random.h"
#include "heed/base/unicode.h"
#include "heed/data/sentencepiece_file.h"
#include "heed/data/text.h"
#include "heed/data/unigram_cut.h"
#include "heed/files/atomic_file.h"

namespace heed {
namespace {

namespace spm = sentencepiece;

constexpr std::string_view kSpace = "▁";  // U+2581, the library's sign for a space

// Only what ends in a Status is an error for us; the library's own lines stay off stderr.
constexpr const char* kLogOnlyErrors = "2";

// The library's words without its file, line and condition:
// "Internal: ./src/x.cc(660) [(a) == (b)] Vocabulary size ..." -> "Vocabulary size ...".
std::string words_of(const spm::util::Status& status) {
  const std::string message = status.ToString();
  const size_t bracket = message.rfind("] ");
  if (bracket == std::string::npos) return message;
  const std::string words = message.substr(bracket + 2);
  return words.find_first_not_of(" \n") == std::string::npos ? message : words;
}

// The same of learning; of a size that is too small, in our words:
// "Vocabulary size is smaller than required_chars. 20 vs 36. Increase vocab_size or ...".
bool has_too_many_characters(const spm::util::Status& status) {
  return !status.ok() && words_of(status).find("required_chars") != std::string::npos;
}
std::string why_not_learnt(const spm::util::Status& status) {
  const std::string words = words_of(status);
  const size_t vs = words.find(" vs ");
  if (!has_too_many_characters(status) || vs == std::string::npos) return words;
  const int64_t needed = std::strtoll(words.c_str() + vs + 4, nullptr, 10) - kBytePieces;
  return "its characters and special entries alone are " + std::to_string(needed) +
         "; want a larger vocabulary";
}

std::string byte_piece(size_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

// The byte of such a piece.
char byte_named(const std::string& piece) {
  return static_cast<char>(std::strtol(piece.c_str() + std::strlen("<0x"), nullptr, 16));
}

// How many bytes at the beginning of `text` the library would take for something else, so that they
// are written as bytes: its sign for a space, control characters (a tab sets its words apart), and
// the first of what is spelled like the newline's piece. Of most text 0.
size_t reserved_bytes(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x20 || text.starts_with(kNewline)) return 1;
  return text.starts_with(kSpace) ? kSpace.size() : 0;
}

class SentencePiece : public Tokenizer, public PieceCutter {
 public:
  SentencePiece(std::string model, const std::string& what)
      : model_(std::move(model)), facts_(facts_of(model_)) {
    try {
      const spm::util::Status status =
          processor_.LoadFromSerializedProto(facts_.exact ? without_prefix(model_) : model_);
      if (!status.ok()) fail(what, ": is not a SentencePiece model: ", words_of(status));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // of what it finds pieces with: an empty one, say
      fail(what, ": is not a SentencePiece model: ", error.what());
    }
    size_ = static_cast<Id>(processor_.GetPieceSize());
    for (size_t byte = 0; facts_.exact && byte < byte_ids_.size(); ++byte) {
      byte_ids_[byte] = static_cast<Id>(processor_.PieceToId(byte_piece(byte)));
      bytes_[byte_ids_[byte]] = static_cast<char>(byte);
    }
    const auto or_new = [&](int id) { return id >= 0 ? static_cast<Id>(id) : size_++; };
    special_ = {.pad = or_new(processor_.pad_id()),
                .unknown = or_new(processor_.unk_id()),
                .begin = or_new(processor_.bos_id()),
                .end = or_new(processor_.eos_id())};
    if (facts_.kind == "unigram" && !facts_.exact && !facts_.user_defined) {
      const std::vector<ScoredPiece> pieces = scored_pieces(model_);
      require(std::ssize(pieces) == processor_.GetPieceSize(), what, ": its file has ",
              pieces.size(), " pieces where the library has ", processor_.GetPieceSize(),
              "; it is damaged, or no SentencePiece model");
      best_.emplace(pieces);
    }
    const int line_end = processor_.PieceToId(kNewline);
    if (!processor_.IsUnknown(line_end)) newline_ = static_cast<Id>(line_end);
  }

  Sentence encode(std::string_view text) const override {
    Placed out;
    if (newline_) {
      for (const std::string_view line : split_fields(text, '\n')) {
        const auto first = static_cast<size_t>(line.data() - text.data());
        if (first > 0) out.add(*newline_, first - 1, kNewline);
        encode_line(line, first, out);
      }
    } else {
      encode_line(text, 0, out);
    }
    return {.text = std::string(text), .ids = out.ids, .word = words_at(text, out.offsets)};
  }

  std::vector<Piece> cut(std::string_view text) const override {
    Placed out;
    out.texts.emplace();
    encode_line(text, 0, out);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < out.ids.size(); ++i)
      pieces.push_back({std::move((*out.texts)[i]), out.offsets[i]});
    return pieces;
  }
  bool exact() const override { return facts_.exact; }
  const std::string& file() const override { return model_; }

  Sentence decode(std::span<const Id> ids) const override {
    Sentence sentence{
        .text = {}, .ids = {ids.begin(), ids.end()}, .word = std::vector<int32_t>(ids.size(), -1)};
    std::vector<size_t> shown;  // which of the ids have text
    std::vector<size_t> offsets;
    std::vector<int> line;
    const auto decode_line = [&] {
      facts_.exact ? decode_exactly(line, sentence.text, offsets)
                   : decode_by_library(line, sentence.text, offsets);
      line.clear();
    };
    for (size_t i = 0; i < ids.size(); ++i) {
      check(ids[i]);
      if (ids[i] == special_.pad || ids[i] == special_.begin || ids[i] == special_.end) continue;
      shown.push_back(i);
      if (newline_ != ids[i]) {
        line.push_back(ids[i]);
        continue;
      }
      decode_line();
      offsets.push_back(sentence.text.size());
      sentence.text += '\n';
    }
    decode_line();
    const std::vector<int32_t> words = words_at(sentence.text, offsets);
    for (size_t i = 0; i < std::min(shown.size(), words.size()); ++i)
      sentence.word[shown[i]] = words[i];
    return sentence;
  }

  std::string piece(Id id) const override {
    check(id);
    if (id == special_.pad) return "<pad>";
    if (id == special_.unknown) return "<unk>";
    if (id == special_.begin) return "<s>";
    if (id == special_.end) return "</s>";
    if (newline_ == id) return std::string(kShownNewline);
    return processor_.IdToPiece(id);
  }

  std::string_view kind() const override { return facts_.kind; }
  Id size() const override { return size_; }
  bool writes_all() const override { return processor_.IsByte(processor_.PieceToId("<0x00>")); }
  SpecialIds special() const override { return special_; }
  std::optional<Id> newline() const override { return newline_; }

  std::shared_ptr<const PieceSampler> sampler(double amount) const override {
    const std::vector<ScoredPiece> pieces = scored_pieces(model_);
    require(std::ssize(pieces) == size(), "SentencePiece: the model's file has ", pieces.size(),
            " pieces where the library has ", size(), "; train it anew");
    if (facts_.kind == "bpe") return sample_bpe(pieces, amount);
    if (facts_.kind == "unigram") return sample_unigram(pieces, amount);
    return nullptr;
  }

  void save(const std::filesystem::path& folder, const std::string& name) const override {
    write_file(folder / (name + ".spm"), model_);
  }

 private:
  struct Placed {
    std::vector<Id> ids;
    std::vector<size_t> offsets;                         // in the text
    std::optional<std::vector<std::string>> texts = {};  // of the pieces, if wanted
    void add(Id id, size_t offset, std::string_view text) {
      ids.push_back(id), offsets.push_back(offset);
      if (texts) texts->emplace_back(text);
    }
  };

  // `first`: where the line begins in the text.
  void encode_line(std::string_view line, size_t first, Placed& out) const {
    const auto by_library = [&](std::string_view part, auto offset_of) {
      const spm::ImmutableSentencePieceText all = processor_.EncodeAsImmutableProto(part);
      std::vector<Found> pieces;
      for (size_t i = 0; i < all.pieces_size(); ++i) {
        const auto piece = all.pieces(static_cast<int>(i));
        pieces.push_back({static_cast<Id>(piece.id()), piece.piece(), piece.begin(), piece.end()});
      }
      if (best_) take_equals(pieces);
      for (const Found& piece : pieces)
        out.add(piece.id, first + offset_of(piece.begin), piece.text);
    };
    if (!facts_.exact) return by_library(line, [](size_t at) { return at; });
    if (line.empty()) return;
    const std::string spaced = " " + std::string(line);
    size_t from = 0;  // what is before it is encoded
    const auto plain_up_to = [&](size_t to) {
      if (to > from)
        by_library(std::string_view(spaced).substr(from, to - from), [&](size_t at) {
          return std::max<size_t>(from + at, 1) - 1;  // without the space
        });
    };
    for (size_t at = 1; at < spaced.size();) {
      const size_t bytes = reserved_bytes(std::string_view(spaced).substr(at));
      if (bytes > 0) {
        plain_up_to(at);
        for (size_t i = at; i < at + bytes; ++i)
          out.add(byte_ids_[static_cast<unsigned char>(spaced[i])], first + at - 1,
                  byte_piece(static_cast<unsigned char>(spaced[i])));
        from = at + bytes;
      }
      at += std::max<size_t>(bytes, 1);
    }
    plain_up_to(spaced.size());
  }

  struct Found {
    Id id;
    std::string text;
    size_t begin, end;  // in the text
  };

  // Of cuts that are as good as the library's, UnigramCut's. Where characters are unknown, as bytes
  // or by themselves, the library's pieces stay.
  void take_equals(std::vector<Found>& pieces) const {
    std::string text;          // normalized
    std::vector<size_t> from;  // where each of the pieces begins in it
    for (const Found& piece : pieces) {
      from.push_back(text.size());
      text += processor_.IsByte(piece.id) ? std::string(1, byte_named(piece.text)) : piece.text;
    }
    from.push_back(text.size());
    std::vector<Found> taken;
    size_t i = 0;  // the library's piece that is there
    for (const auto& [start, to, id] : best_->cut(text)) {
      for (; from[i + 1] <= start; ++i) {
      }
      if (id != UnigramCut::kUnknown) {
        // Within a piece bytes are counted from its end, since it may begin with a space that the
        // text does not have.
        const size_t back = from[i + 1] - start, end = pieces[i].end;
        const size_t begin = from[i] == start ? pieces[i].begin
                             : end > back     ? std::max(end - back, pieces[i].begin)
                                              : pieces[i].begin;
        taken.push_back({id, text.substr(start, to - start), begin, end});
        continue;
      }
      for (size_t k = i; from[k] < to; ++k)
        if (from[k] >= start) taken.push_back(pieces[k]);
    }
    pieces = std::move(taken);
  }

  void decode_by_library(const std::vector<int>& line, std::string& text,
                         std::vector<size_t>& offsets) const {
    const spm::ImmutableSentencePieceText pieces = processor_.DecodeIdsAsImmutableProto(line);
    for (size_t i = 0; i < pieces.pieces_size(); ++i)
      offsets.push_back(text.size() + pieces.pieces(static_cast<int>(i)).begin());
    text += pieces.text();
  }

  // The library's own leaves out spaces at the beginning.
  void decode_exactly(const std::vector<int>& line, std::string& text,
                      std::vector<size_t>& offsets) const {
    for (size_t i = 0; i < line.size();) {
      std::string bytes;
      while (i + bytes.size() < line.size() && bytes_.contains(line[i + bytes.size()]))
        bytes += bytes_.at(line[i + bytes.size()]);
      i += bytes.size();
      while (!bytes.empty()) {
        const size_t whole = character_bytes(bytes), n = whole ? whole : ill_formed_bytes(bytes);
        offsets.insert(offsets.end(), n, text.size());
        text += whole ? bytes.substr(0, n) : "\uFFFD";
        bytes.erase(0, n);
      }
      if (i == line.size()) break;
      const std::string piece = text_of(line[i]);
      offsets.push_back(text.size());
      text += piece.substr(i == 0 && piece.starts_with(' ') ? 1 : 0);
      ++i;
    }
  }

  std::string text_of(Id id) const {
    if (id == special_.unknown) return "⁇";
    if (id >= processor_.GetPieceSize() || processor_.IsControl(id)) return "";
    std::string text = processor_.IdToPiece(id);
    for (size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos;)
      text.replace(at, kSpace.size(), " ");
    return text;
  }

  void check(Id id) const {
    require(id >= 0 && id < size_, "tokenizer: no piece ", id, "; it has ", size_);
  }

  std::string model_;  // the file's bytes
  SentencePieceFacts facts_;
  spm::SentencePieceProcessor processor_;
  std::optional<UnigramCut> best_;             // of a unigram model
  std::array<Id, kBytePieces> byte_ids_ = {};  // of an exact model, as is the next
  std::unordered_map<Id, char> bytes_;
  Id size_ = 0;  // the model's pieces, and special ones that it lacks
  SpecialIds special_;
  std::optional<Id> newline_;
};

// Up to `count` of the lines, each with the same chance (Vitter's algorithm R).
std::vector<std::string> sample(const TextStream& texts, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::string> kept;
  int64_t seen = 0;
  while (auto line = texts()) {
    if (split_words(*line).empty()) continue;
    ++seen;
    if (seen <= count) {
      kept.push_back(std::move(*line));
    } else if (const uint64_t place = random.split() % static_cast<uint64_t>(seen);
               place < static_cast<uint64_t>(count)) {
      kept[place] = std::move(*line);
    }
  }
  return kept;
}

// What the library learns from: lines without what is reserved, and no longer than it takes (longer
// ones it would pass over without a word). A line is cut there, or else at a space.
std::vector<std::string> parts_of(std::vector<std::string> lines) {
  constexpr size_t kMost = 4096;
  // What it would refuse to learn, spelled as pieces that are there already; and "▅", its sign for
  // the unknown, for which it passes over a line.
  const auto cut_at = [](std::string_view text) -> size_t {
    if (const size_t reserved = reserved_bytes(text)) return reserved;
    if (text.starts_with("▅")) return 3;
    if (text[0] != '<') return 0;
    const std::string_view name = text.substr(0, text.find('>') + 1);
    return name == "<pad>" || name == "<unk>" || name == "<s>" || name == "</s>" ||
           (name.size() == 6 && name.starts_with("<0x"));
  };
  std::vector<std::string> parts;
  for (std::string& line : lines) {
    size_t from = 0, space = 0;  // of the part; the last space in it
    const auto add = [&](size_t to) {
      if (to > from) parts.push_back(line.substr(from, to - from));
    };
    for (size_t at = 0; at < line.size();) {
      const std::string_view rest = std::string_view(line).substr(at);
      const size_t cut = cut_at(rest),
                   step = cut ? cut : std::max<size_t>(1, character_bytes(rest));
      if (line[at] == ' ') space = at;
      if (cut || at + step - from > kMost) {
        const size_t end = cut || space <= from ? at : space;
        add(end);
        from = cut ? at + cut : end + (end == space ? 1 : 0);
        space = from;
      }
      at += step;
    }
    add(line.size());
    line.clear(), line.shrink_to_fit();
  }
  return parts;
}

// The lines in parts without characters other than the `most` frequent ones; nothing if those are
// less than three quarters of the text, of which little would be learnt then.
std::optional<std::vector<std::string>> with_frequent_characters(
    const std::vector<std::string>& lines, size_t most) {
  std::unordered_map<char32_t, int64_t> counts;
  int64_t all = 0, frequent = 0;
  for (const std::string& line : lines)
    for (const char32_t c : decode_utf8(line)) ++counts[c], ++all;
  std::vector<std::pair<int64_t, char32_t>> sorted;
  for (const auto& [c, count] : counts) sorted.emplace_back(-count, c);
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (i < most)
      frequent -= sorted[i].first;
    else
      counts.erase(sorted[i].second);
  if (double(frequent) < 0.75 * double(all)) return {};
  std::vector<std::string> parts;
  for (const std::string& line : lines) {
    std::u32string part;
    const auto add = [&] {
      if (!part.empty()) parts.push_back(encode_utf8(part));
      part.clear();
    };
    for (const char32_t c : decode_utf8(line))
      if (counts.contains(c))
        part += c;
      else
        add();
    add();
  }
  return parts;
}

class Lines : public spm::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  spm::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

}  // namespace

std::shared_ptr<const Tokenizer> learn_sentencepiece(const TextStream& texts,
                                                     const TokenizerOptions& options) {
  require(options.size > 0 && options.sentences > 0, "tokenizer: the size (", options.size,
          ") and the number of sentences to learn from (", options.sentences, ") must be positive");
  require(options.coverage > 0 && options.coverage <= 1, "tokenizer: a coverage of ",
          options.coverage, " was given; it is a share of the characters, above 0 and at most 1");
  require(options.size > SpecialIds::kCount, "tokenizer: a size of ", options.size,
          " leaves no room for pieces; ", SpecialIds::kCount, " entries are special");
  require(options.normalization == "identity" || options.normalization == "nfkc",
          "tokenizer: a normalization of '", options.normalization,
          "' was given; there are identity and nfkc");
  std::vector<std::string> lines = parts_of(sample(texts, options.sentences, options.seed));
  require(!lines.empty(), "tokenizer: there is no text to learn '", options.kind, "' from");
  const bool exact = options.normalization == "identity";

  // A fixed number of threads, since the sums of "unigram" depend on it.
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.kind},
      {"vocab_size", std::to_string(options.size + kBytePieces)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", exact ? "identity" : "nmt_nfkc"},
      {"remove_extra_whitespaces", exact ? "false" : "true"},
      {"hard_vocab_limit", "false"},
      {"character_coverage", std::to_string(options.coverage)},
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"unk_surface", "⁇"},
      {"num_threads", "4"},
      {"minloglevel", kLogOnlyErrors}};
  if (options.newlines) arguments["user_defined_symbols"] = kNewline;
  std::string model;
  const auto learn = [&] {
    Lines iterator(lines);
    return spm::SentencePieceTrainer::Train(arguments, &iterator, &model);
  };
  spm::util::Status status = learn();
  if (has_too_many_characters(status)) {
    // Of Chinese, say: the frequent ones get half of the entries, others are spelled in bytes.
    const auto half = static_cast<size_t>(options.size - SpecialIds::kCount) / 2;
    if (std::optional<std::vector<std::string>> frequent = with_frequent_characters(lines, half)) {
      lines = std::move(*frequent);
      arguments["character_coverage"] = "1";
      status = learn();
    }
  }
  if (!status.ok())
    fail("tokenizer: cannot learn '", options.kind, "' of size ", options.size, " from ",
         grouped(static_cast<int64_t>(lines.size())), " lines: ", why_not_learnt(status));
  return std::make_shared<SentencePiece>(std::move(model), "the model just learnt");
}

namespace {

std::shared_ptr<const SentencePiece> loaded(const std::filesystem::path& path) {
  require(!std::filesystem::is_directory(path), path.string(),
          ": is a directory; a SentencePiece model file was wanted");
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), path.string(), ": cannot be read; a SentencePiece model was wanted");
  std::string model{std::istreambuf_iterator<char>(file), {}};
  return std::make_shared<SentencePiece>(std::move(model), path.string());
}

}  // namespace

std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& path) {
  return loaded(path);
}
std::shared_ptr<const PieceCutter> load_piece_cutter(const std::filesystem::path& path) {
  return loaded(path);
}

}  // namespace heed
