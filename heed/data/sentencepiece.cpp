#include "heed/data/sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unordered_map>

#include "heed/base/check.h"
#include "heed/base/random.h"
#include "heed/base/unicode.h"
#include "heed/data/text.h"
#include "heed/files/atomic_file.h"

namespace heed {
namespace {

namespace spm = sentencepiece;

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
std::string why_not_learnt(const spm::util::Status& status) {
  const std::string words = words_of(status);
  const size_t vs = words.find(" vs ");
  if (words.find("required_chars") == std::string::npos || vs == std::string::npos) return words;
  const size_t end = words.find_first_not_of("0123456789", vs + 4);
  return "its characters and special entries alone are " + words.substr(vs + 4, end - vs - 4) +
         "; want a larger vocabulary";
}

// ---- what the library does not tell of a model, read from its file

// Calls found(field, value, bytes) for each field of a message, which is in the form of protocol
// buffers: `value` is a whole number's, all else is `bytes`.
template <class Found>
void for_each_field(std::string_view message, Found found) {
  size_t at = 0;
  const auto number = [&] {  // seven bits a byte, the last byte below 128
    uint64_t value = 0;
    for (int shift = 0; at < message.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(message[at++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t tag = number(), form = tag & 7, value = form == 0 || form == 2 ? number() : 0;
    const uint64_t size = form == 1 ? 8 : form == 2 ? value : form == 5 ? 4 : 0;
    const std::string_view bytes = message.substr(at, size);
    at += bytes.size();
    found(tag >> 3, value, bytes);
  }
}

// `model` is one that the library has taken, here and below.
std::string_view kind_of(std::string_view model) {
  uint64_t kind = 1;
  for_each_field(model, [&](uint64_t field, uint64_t, std::string_view bytes) {
    if (field != 2) return;  // how it was trained
    for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view) {
      if (part == 3) kind = value;
    });
  });
  return kind == 1 ? "unigram" : kind == 2 ? "bpe" : "sentencepiece";
}

std::vector<ScoredPiece> scored_pieces(std::string_view model) {
  constexpr uint64_t kNormal = 1;  // type of a piece; others are special, or set by a user
  std::vector<ScoredPiece> out;
  for_each_field(model, [&](uint64_t field, uint64_t, std::string_view bytes) {
    if (field != 1) return;
    ScoredPiece& piece = out.emplace_back();
    for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view content) {
      if (part == 1) piece.text = content;
      if (part == 2 && content.size() == sizeof piece.score)
        std::memcpy(&piece.score, content.data(), sizeof piece.score);
      if (part == 3) piece.fixed = value != kNormal;
    });
  });
  return out;
}

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(std::string model, const std::string& what) : model_(std::move(model)) {
    try {
      const spm::util::Status status = processor_.LoadFromSerializedProto(model_);
      if (!status.ok()) fail(what, ": is not a SentencePiece model: ", words_of(status));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // of what it finds pieces with: an empty one, say
      fail(what, ": is not a SentencePiece model: ", error.what());
    }
    kind_ = kind_of(model_);
    size_ = static_cast<Id>(processor_.GetPieceSize());
    const auto or_new = [&](int id) { return id >= 0 ? static_cast<Id>(id) : size_++; };
    special_ = {.pad = or_new(processor_.pad_id()),
                .unknown = or_new(processor_.unk_id()),
                .begin = or_new(processor_.bos_id()),
                .end = or_new(processor_.eos_id())};
    const int line_end = processor_.PieceToId(kNewline);
    if (!processor_.IsUnknown(line_end)) newline_ = static_cast<Id>(line_end);
  }

  Sentence encode(std::string_view text) const override {
    Sentence sentence{.text = std::string(text), .ids = {}, .word = {}};
    std::vector<size_t> offsets;
    const auto encode_part = [&](std::string_view part) {
      const size_t first = static_cast<size_t>(part.data() - text.data());
      const spm::ImmutableSentencePieceText pieces = processor_.EncodeAsImmutableProto(part);
      for (size_t i = 0; i < pieces.pieces_size(); ++i) {
        const auto piece = pieces.pieces(static_cast<int>(i));
        sentence.ids.push_back(static_cast<Id>(piece.id()));
        offsets.push_back(first + piece.begin());
      }
    };
    if (newline_) {
      for (const std::string_view line : split_fields(text, '\n')) {
        if (line.data() != text.data()) {
          sentence.ids.push_back(*newline_);
          offsets.push_back(static_cast<size_t>(line.data() - text.data()) - 1);
        }
        encode_part(line);
      }
    } else {
      encode_part(text);
    }
    sentence.word = words_at(text, offsets);
    return sentence;
  }

  Sentence decode(std::span<const Id> ids) const override {
    std::vector<int> known;
    std::vector<size_t> shown;  // which of the ids have text
    for (size_t i = 0; i < ids.size(); ++i) {
      check(ids[i]);
      if (ids[i] == special_.pad || ids[i] == special_.begin || ids[i] == special_.end) continue;
      known.push_back(ids[i]);
      shown.push_back(i);
    }
    Sentence sentence{
        .text = {}, .ids = {ids.begin(), ids.end()}, .word = std::vector<int32_t>(ids.size(), -1)};
    std::vector<size_t> offsets;
    std::vector<int> line;
    const auto decode_line = [&] {
      const spm::ImmutableSentencePieceText pieces = processor_.DecodeIdsAsImmutableProto(line);
      for (size_t i = 0; i < pieces.pieces_size(); ++i)
        offsets.push_back(sentence.text.size() + pieces.pieces(static_cast<int>(i)).begin());
      sentence.text += pieces.text();
      line.clear();
    };
    for (const int id : known) {
      if (newline_ != static_cast<Id>(id)) {
        line.push_back(id);
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

  std::string_view kind() const override { return kind_; }
  Id size() const override { return size_; }
  SpecialIds special() const override { return special_; }
  std::optional<Id> newline() const override { return newline_; }

  std::shared_ptr<const PieceSampler> sampler(double amount) const override {
    const std::vector<ScoredPiece> pieces = scored_pieces(model_);
    require(std::ssize(pieces) == size(), "SentencePiece: the model's file has ", pieces.size(),
            " pieces where the library has ", size(), "; train it anew");
    if (kind_ == "bpe") return sample_bpe(pieces, amount);
    if (kind_ == "unigram") return sample_unigram(pieces, amount);
    return nullptr;
  }

  void save(const std::filesystem::path& folder, const std::string& name) const override {
    write_file(folder / (name + ".spm"), model_);
  }

 private:
  void check(Id id) const {
    require(id >= 0 && id < size_, "tokenizer: no piece ", id, "; it has ", size_);
  }

  std::string model_;  // the file's bytes
  std::string_view kind_;
  spm::SentencePieceProcessor processor_;
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
    if (!is_utf8(*line) || split_words(*line).empty()) continue;
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
  const std::vector<std::string> lines = sample(texts, options.sentences, options.seed);
  require(!lines.empty(), "tokenizer: there is no text to learn '", options.kind, "' from");

  // A fixed number of threads, since the sums of "unigram" depend on it.
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.kind},
      {"vocab_size", std::to_string(options.size)},
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
  Lines iterator(lines);
  std::string model;
  const spm::util::Status status = spm::SentencePieceTrainer::Train(arguments, &iterator, &model);
  if (!status.ok())
    fail("tokenizer: cannot learn '", options.kind, "' of size ", options.size, " from ",
         grouped(static_cast<int64_t>(lines.size())), " lines: ", why_not_learnt(status));
  return std::make_shared<SentencePiece>(std::move(model), "the model just learnt");
}

std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& path) {
  require(!std::filesystem::is_directory(path), path.string(),
          ": is a directory; a SentencePiece model file was wanted");
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), path.string(), ": cannot be read; a SentencePiece model was wanted");
  std::string model{std::istreambuf_iterator<char>(file), {}};
  return std::make_shared<SentencePiece>(std::move(model), path.string());
}

}  // namespace heed
