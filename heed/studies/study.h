// Studies: experiments that show why attention is as it is. Each trains what it needs and gives
// back tables, pictures, and what it claims with whether that held; `heed study` prints and keeps
// them.
//
// A new study is one file and one row of the table in study.cpp.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "heed/data/corpus.h"

namespace heed {

struct StudyOptions {
  bool small = false;  // seconds instead of minutes, for the same claims
  uint64_t seed = 1;
  std::filesystem::path grammar = "data/grammar";           // the words of the grammar's corpus
  std::filesystem::path senses = "data/senses/senses.tsv";  // words in sentences, by sense
  CorpusFiles text = {}, test = {};  // bottleneck: real text to learn from and to translate
  std::function<void(const std::string&)> tell = {};  // what is being done now
  std::function<bool()> stop = {};  // asked while models train: true makes the study throw Error
};

// Rows of numbers and words: what is printed, and what is kept as JSON with all digits.
struct StudyTable {
  using Entry = std::variant<double, std::string>;
  std::string name;   // a key
  std::string title;  // for people
  std::vector<std::string> columns;
  std::vector<std::vector<Entry>> rows = {};  // as long as the columns

  // The numbers of a column in the rows for which each of the named columns has the named words.
  std::vector<double> numbers(
      const std::string& column,
      const std::vector<std::pair<std::string, std::string>>& where = {}) const;
};

struct StudyPicture {
  std::string name;  // of the file, without its suffix
  std::string svg;
};

// What a study says of its numbers, those among them, and whether they bear it out.
struct StudyClaim {
  std::string text;
  bool holds = false;
};

struct Study {
  std::vector<StudyTable> tables = {};
  std::vector<StudyPicture> pictures = {};
  std::vector<StudyClaim> claims = {};

  // Throws Error that names the nearest.
  const StudyTable& table(const std::string& name) const;
};

struct StudyRow {
  const char* name;
  const char* what;
  Study (*run)(const StudyOptions& options);
};
std::span<const StudyRow> study_table();
// Throws Error that names the nearest.
const StudyRow& study_row(const std::string& name);

// A table as text in columns, numbers with about four digits.
std::string to_text(const StudyTable& table);
// {"study", "setting", "seed", "tables": {name: [{column: entry}]}, "claims": [{"claim", "holds"}]}
std::string to_json(const std::string& name, const StudyOptions& options, const Study& study);

// ---- one file each
Study bottleneck_study(const StudyOptions& options);
Study dictionary_study(const StudyOptions& options);
Study recency_study(const StudyOptions& options);
Study scale_study(const StudyOptions& options);
Study scores_study(const StudyOptions& options);
Study senses_study(const StudyOptions& options);

}  // namespace heed
