#include "heed/studies/study.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr StudyRow kStudies[] = {
    {"bottleneck", "quality by source length, without and with attention", bottleneck_study},
    {"recency", "what an encoder's last state still knows of each position", recency_study},
    {"scale", "dot against scaled dot as keys grow: entropy, gradient, steps to learn",
     scale_study},
    {"scores", "every score on one task: quality, alignment, speed, memory", scores_study},
    {"senses", "one word, several senses: vectors in context and by a table", senses_study},
    {"dictionary", "exact look-up as the limit of a falling temperature", dictionary_study},
};

// Four digits, more where the number is large.
std::string text_of(const StudyTable::Entry& entry) {
  if (const auto* words = std::get_if<std::string>(&entry)) return *words;
  const double number = std::get<double>(entry), size = std::abs(number);
  char text[32];
  if (number == std::floor(number) && size < 1e9)
    std::snprintf(text, sizeof text, "%.0f", number);
  else if (size >= 1e-3 && size < 1e5)
    std::snprintf(text, sizeof text, "%.*f",
                  size >= 100  ? 1
                  : size >= 10 ? 2
                  : size >= 1  ? 3
                               : 4,
                  number);
  else
    std::snprintf(text, sizeof text, "%.2e", number);
  return text;
}

size_t column_of(const StudyTable& table, const std::string& name) {
  const auto at = std::find(table.columns.begin(), table.columns.end(), name);
  if (at == table.columns.end()) fail(unknown_name("column", name, table.columns));
  return static_cast<size_t>(at - table.columns.begin());
}

}  // namespace

std::span<const StudyRow> study_table() { return kStudies; }

const StudyRow& study_row(const std::string& name) {
  std::vector<std::string> names;
  for (const StudyRow& row : kStudies) {
    if (row.name == name) return row;
    names.emplace_back(row.name);
  }
  fail(unknown_name("study", name, names));
}

std::vector<double> StudyTable::numbers(
    const std::string& column,
    const std::vector<std::pair<std::string, std::string>>& where) const {
  const size_t wanted = column_of(*this, column);
  std::vector<double> out;
  for (const std::vector<Entry>& row : rows) {
    const bool here = std::all_of(where.begin(), where.end(), [&](const auto& w) {
      return text_of(row[column_of(*this, w.first)]) == w.second;
    });
    if (!here) continue;
    const double* number = std::get_if<double>(&row[wanted]);
    out.push_back(number ? *number : std::nan(""));  // a gap where there is none
  }
  return out;
}

const StudyTable& Study::table(const std::string& name) const {
  std::vector<std::string> names;
  for (const StudyTable& t : tables) {
    if (t.name == name) return t;
    names.push_back(t.name);
  }
  fail(unknown_name("table", name, names));
}

std::string to_text(const StudyTable& table) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    widths.push_back(table.columns[c].size());
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], text_of(row[c]).size());
  }
  std::string out = table.title + "\n";
  // Words begin where their column begins, numbers end where it ends.
  const auto put = [&](size_t c, const std::string& text, bool words) {
    const std::string room(widths[c] - text.size(), ' ');
    out += "  " + (words ? text + room : room + text);
  };
  const auto end_line = [&] {
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
  };
  const auto is_words = [](const StudyTable::Entry& e) {
    return std::holds_alternative<std::string>(e);
  };
  for (size_t c = 0; c < table.columns.size(); ++c)
    put(c, table.columns[c], !table.rows.empty() && is_words(table.rows[0][c]));
  end_line();
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) put(c, text_of(row[c]), is_words(row[c]));
    end_line();
  }
  return out;
}

std::string to_json(const std::string& name, const StudyOptions& options, const Study& study) {
  using nlohmann::ordered_json;
  ordered_json tables = ordered_json::object(), claims = ordered_json::array();
  for (const StudyTable& table : study.tables) {
    ordered_json& rows = tables[table.name] = ordered_json::array();
    for (const auto& row : table.rows) {
      ordered_json entries;
      for (size_t c = 0; c < row.size(); ++c)
        std::visit([&](const auto& entry) { entries[table.columns[c]] = entry; }, row[c]);
      rows.push_back(entries);
    }
  }
  for (const StudyClaim& claim : study.claims)
    claims.push_back({{"claim", claim.text}, {"holds", claim.holds}});
  return ordered_json{{"study", name},
                      {"setting", options.small ? "small" : "full"},
                      {"seed", options.seed},
                      {"tables", tables},
                      {"claims", claims}}
             .dump(1) +
         "\n";
}

}  // namespace heed
