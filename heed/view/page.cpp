#include "heed/view/page.h"

#include <charconv>
#include <cmath>
#include <map>

#include "heed/base/check.h"
#include "heed/view/embedded.h"
#include "heed/view/label.h"

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

void check(const AttentionPage::Sentence& sentence, size_t number) {
  const size_t wanted = sentence.source.size() * sentence.target.size();
  for (size_t l = 0; l < sentence.layers.size(); ++l) {
    const auto& heads = sentence.layers[l].heads;
    for (size_t h = 0; h < heads.size(); ++h)
      require(heads[h].size() == wanted, "attention page: sentence ", number, ", layer ", l,
              ", head ", h, ": ", sentence.target.size(), " target and ", sentence.source.size(),
              " source words want ", wanted, " weights, given ", heads[h].size());
  }
  if (sentence.marks)
    check(Heatmap{.rows = sentence.target,
                  .columns = sentence.source,
                  .weights = std::vector<double>(wanted),
                  .marks = sentence.marks});
}

std::string json_links(const Links& links) {
  return json_list(links, [](const Link& link) {
    return "[" + std::to_string(link.target) + "," + std::to_string(link.source) + "]";
  });
}

std::string json_sentence(const AttentionPage::Sentence& sentence) {
  const auto layer = [](const AttentionPage::Layer& l) {
    const auto head = [](const std::vector<double>& weights) {
      return json_list(weights, json_number);
    };
    return "{\"name\":" + json_string(l.name) + ",\"heads\":" + json_list(l.heads, head) + "}";
  };
  const auto marks = [](const Heatmap::Marks& m) {
    return ",\"marks\":{\"predicted\":" + json_links(m.predicted) +
           ",\"sure\":" + json_links(m.sure) + ",\"possible\":" + json_links(m.possible) + "}";
  };
  return "\n{\"source\":" + json_list(sentence.source, json_string) +
         ",\"target\":" + json_list(sentence.target, json_string) +
         ",\"note\":" + json_string(sentence.note) +
         ",\"ends\":" + (sentence.ends ? "true" : "false") +
         (sentence.marks ? marks(*sentence.marks) : "") +
         ",\"layers\":" + json_list(sentence.layers, layer) + "}";
}

std::string json_start(const AttentionPage::Start& start) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  return "{\"layer\":" + std::to_string(start.layer) +
         ",\"head\":" + (start.head ? std::to_string(*start.head) : "\"mean\"") +
         ",\"shift\":" + (start.shift ? std::to_string(*start.shift) : "null") +
         ",\"scale_rows\":" + truth(start.scale_rows) + ",\"hide_ends\":" + truth(start.hide_ends) +
         "}";
}

// `text` with every "@NAME@" that `parts` knows replaced, in one pass: parts may hold what looks
// like one.
std::string fill_in(std::string_view text, const std::map<std::string_view, std::string>& parts) {
  std::string out;
  while (true) {
    const size_t begin = text.find('@');
    out += text.substr(0, begin);
    if (begin == text.npos) return out;
    const size_t end = text.find('@', begin + 1);
    const auto part =
        end == text.npos ? parts.end() : parts.find(text.substr(begin + 1, end - begin - 1));
    if (part != parts.end())
      out += part->second;
    else
      out += '@';
    text.remove_prefix(part != parts.end() ? end + 1 : begin + 1);
  }
}

}  // namespace

std::string draw_html(const AttentionPage& page) {
  std::string trees;
  for (size_t s = 0; s < page.sentences.size(); ++s) {
    check(page.sentences[s], s);
    if (page.sentences[s].tree)
      trees += "<div class=\"tree\" data-sentence=\"" + std::to_string(s) + "\" hidden>" +
               draw_svg(*page.sentences[s].tree) + "</div>\n";
  }
  return fill_in(kPageHtml, {{"TITLE", escape_xml(to_label(page.title))},
                             {"STYLE", std::string(kPageCss)},
                             {"SCRIPT", std::string(kPageJs)},
                             {"TREES", trees},
                             {"DATA", "{\"start\":" + json_start(page.start) + ",\"sentences\":" +
                                          json_list(page.sentences, json_sentence) + "}"}});
}

}  // namespace heed
