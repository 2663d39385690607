#include "heed/data/tokenizer.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/data/piece_table.h"
#include "heed/data/sentencepiece.h"
#include "heed/data/text.h"

namespace heed {
namespace {

constexpr std::string_view kSpace = "▁";  // U+2581, SentencePiece's sign for a space

std::vector<std::string> words_of(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  return {words.begin(), words.end()};
}

// Every run of whitespace is one "▁"; none at the ends.
std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (const std::string_view word : split_words(text)) {
    if (!characters.empty()) characters.emplace_back(kSpace);
    for (const std::string_view character : split_characters(word))
      characters.emplace_back(character);
  }
  return characters;
}

// ---- running text: newlines count, and of characters every space

struct Placed {
  std::string piece;
  size_t offset;  // in the text
};

std::vector<Placed> running_words(std::string_view text) {
  std::vector<Placed> pieces;
  for (const std::string_view line : split_fields(text, '\n')) {
    if (line.data() != text.data())
      pieces.push_back({std::string(kNewline), static_cast<size_t>(line.data() - text.data()) - 1});
    for (const std::string_view word : split_words(line))
      pieces.push_back({std::string(word), static_cast<size_t>(word.data() - text.data())});
  }
  return pieces;
}

std::vector<Placed> running_characters(std::string_view text) {
  std::vector<Placed> pieces;
  size_t offset = 0;
  for (const std::string_view c : split_characters(text)) {
    pieces.push_back({std::string(c == " " ? kSpace : c == "\n" ? kNewline : c), offset});
    offset += c.size();
  }
  return pieces;
}

// Looks up whatever `split` makes of a text. Words are set apart by spaces; characters have
// their spaces among themselves. A vocabulary that has the newline is one of running text.
class LookUp : public Tokenizer {
 public:
  struct Manner {
    std::string_view kind;
    std::vector<std::string> (*split)(std::string_view);
    std::vector<Placed> (*running)(std::string_view);
    std::string suffix;
    bool spaced;
  };

  LookUp(Vocabulary vocabulary, Manner manner)
      : vocabulary_(std::move(vocabulary)), manner_(std::move(manner)) {
    const Id id = vocabulary_.id(kNewline);
    if (id != vocabulary_.special().unknown) newline_ = id;
  }

  std::string_view kind() const override { return manner_.kind; }

  Sentence encode(std::string_view text) const override {
    Sentence sentence{.text = std::string(text), .ids = {}, .word = {}};
    if (newline_) {
      std::vector<size_t> offsets;
      for (const Placed& p : manner_.running(text)) {
        sentence.ids.push_back(vocabulary_.id(p.piece));
        offsets.push_back(p.offset);
      }
      sentence.word = words_at(text, offsets);
      return sentence;
    }
    int32_t word = 0;
    for (const std::string& piece : manner_.split(text)) {
      sentence.ids.push_back(vocabulary_.id(piece));
      // A space goes with the word after it, as SentencePiece has it.
      if (!manner_.spaced && piece == kSpace && !sentence.word.empty()) ++word;
      sentence.word.push_back(word);
      if (manner_.spaced) ++word;
    }
    return sentence;
  }

  Sentence decode(std::span<const Id> ids) const override {
    const SpecialIds none = special();
    Sentence sentence{.text = {}, .ids = {ids.begin(), ids.end()}, .word = {}};
    std::vector<size_t> offsets;
    std::vector<size_t> shown;  // which of the ids have text
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string& piece = vocabulary_[ids[i]];
      if (ids[i] == none.pad || ids[i] == none.begin || ids[i] == none.end) continue;
      const bool line_ends = newline_ == ids[i];
      if (manner_.spaced && !line_ends && !sentence.text.empty() && sentence.text.back() != '\n')
        sentence.text += ' ';
      offsets.push_back(sentence.text.size());
      shown.push_back(i);
      sentence.text += line_ends ? "\n" : !manner_.spaced && piece == kSpace ? " " : piece;
    }
    sentence.word.assign(ids.size(), -1);
    const std::vector<int32_t> words = words_at(sentence.text, offsets);
    for (size_t i = 0; i < shown.size(); ++i) sentence.word[shown[i]] = words[i];
    return sentence;
  }

  std::string piece(Id id) const override {
    return newline_ == id ? std::string(kShownNewline) : vocabulary_[id];
  }
  Id size() const override { return vocabulary_.size(); }
  bool writes_all() const override { return false; }
  SpecialIds special() const override { return vocabulary_.special(); }
  std::optional<Id> newline() const override { return newline_; }
  std::shared_ptr<const PieceSampler> sampler(double) const override { return nullptr; }

  void save(const std::filesystem::path& folder, const std::string& name) const override {
    vocabulary_.save(folder / (name + manner_.suffix));
  }

 private:
  Vocabulary vocabulary_;
  Manner manner_;
  std::optional<Id> newline_;
};

const LookUp::Manner kWords{.kind = "words",
                            .split = words_of,
                            .running = running_words,
                            .suffix = ".words",
                            .spaced = true};
const LookUp::Manner kCharacters{.kind = "characters",
                                 .split = characters_of,
                                 .running = running_characters,
                                 .suffix = ".characters",
                                 .spaced = false};

using Made = std::shared_ptr<const Tokenizer>;

Made learn_look_up(const LookUp::Manner& manner, const TextStream& texts,
                   const TokenizerOptions& options) {
  require(options.normalization == "identity", "tokenizer: a normalization of '",
          options.normalization, "' is for subwords, not for '", options.kind, "'");
  Vocabulary::Counts counts;
  while (const auto line = texts()) {
    if (options.newlines)
      for (Placed& p : manner.running(*line + "\n")) ++counts[std::move(p.piece)];
    else
      for (std::string& piece : manner.split(*line)) ++counts[std::move(piece)];
  }
  if (!options.newlines) counts.erase(kNewline);  // a word like any other would end a line
  require(!counts.empty(), "tokenizer: there is no text to learn '", options.kind, "' from");
  Vocabulary vocabulary =
      Vocabulary::learn(counts, {.size = options.size, .min_count = options.min_count});
  const bool newline = vocabulary.id(kNewline) != vocabulary.special().unknown;
  const Id known = vocabulary.size() - SpecialIds::kCount - (newline ? 1 : 0);
  require(known > 0 || options.min_count <= 1, "tokenizer: nothing comes ", options.min_count,
          " times, so that all of '", options.kind, "' would be unknown; want a lower count");
  return std::make_shared<LookUp>(std::move(vocabulary), manner);
}

// ---- the table of kinds

struct Kind {
  std::string name, suffix;
  Made (*learn)(const TextStream&, const TokenizerOptions&);  // none: only of other tools
  Made (*load)(const std::filesystem::path&);
};

const std::vector<Kind>& kinds() {
  using Path = std::filesystem::path;
  using Options = TokenizerOptions;
  static const std::vector<Kind> table = {
      // Before .spm: a file of pieces may stand beside the model that cuts them.
      {"pieces", kPiecesSuffix, nullptr, load_piece_table},
      {"unigram", ".spm", learn_sentencepiece, load_sentencepiece},
      {"bpe", ".spm", learn_sentencepiece, load_sentencepiece},
      {"words", kWords.suffix,
       [](const TextStream& t, const Options& o) { return learn_look_up(kWords, t, o); },
       [](const Path& p) -> Made { return std::make_shared<LookUp>(Vocabulary::load(p), kWords); }},
      {"characters", kCharacters.suffix,
       [](const TextStream& t, const Options& o) { return learn_look_up(kCharacters, t, o); },
       [](const Path& p) -> Made {
         return std::make_shared<LookUp>(Vocabulary::load(p), kCharacters);
       }},
  };
  return table;
}

const Kind& kind_of(const std::string& name) {
  for (const Kind& kind : kinds())
    if (kind.name == name && kind.learn) return kind;
  fail(unknown_name("tokenizer", name, tokenizer_kinds()));
}

// The tokenizer of that name in a model's folder, whatever its kind; null if there is none.
Made find_tokenizer(const std::filesystem::path& folder, const std::string& name) {
  for (const Kind& kind : kinds()) {
    const std::filesystem::path path = folder / (name + kind.suffix);
    if (std::filesystem::exists(path)) return kind.load(path);
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> Tokenizer::pieces(std::span<const Id> ids) const {
  std::vector<std::string> out;
  for (const Id id : ids) out.push_back(piece(id));
  return out;
}

std::vector<std::string> tokenizer_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds())
    if (kind.learn) names.push_back(kind.name);
  return names;
}

Made learn_tokenizer(const TextStream& texts, const TokenizerOptions& options) {
  int64_t good = 0, bad = 0;  // lines
  std::string first;          // what is wrong with the first bad one
  const TextStream utf8 = [&]() -> std::optional<std::string> {
    while (std::optional<std::string> line = texts()) {
      const std::optional<std::string> trouble = encoding_trouble(*line);
      if (!trouble) {
        good += !split_words(*line).empty();
        return line;
      }
      if (bad++ == 0) first = *trouble;
    }
    require(good > 0 || bad == 0, "tokenizer: there is no text to learn '", options.kind,
            "' from: of the lines with words in them none is UTF-8. The first is ", first);
    return std::nullopt;
  };
  return kind_of(options.kind).learn(utf8, options);
}

Made load_tokenizer(const std::string& kind, const std::filesystem::path& path) {
  return kind_of(kind).load(path);
}

std::string text_of_piece(const Tokenizer& tokenizer, const Sentence& sentence, size_t i) {
  HEED_ASSERT(i < sentence.ids.size());
  if (tokenizer.kind() == kCharacters.kind && !tokenizer.newline()) {
    const std::string c = characters_of(sentence.text).at(i);
    return c == kSpace ? " " : c;
  }
  const auto words = split_words(sentence.text);
  const auto word = static_cast<size_t>(sentence.word[i]);
  return word < words.size() ? std::string(words[word]) : std::string();
}

int64_t unknown_pieces(const Tokenizer& tokenizer, std::string_view text) {
  return std::ranges::count(tokenizer.encode(text).ids, tokenizer.special().unknown);
}

void TokenizerPair::save(const std::filesystem::path& folder) const {
  require(source && target, folder.string(), ": cannot save tokenizers that do not exist");
  source->save(folder, source == target ? "joint" : "source");
  if (source != target) target->save(folder, "target");
}

TokenizerPair TokenizerPair::load(const std::filesystem::path& folder) {
  if (const Made joint = find_tokenizer(folder, "joint")) return {joint, joint};
  const TokenizerPair pair{find_tokenizer(folder, "source"), find_tokenizer(folder, "target")};
  require(pair.source && pair.target, folder.string(), ": has no ",
          pair.source ? "target" : "source",
          " tokenizer; in a model's folder stand source.spm and target.spm, or joint.spm (or "
          ".words, .characters)");
  return pair;
}

}  // namespace heed
