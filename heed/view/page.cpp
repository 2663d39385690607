#include "heed/view/page.h"

#include <charconv>
#include <cmath>

#include "heed/base/check.h"
#include "heed/view/label.h"
#include "heed/view/page_files.h"

namespace heed {
namespace {

// JSON inside <script>: "</script>" and "<!--" would end or confuse it, so no '<' is left;
// to_label() has taken care of line separators, control characters and broken UTF-8.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : to_label(text)) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  return {digits,
          std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr};
}

template <class List, class Write>
std::string json_list(const List& list, const Write& write) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ',';
    out += write(item);
  }
  return out + ']';
}

void check_layers(const std::vector<AttentionPage::Layer>& layers, size_t rows, size_t columns,
                  size_t number) {
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h)
      require(layers[l].heads[h].size() == rows * columns, "attention page: sentence ", number,
              ", layer ", l, ", head ", h, ": ", rows, " target and ", columns,
              " source words want ", rows * columns, " weights, given ", layers[l].heads[h].size());
}

void check_words(const std::optional<AttentionPage::Words>& words, size_t tokens, size_t number) {
  if (!words) return;
  require(words->of.size() == tokens, "attention page: sentence ", number, ": ", tokens,
          " tokens want as many numbers of words, given ", words->of.size());
  for (const int w : words->of)
    require(w < static_cast<int>(words->names.size()), "attention page: sentence ", number,
            ": word ", w, " of ", words->names.size());
}

void check(const AttentionPage::Sentence& s, size_t number) {
  const size_t rows = s.target.size(), columns = s.source.size();
  require(!s.ends || (rows > 0 && columns > 0), "attention page: sentence ", number,
          ": has no end");
  const size_t end = s.ends ? 1 : 0;
  check_layers(s.layers, rows, columns, number);
  check_layers(s.encoder, columns, columns, number);
  check_layers(s.decoder, rows, rows, number);
  if (s.chosen) check_layers({{.heads = {*s.chosen}}}, rows, columns, number);
  check_words(s.source_words, columns - end, number);
  check_words(s.target_words, rows - end, number);
  if (!s.marks) return;
  const auto words = [](const std::optional<AttentionPage::Words>& w,
                        const std::vector<std::string>& tokens) { return w ? w->names : tokens; };
  Heatmap map{.rows = words(s.target_words, s.target),
              .columns = words(s.source_words, s.source),
              .weights = {},
              .marks = s.marks};
  map.weights.resize(map.rows.size() * map.columns.size());
  check(map);
}

// ---- as JSON: what POST /v1/translate answers (serve/explain.cpp)

std::string json_matrix(const std::vector<double>& values, size_t columns) {
  std::string out = "[";
  for (size_t at = 0; columns > 0 && at < values.size(); at += columns) {
    out += at > 0 ? ",[" : "[";
    for (size_t j = 0; j < columns; ++j) out += (j > 0 ? "," : "") + json_number(values[at + j]);
    out += ']';
  }
  return out + ']';
}

std::string json_layers(const std::vector<AttentionPage::Layer>& layers, size_t columns) {
  return json_list(layers, [&](const AttentionPage::Layer& l) {
    return "{\"name\":" + json_string(l.name) + ",\"heads\":" +
           json_list(l.heads, [&](const auto& head) { return json_matrix(head, columns); }) + "}";
  });
}

std::string json_side(const std::vector<std::string>& tokens, bool ends,
                      const std::optional<AttentionPage::Words>& words) {
  const std::vector<std::string> pieces(tokens.begin(), tokens.end() - (ends ? 1 : 0));
  std::string out = "{\"pieces\":" + json_list(pieces, json_string);
  if (words)
    out += ",\"words\":" + json_list(words->names, json_string) +
           ",\"piece_words\":" + json_list(words->of, [](int w) { return std::to_string(w); });
  return out + "}";
}

// "0-0 1p2": possible links have a "p".
std::string json_marks(const Heatmap::Marks& marks) {
  const auto links = [](const Links& list, const char* between) {
    std::string out;
    for (const Link& l : list)
      out += std::to_string(l.source) + between + std::to_string(l.target) + " ";
    return out;
  };
  return "{\"text\":" + json_string(links(marks.sure, "-") + links(marks.possible, "p")) +
         ",\"predicted\":" + json_string(links(marks.predicted, "-")) + "}";
}

std::string json_tree(const SearchTree& tree) {
  return json_list(tree.nodes, [](const SearchTree::Node& n) {
    return "{\"piece\":" + json_string(n.word) + ",\"parent\":" + std::to_string(n.parent) +
           ",\"log_probability\":" + json_number(n.log_probability) +
           ",\"score\":" + json_number(n.score.value_or(n.log_probability)) +
           ",\"finished\":" + (n.finished ? "true" : "false") +
           ",\"best\":" + (n.best ? "true" : "false") + "}";
  });
}

std::string json_candidates(const AttentionPage::Sentence& s) {
  std::string out = "[";
  for (size_t i = 0; i < s.candidates.size(); ++i)
    out += (i > 0 ? ",{\"piece\":" : "{\"piece\":") +
           json_string(i < s.target.size() ? s.target[i] : "") + ",\"candidates\":" +
           json_list(s.candidates[i],
                     [](const AttentionPage::Candidate& c) {
                       return "{\"piece\":" + json_string(c.word) +
                              ",\"probability\":" + json_number(c.probability) + "}";
                     }) +
           "}";
  return out + ']';
}

std::string json_why(const AttentionPage::Why& why) {
  const auto terms = [](const AttentionPage::Terms& t) {
    const auto size = static_cast<size_t>(t.size), value_size = static_cast<size_t>(t.value_size);
    const size_t keys = value_size > 0 ? t.values.size() / value_size : 0;
    return "{\"form\":" + json_string(t.form) + ",\"scale\":" + json_number(t.scale) +
           ",\"q\":" + json_matrix(t.q, size) + ",\"k\":" + json_matrix(t.k, size) +
           ",\"v\":" + json_list(t.v, json_number) + ",\"bias\":" + json_matrix(t.bias, keys) +
           ",\"values\":" + json_matrix(t.values, value_size) + "}";
  };
  return "{\"score\":" + json_string(why.score) + ",\"weigh\":" + json_string(why.weigh) +
         ",\"temperature\":" + json_number(why.temperature) +
         ",\"before\":" + std::to_string(why.before) + ",\"layers\":" +
         json_list(why.layers, [&](const auto& heads) { return json_list(heads, terms); }) + "}";
}

std::string json_sentence(const AttentionPage::Sentence& s) {
  const size_t columns = s.source.size();
  std::string out = "\n{\"source\":" + json_side(s.source, s.ends, s.source_words) +
                    ",\"target\":" + json_side(s.target, s.ends, s.target_words) +
                    ",\"note\":" + json_string(s.note) +
                    ",\"ends\":" + (s.ends ? "true" : "false") +
                    ",\"layers\":" + json_layers(s.layers, columns);
  const auto put = [&](const char* name, const std::string& value) {
    out += std::string(",\"") + name + "\":" + value;
  };
  if (s.number > 0) put("number", std::to_string(s.number));
  if (s.ends) put("end", json_string(s.target.back()));
  if (s.past) put("past", "true");
  if (s.chosen) put("weights", json_matrix(*s.chosen, columns));
  if (!s.encoder.empty()) put("encoder_self", json_layers(s.encoder, columns));
  if (!s.decoder.empty()) put("decoder_self", json_layers(s.decoder, s.target.size()));
  if (s.log_probability) put("log_probability", json_number(*s.log_probability));
  if (s.score) put("score", json_number(*s.score));
  if (s.marks) put("gold", json_marks(*s.marks));
  if (s.tree) put("tree", json_tree(*s.tree));
  if (!s.candidates.empty()) put("candidates", json_candidates(s));
  if (s.why) put("why", json_why(*s.why));
  return out + "}";
}

std::string json_start(const AttentionPage::Start& start) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  return "{\"layer\":" + (start.layer ? std::to_string(*start.layer) : "-1") + ",\"head\":" +
         (start.head    ? std::to_string(*start.head)
          : start.layer ? "\"mean\""
                        : "-1") +
         ",\"shift\":" + (start.shift ? std::to_string(*start.shift) : "null") +
         ",\"scale_rows\":" + truth(start.scale_rows) + ",\"hide_ends\":" + truth(start.hide_ends) +
         ",\"words\":" + truth(start.words) + "}";
}

}  // namespace

std::string draw_html(const AttentionPage& page) {
  for (size_t s = 0; s < page.sentences.size(); ++s) check(page.sentences[s], s);
  return page_with(page.title, "{\"start\":" + json_start(page.start) + ",\"sentences\":" +
                                   json_list(page.sentences, json_sentence) + "}");
}

}  // namespace heed
