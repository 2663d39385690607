#include "heed/studies/grammar/lexicon.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "heed/base/check.h"
#include "heed/data/text.h"
#include "heed/files/lines.h"

namespace heed::grammar {
namespace {

Words words_of(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  return {words.begin(), words.end()};
}

// One row of a table, with what its messages need.
class Row {
 public:
  Row(std::string where, std::vector<std::string> fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  const std::string& operator[](size_t i) const { return fields_[i]; }
  Words words(size_t i) const { return words_of(fields_[i]); }

  template <class T>
  T one_of(size_t i, const std::map<std::string, T>& table) const {
    const auto at = table.find(fields_[i]);
    if (at != table.end()) return at->second;
    std::vector<std::string> known;
    for (const auto& [name, value] : table) known.push_back(name);
    fail(where_, ": ", unknown_name("word in column " + std::to_string(i + 1), fields_[i], known));
  }

  int number(size_t i) const {
    int value = 0;
    const std::string& text = fields_[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(error == std::errc() && end == text.data() + text.size() && value > 0, where_, ": '",
            text, "' in column ", i + 1, "; a number from 1 up was wanted");
    return value;
  }

  const std::string& where() const { return where_; }

 private:
  std::string where_;  // file and line
  std::vector<std::string> fields_;
};

void read_table(const std::filesystem::path& path, size_t columns,
                const std::function<void(const Row&)>& take) {
  LineReader reader(path.string());
  bool any = false;
  while (const auto line = reader.next()) {
    if (line->empty() || line->starts_with('#')) continue;
    const std::string where = path.string() + ": line " + std::to_string(reader.position().line);
    const std::vector<std::string_view> fields = split_fields(*line, '\t');
    require(fields.size() == columns, where, ": ", fields.size(), " columns; ", columns,
            " were wanted, with tabs between them");
    for (size_t i = 0; i < columns; ++i)
      require(!fields[i].empty(), where, ": column ", i + 1, " is empty");
    take(Row(where, {fields.begin(), fields.end()}));
    any = true;
  }
  require(any, path.string(), ": has no words");
}

const std::map<std::string, bool> kGenders = {{"m", false}, {"f", true}};

Verb read_verb(const Row& row) {
  Verb verb;
  Words* part = &verb.before;
  for (const std::string& word : row.words(0)) {
    if (word == "~")
      part = &verb.after;
    else
      part->push_back(word);
  }
  require(!verb.before.empty(), row.where(), ": '", row[0], "' does not begin with a verb");
  verb.third = row[1];
  verb.past = row[2];
  verb.infinitive = row[3];
  const Words present = row.words(4);
  require(present.size() == verb.present.size(), row.where(), ": ", present.size(),
          " forms of the present; 6 were wanted");
  std::copy(present.begin(), present.end(), verb.present.begin());
  verb.participle = row[5];
  verb.with_etre = row.one_of<bool>(6, {{"avoir", false}, {"être", true}});
  verb.frame = row.one_of<Frame>(7, {{"alone", Frame::alone},
                                     {"direct", Frame::direct},
                                     {"to", Frame::to},
                                     {"give", Frame::give},
                                     {"that", Frame::that}});
  verb.subjects = row[8];
  verb.objects = row[9] == "-" ? "" : row[9];
  verb.weight = row.number(10);
  return verb;
}

}  // namespace

Lexicon Lexicon::load(const std::filesystem::path& folder) {
  Lexicon lexicon;
  const auto or_none = [](const std::string& text) { return text == "-" ? std::string() : text; };
  read_table(folder / "nouns.tsv", 6, [&](const Row& row) {
    lexicon.nouns.push_back({.english = {row[0], or_none(row[1])},
                             .french = {row[2], or_none(row[3])},
                             .feminine = row.one_of(4, kGenders),
                             .kinds = row[5]});
  });
  read_table(folder / "adjectives.tsv", 8, [&](const Row& row) {
    lexicon.adjectives.push_back(
        {.english = row[0],
         .french = {{{row[1], row[2]}, {row[3], row[4]}}},
         .before_vowel = row[5],
         .precedes = row.one_of<bool>(6, {{"before", true}, {"after", false}}),
         .kinds = row[7]});
  });
  read_table(folder / "verbs.tsv", 11,
             [&](const Row& row) { lexicon.verbs.push_back(read_verb(row)); });
  read_table(folder / "names.tsv", 2, [&](const Row& row) {
    lexicon.names.push_back({.text = row[0], .feminine = row.one_of(1, kGenders)});
  });
  read_table(folder / "adverbs.tsv", 3, [&](const Row& row) {
    lexicon.adverbs.push_back({.english = row.words(0),
                               .french = row.words(1),
                               .when = row.one_of<When>(2, {{"middle", When::middle},
                                                            {"negated", When::negated},
                                                            {"past", When::past},
                                                            {"present", When::present},
                                                            {"future", When::future},
                                                            {"any", When::any}})});
  });
  read_table(folder / "prepositions.tsv", 3, [&](const Row& row) {
    lexicon.prepositions.push_back(
        {.english = row.words(0), .french = row.words(1), .kinds = row[2]});
  });
  return lexicon;
}

}  // namespace heed::grammar
