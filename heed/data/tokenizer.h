// Text to ids and back.
//
//   unigram, bpe   subwords, learnt by the SentencePiece library (Kudo and Richardson, 2018); bytes
//                  stand for what has no piece, so that every text can be written
//   words          what stands between whitespace, the frequent ones
//   characters     Unicode code points
//
// One that is learnt for running text (TokenizerOptions::newlines) has a piece for the newline, and
// by characters every space counts; else whitespace only sets words apart.
//
// All are learnt from the corpus at the start of training and kept in the model's folder. To add a
// kind: a class and a row of the table in tokenizer.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/piece_sampler.h"
#include "heed/data/vocabulary.h"

namespace heed {

// A text and its pieces.
struct Sentence {
  std::string text;
  std::vector<Id> ids;
  // For each id, which word of `text` it belongs to, words being what stands between whitespace
  // (data/text.h); -1 for pad, begin and end. Alignments are joined to words with it.
  std::vector<int32_t> word;
};

// Immutable, and safe to use from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "unigram", "bpe", "words", "characters"; "sentencepiece" for the library's other kinds, which
  // heed does not learn but takes.
  virtual std::string_view kind() const = 0;

  // The pieces of `text`, without begin and end. Sentence::text is `text` as it was given. Of
  // subwords that heed learnt without normalization, decode() of the ids is `text`, byte for byte,
  // if it is UTF-8; words and characters lose spaces and what they do not know, and a SentencePiece
  // model that normalizes, as it says itself, whatever it takes for the same ("ﬁ" and "fi").
  virtual Sentence encode(std::string_view text) const = 0;

  // The text of the pieces; pad, begin and end have none.
  virtual Sentence decode(std::span<const Id> ids) const = 0;

  // One piece to show to people: a space in it is shown as "▁", special ones as "<pad>", "<unk>",
  // "<s>", "</s>", a newline as "⏎".
  virtual std::string piece(Id id) const = 0;
  std::vector<std::string> pieces(std::span<const Id> ids) const;

  // Ids are below it.
  virtual Id size() const = 0;
  // Whether every text can be written, so that none is ever unknown: with pieces for bytes.
  virtual bool writes_all() const = 0;
  virtual SpecialIds special() const = 0;
  // What "\n" becomes, if this is a tokenizer of running text.
  virtual std::optional<Id> newline() const = 0;

  // Draws other pieces of the same text (piece_sampler.h); `amount` is the p of bpe or the alpha of
  // unigram. Null where a text has one way to be cut: words, characters.
  virtual std::shared_ptr<const PieceSampler> sampler(double amount) const = 0;

  // Writes `folder`/`name` with the suffix of the kind. The folder must exist.
  virtual void save(const std::filesystem::path& folder, const std::string& name) const = 0;
};

// Pieces for bytes, which subwords have beside all others.
inline constexpr Id kBytePieces = 256;

struct TokenizerOptions {
  std::string kind = "unigram";
  // Entries at most; a small corpus may give fewer. Subwords have kBytePieces more.
  int64_t size = 8000;
  int64_t min_count = 1;  // words and characters that are rarer become unknown
  // Subwords: the share of the corpus' characters that are pieces. The rarest are bytes, which are
  // learnt from them.
  double coverage = 0.9995;
  // Subwords: identity, or nfkc (SentencePiece's nmt_nfkc, and fewer spaces) for a source alone:
  // what a target loses by it no model can write.
  std::string normalization = "identity";
  int64_t sentences = 2'000'000;  // subwords: learn from so many at most, drawn by `seed`
  uint64_t seed = 1;
  bool newlines = false;  // of running text: newlines are pieces
};

// Gives one line of text after the other, then nothing.
using TextStream = std::function<std::optional<std::string>()>;

// The names of the kinds.
std::vector<std::string> tokenizer_kinds();

// The same texts, options and seed give the same tokenizer. Lines that are not UTF-8 are passed
// over. Throws Error if there is no text, or the size does not hold even the characters.
std::shared_ptr<const Tokenizer> learn_tokenizer(const TextStream& texts,
                                                 const TokenizerOptions& options);

// A tokenizer of that kind from its file: one of heed's, any SentencePiece model, or a vocabulary
// of another tool (one entry a line). A SentencePiece model without some special piece gets an id
// for it after the last of its own.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind,
                                                const std::filesystem::path& path);

// What stands in the text of an encoded sentence where piece i is, known or not: its word, or by
// characters the character.
std::string text_of_piece(const Tokenizer& tokenizer, const Sentence& sentence, size_t i);

// How many pieces of a text the tokenizer does not know.
int64_t unknown_pieces(const Tokenizer& tokenizer, std::string_view text);

// The tokenizers of a model; the same object twice if source and target share one.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source, target;

  // In a model's folder: joint.* if they share one, else source.* and target.*; the suffix says
  // the kind (.spm, .words, .characters).
  void save(const std::filesystem::path& folder) const;
  static TokenizerPair load(const std::filesystem::path& folder);
};

}  // namespace heed
