// The pairs of a parallel corpus as text, one after the other, and an index to go to any of them.
//
// Threads: a reader serves one at a time; an index may be asked by any number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/data/tokenizer.h"
#include "heed/files/text_reader.h"

namespace heed {

// Plain or packed text, UTF-8, line i of one side being the translation of line i of the other. A
// side in several files has as many as the others, of as many lines each; an alignment may be one
// file of all lines.
struct CorpusFiles {
  Paths source;
  Paths target;          // empty: `source` is TSV, a sentence, a tab, its translation
  Paths alignment = {};  // empty: none; else links between words, in Pharaoh's form
};

// For messages.
std::string name_of(const CorpusFiles& files);
// As of one file (files/lines.h), of both sides.
std::optional<std::string> first_bad_line(const CorpusFiles& files);

struct TextPair {
  std::string source, target, alignment;
  int64_t line = 0;   // from 1
  bool torn = false;  // a line of a TSV file without a tab
};

// The pairs of a corpus one after the other, as they stand in the files. Ends with the side that
// ends first.
class PairReader {
 public:
  struct Position {
    TextReader::Position source, target, alignment;
  };

  explicit PairReader(const CorpusFiles& files) : PairReader(files, Position{}) {}
  PairReader(const CorpusFiles& files, const Position& position);

  std::optional<TextPair> next();
  void skip(uint64_t count);
  int64_t line() const { return static_cast<int64_t>(source_.position().line); }  // before next()'s

 private:
  TextReader source_;
  std::optional<TextReader> target_, alignment_;
};

enum class Side { source, target, both };

// The sentences of one side or both, for learn_tokenizer().
TextStream texts(const CorpusFiles& files, Side side);

// Sides of different length are most often files that do not belong together.
enum class Surplus { refuse, cut };

// How many pairs there are, and where: read once, and kept in a file (docs/formats.md) for the next
// time. That a side has changed, its files' sizes and times say.
class CorpusIndex {
 public:
  // Takes from the file `kept` (none: "") what is still so, and reads the rest through. Throws
  // Error if sides differ in length, unless there is one file a side and the surplus is to be cut,
  // or if there is nothing.
  explicit CorpusIndex(CorpusFiles files, Surplus surplus = Surplus::refuse,
                       const std::filesystem::path& kept = {});
  void keep(const std::filesystem::path& path) const;
  bool was_kept() const { return was_kept_; }  // nothing had to be read

  const CorpusFiles& files() const { return files_; }
  int64_t lines() const { return lines_; }      // that all sides have
  int64_t surplus() const { return surplus_; }  // of the longest
  // Whether any line can be gone to at once: packed files, only where they are in short pieces.
  bool anywhere() const;
  // The same corpus without its alignment.
  std::shared_ptr<const CorpusIndex> without_links() const;
  // Of all text, as sixteen hexadecimal digits.
  std::string checksum() const;

  // A reader whose next pair has `line` lines before it.
  PairReader at(int64_t line) const;
  // Moves on or back to there.
  void go(PairReader& reader, int64_t line) const;
  // Shows up to `most` pairs here and there, and says how many.
  int64_t look(int64_t most, const std::function<void(const TextPair&)>& show) const;

 private:
  static std::array<TextIndex, 3> kept_in(const std::filesystem::path& path);

  CorpusFiles files_;
  std::array<TextIndex, 3> sides_;  // source, target, alignment
  int64_t lines_ = 0, surplus_ = 0;
  bool was_kept_ = true;
};

// Some of the lines of a corpus, here and there: up to `most`, in runs as long as it takes for them
// to be cheap to find. As pairs of lines before a run, and how many it has. Where one of `each`
// lines is of another kind, it is so of these, too: neither of all nor of none.
struct LineRun {
  int64_t first = 0, count = 0;
};
std::vector<LineRun> here_and_there(int64_t lines, int64_t most, int64_t each = 1);

}  // namespace heed
