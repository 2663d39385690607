// heed view: what a translation attended to, or a language model while it read, drawn.
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/language/language_model.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"
#include "heed/view/page.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder;
  TranslateOptions translate;
  std::string color = "auto", html, svg, png;
  int width = 0;
  Machine machine;
};

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
  std::vector<std::string> out;
  for (const Id id : ids) out.push_back(tokenizer.piece(id));
  return out;
}

Heatmap map_of(const ModelFolder& model, const Translation& t) {
  const Translation::Candidate& c = t.best();
  Heatmap map{pieces(*model.tokenizers.target, c.target.ids),
              pieces(*model.tokenizers.source, t.source.ids),
              {}};
  for (size_t i = 0; i < map.rows.size(); ++i)
    for (size_t j = 0; j < map.columns.size(); ++j) map.weights.push_back(double(c.weights[i][j]));
  return map;
}

// Every layer's and head's weights [1, H, rows, columns], the first so many of each.
std::vector<AttentionPage::Layer> page_layers(const std::vector<Weights>& weights, int64_t rows,
                                              int64_t columns) {
  std::vector<AttentionPage::Layer> out;
  for (const Weights& w : weights) {
    const std::vector<double> all = w.values.values();
    const int64_t Tt = w.values.size(2), Ts = w.values.size(3);
    AttentionPage::Layer layer;
    for (int64_t h = 0; h < w.values.size(1); ++h) {
      std::vector<double> head;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          head.push_back(all[static_cast<size_t>((h * Tt + i) * Ts + j)]);
      layer.heads.push_back(std::move(head));
    }
    out.push_back(std::move(layer));
  }
  return out;
}

// A translation with all its weights: the model reads both sides once more.
AttentionPage::Sentence page_sentence(const ModelFolder& model, const Translation& t) {
  const SpecialIds source = model.tokenizers.source->special();
  const SpecialIds target = model.tokenizers.target->special();
  std::vector<Id> in = t.source.ids, out{target.begin};
  in.push_back(source.end);
  out.insert(out.end(), t.best().target.ids.begin(), t.best().target.ids.end());
  const int64_t Ts = static_cast<int64_t>(in.size()), Tt = static_cast<int64_t>(out.size());
  const Forced forced = model.model->force({ids(in, {1, Ts}), {static_cast<Id>(Ts)}},
                                           ids(out, {1, Tt}), /*want_weights=*/true);
  return {.source = pieces(*model.tokenizers.source, t.source.ids),
          .target = pieces(*model.tokenizers.target, t.best().target.ids),
          .layers = page_layers(forced.weights, Tt - 1, Ts - 1),  // without the ends
          .note = t.best().text};
}

// What a language model attended to as it read each line: rows are the pieces it was to say,
// columns those it had read.
void view_language_model(const Options& o, const LanguageModel& model, Ink ink,
                         const std::function<void(const Heatmap&)>& draw) {
  AttentionPage page{.title = "Attention", .sentences = {}};
  for (const std::string& line : read_lines("-")) {
    if (line.empty()) continue;
    const ReadText r = model.read(line, /*want_weights=*/true);
    const auto T = static_cast<int64_t>(r.in.size());
    const Tensor chosen =
        chosen_weights(r.weights, o.translate.search.layer, o.translate.search.head);
    Heatmap map{pieces(model.tokenizer(), r.out), pieces(model.tokenizer(), r.in), chosen.values()};
    std::printf("%s\n%s\n", line.c_str(), draw_terminal(map, ink, o.width).c_str());
    draw(map);
    if (!o.html.empty())
      page.sentences.push_back({.source = map.columns,
                                .target = map.rows,
                                .layers = page_layers(r.weights, T, T),
                                .note = line});
  }
  if (!o.html.empty()) write_file(o.html, draw_html(page));
}

void view(Options o) {
  require(!o.folder.empty(), "view: wants --model, a folder that 'heed train' made");
  use(o.machine);
  const ModelFolder model = open_model(o.folder);
  require(model.config.score != "none", o.folder,
          ": a model without attention; there is nothing to show");
  o.translate.search.want_weights = true;
  const bool color = o.color == "always" || (o.color == "auto" && stdout_is_terminal());
  const Ink ink = color ? Ink::color : Ink::plain;
  // A picture is of one sentence, the first; the page has them all.
  bool first = true;
  const auto draw = [&](const Heatmap& map) {
    if (first && !o.svg.empty()) write_file(o.svg, draw_svg(map));
    if (first && !o.png.empty()) write_file(o.png, draw_png(map));
    first = false;
  };
  if (is_language_model(model.config))
    return view_language_model(o, LanguageModel(model), ink, draw);
  const Translator translator(model);
  AttentionPage page{.title = "Attention", .sentences = {}};
  for (const Translation& t : translator.translate(read_lines("-"), o.translate)) {
    if (t.source.ids.empty()) continue;
    const Heatmap map = map_of(translator.model(), t);
    std::printf("%s\n-> %s\n%s\n", t.source.text.c_str(), t.best().text.c_str(),
                draw_terminal(map, ink, o.width).c_str());
    draw(map);
    if (!o.html.empty()) page.sentences.push_back(page_sentence(translator.model(), t));
  }
  if (!o.html.empty()) write_file(o.html, draw_html(page));
}

}  // namespace

void add_view(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "view",
      "show what translations attend to, and of language models what reading a text does\n"
      "Examples:\n"
      "  echo 'the black cat sleeps .' | heed view --model m\n"
      "  heed view --model m --html attention.html < text.en    a page with all layers and heads\n"
      "  echo 'a dog runs .' | heed view --model m --svg dog.svg --png dog.png\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--beam", o->translate.search.beam, "hypotheses kept in search")
      ->check(CLI::Range(1, 1000));
  command->add_option("--layer", o->translate.search.layer, "whose weights (-1: the last)");
  command->add_option("--head", o->translate.search.head, "whose weights (-1: the mean of all)");
  command->add_option("--color", o->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command->add_option("--html", o->html, "write a page on which layers and heads can be chosen");
  command->add_option("--svg", o->svg, "write the first sentence's picture");
  command->add_option("--png", o->png, "write the first sentence's picture");
  command->add_option("--width", o->width, "columns of the terminal; 0: as many as it takes");
  add_machine_flags(*command, o->machine);
  command->callback([o] { view(*o); });
}

}  // namespace heed::apps
