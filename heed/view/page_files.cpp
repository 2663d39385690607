// The files of the page: modules of JavaScript, sent one by one by a server and joined to one
// script in a file. Joined, each module is a function that returns what it exports, so that names
// of one do not meet those of another:
//   import { a } from "./b.js";  ->  const { a } = b_js;
//   export function f() {}       ->  function f() {}   ... return { f };
#include <array>
#include <map>

#include "heed/base/check.h"
#include "heed/view/embedded.h"
#include "heed/view/label.h"
#include "heed/view/page.h"
#include "heed/view/page_files.h"

namespace heed {
namespace {

struct File {
  std::string_view name, content;
};

// In the order of their imports.
constexpr std::array kModules = {
    File{"dom.js", kDomJs},       File{"state.js", kStateJs},     File{"palette.js", kPaletteJs},
    File{"scene.js", kSceneJs},   File{"reading.js", kReadingJs}, File{"live.js", kLiveJs},
    File{"raster.js", kRasterJs}, File{"lines.js", kLinesJs},     File{"ribbons.js", kRibbonsJs},
    File{"arcs.js", kArcsJs},     File{"heatmap.js", kHeatmapJs}, File{"steps.js", kStepsJs},
    File{"panel.js", kPanelJs},   File{"heads.js", kHeadsJs},     File{"tree.js", kTreeJs},
    File{"why.js", kWhyJs},       File{"take.js", kTakeJs},       File{"page.js", kPageJs}};

std::string variable(std::string_view file) {
  std::string out(file);
  for (char& c : out)
    if (c == '.') c = '_';
  return out;
}

// What a line declares: of "async function* f(", f.
std::string_view declared(std::string_view line) {
  for (const std::string_view word :
       {"async ", "function* ", "function ", "const ", "let ", "class "})
    if (line.starts_with(word)) line.remove_prefix(word.size());
  size_t end = 0;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) ||
                               line[end] == '_' || line[end] == '$'))
    ++end;
  return line.substr(0, end);
}

std::string joined_modules() {
  constexpr std::string_view kImport = "import ", kExport = "export ", kFrom = " from \"./";
  std::string out = "\"use strict\";\n";
  for (const auto& [name, content] : kModules) {
    std::string exports;
    out += "const " + variable(name) + " = (() => {\n";
    std::string_view rest = content;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1);
      std::string_view line = rest.substr(0, end + 1);
      rest.remove_prefix(end + 1);
      if (line.starts_with(kImport)) {
        const size_t from = line.find(kFrom);
        HEED_ASSERT(from != line.npos);
        const std::string_view file = line.substr(from + kFrom.size());
        out += "const " + std::string(line.substr(kImport.size(), from - kImport.size())) + " = " +
               variable(file.substr(0, file.find('"'))) + ";\n";
        continue;
      }
      if (line.starts_with(kExport)) {
        line.remove_prefix(kExport.size());
        exports += (exports.empty() ? "" : ", ") + std::string(declared(line));
      }
      out += line;
    }
    out += "return { " + exports + " };\n})();\n";
  }
  return out;
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

std::string page_with(const std::string& title, const std::string& data) {
  return fill_in(
      kPageHtml,
      {{"TITLE", escape_xml(to_label(title))},
       {"POLICY", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"},
       {"STYLE", "<style>\n" + std::string(kPageCss) + "</style>"},
       {"SCRIPT", "<script type=\"module\">\n" + joined_modules() + "</script>"},
       {"DATA", data}});
}

std::string empty_page() { return page_with("Attention", "null"); }

std::string live_page() {
  return fill_in(kPageHtml, {{"TITLE", "heed"},
                             {"POLICY", std::string(kLivePolicy)},
                             {"STYLE", "<link rel=\"stylesheet\" href=\"web/page.css\">"},
                             {"SCRIPT", "<script type=\"module\" src=\"web/page.js\"></script>"},
                             {"DATA", "null"}});
}

std::optional<std::string_view> page_file(std::string_view name) {
  if (name == "page.css") return kPageCss;
  for (const auto& [file, content] : kModules)
    if (file == name) return content;
  return std::nullopt;
}

}  // namespace heed
