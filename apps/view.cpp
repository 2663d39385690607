// heed view: what a translation attended to, or a language model while it read, drawn.
#include <cstdio>
#include <functional>
#include <iostream>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/inference.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/language/language_model.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"
#include "heed/view/page.h"
#include "heed/view/tree.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, input = "-";
  TranslateOptions translate;
  std::string color = "auto", html, svg, png;
  int width = 0;
  BadLines bad;
  Inference machine;
};

Ink ink_of(const Options& o) {
  const bool color = o.color == "always" || (o.color == "auto" && stdout_is_terminal());
  return color ? Ink::color : Ink::plain;
}

Heatmap map_of(const ModelFolder& model, const Translation& t) {
  const Translation::Candidate& c = t.best();
  Heatmap map{model.tokenizers.target->pieces(c.target.ids),
              model.tokenizers.source->pieces(t.source.ids),
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

SearchTree tree_of(const ModelFolder& model, const Translation& t) {
  SearchTree tree;
  for (const SearchNode& n : t.tree)
    tree.nodes.push_back({.word = model.tokenizers.target->piece(n.token),
                          .parent = static_cast<int>(n.parent),
                          .log_probability = n.log_probability,
                          .finished = n.finished,
                          .best = n.best});
  return tree;
}

AttentionPage::Sentence page_sentence(const Translator& translator, const Translation& t) {
  const ModelFolder& model = translator.model();
  AttentionPage::Sentence page{.source = model.tokenizers.source->pieces(t.source.ids),
                               .target = model.tokenizers.target->pieces(t.best().target.ids),
                               .layers = {},
                               .note = t.best().text};
  if (!t.tree.empty()) page.tree = tree_of(model, t);
  if (has_attention(model.config))
    page.layers = page_layers(translator.all_weights(t), static_cast<int64_t>(page.target.size()),
                              static_cast<int64_t>(page.source.size()));  // without the ends
  return page;
}

// What a language model attended to as it read each line: rows are the pieces it was to say,
// columns those it had read.
void view_language_model(const Options& o, const LanguageModel& model,
                         const std::vector<std::string>& lines) {
  AttentionPage page{.title = "Attention", .sentences = {}};
  bool first = true;
  int64_t number = 0;
  for (const std::string& line : lines) {
    ++number;
    if (model.tokenizer().encode(line).ids.empty()) continue;
    const ReadText r = model.read(line, /*want_weights=*/true, number);
    const auto T = static_cast<int64_t>(r.in.size());
    const UseDevice host(Device::cpu);  // where what was read is
    const Tensor chosen = chosen_weights(r.weights, o.translate.search.layer.value_or(-1),
                                         o.translate.search.head.value_or(-1));
    const Heatmap map{model.tokenizer().pieces(r.out), model.tokenizer().pieces(r.in),
                      chosen.values()};
    std::cout << line << '\n' << draw_terminal(map, ink_of(o), o.width) << '\n';
    if (first && !o.svg.empty()) write_file(o.svg, draw_svg(map));
    if (first && !o.png.empty()) write_file(o.png, draw_png(map));
    first = false;
    if (!o.html.empty())
      page.sentences.push_back({.source = map.columns,
                                .target = map.rows,
                                .layers = page_layers(r.weights, T, T),
                                .note = line});
  }
  require(!first, "view: no sentence to show; ", name_of_input(o.input), " has no line with words");
  if (!o.html.empty()) write_file(o.html, draw_html(page));
}

// What is shown of a translation, as text and as a picture.
struct Drawing {
  std::string terminal;
  std::function<std::string()> svg, png;
};

Drawing drawing_of(const Options& o, const ModelFolder& model, const Translation& t) {
  const Ink ink = ink_of(o);
  if (o.translate.search.want_tree) {
    const SearchTree tree = tree_of(model, t);
    return {draw_terminal(tree, ink, o.width), [tree] { return draw_svg(tree); }, {}};
  }
  const Heatmap map = map_of(model, t);
  return {draw_terminal(map, ink, o.width), [map] { return draw_svg(map); },
          [map] { return draw_png(map); }};
}

void view(Options o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed train' made");
  want(o.png.empty() || !o.translate.search.want_tree, "--png draws weights; a tree goes to --svg");
  for (const std::string& path : {o.html, o.svg, o.png}) want_writable(path);
  use(o.machine);
  const auto loaded = opened(o.folder, o.machine);
  const ModelFolder& model = loaded->folder();
  require(has_attention(model.config) || !is_language_model(model.config), o.folder,
          ": a language model without attention; there is nothing to show");
  require(has_attention(model.config) || o.translate.search.want_tree, o.folder,
          ": a model without attention; there is nothing to show but the search (--tree)");
  o.translate.search.want_weights = !o.translate.search.want_tree;
  want(!o.translate.search.want_tree || !is_language_model(model.config),
       "--tree shows how a translation was found; this is a language model");
  const std::vector<std::string> lines = read_text(o.input, o.bad.told());
  o.bad.sum_up();
  if (is_language_model(model.config)) return view_language_model(o, LanguageModel(loaded), lines);
  const Translator translator(loaded);
  AttentionPage page{.title = "Attention", .sentences = {}};
  bool first = true;
  int64_t number = 0;
  for (const Translation& t : translator.translate(lines, o.translate)) {
    ++number;
    if (t.cut)
      std::fprintf(stderr, "heed: line %lld has more than %zu pieces; the rest was left out\n",
                   static_cast<long long>(number), t.source.ids.size());
    if (t.source.ids.empty()) continue;
    const Drawing drawing = drawing_of(o, model, t);
    std::cout << t.source.text << "\n-> " << t.best().text << '\n' << drawing.terminal << '\n';
    // A picture is of one sentence, the first; the page has them all.
    if (first && !o.svg.empty()) write_file(o.svg, drawing.svg());
    if (first && !o.png.empty()) write_file(o.png, drawing.png());
    first = false;
    if (!o.html.empty()) page.sentences.push_back(page_sentence(translator, t));
  }
  require(!first, "view: no sentence to show; ", name_of_input(o.input), " has no line with words");
  if (!o.html.empty()) write_file(o.html, draw_html(page));
}

}  // namespace

void add_view(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "view",
      "show what translations attend to and how they were found, and what a language model reads\n"
      "Examples:\n"
      "  echo 'the black cat sleeps .' | heed view --model m\n"
      "  heed view --model m --html attention.html < text.en    a page with all layers and heads\n"
      "  echo 'a dog runs .' | heed view --model m --svg dog.svg --png dog.png\n"
      "  echo 'a dog runs .' | heed view --model m --beam 3 --tree    what the search kept\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--input", o->input, "lines of text (plain or gzip); -: standard input");
  command->add_option("--beam", o->translate.search.beam, "hypotheses kept in search")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--layer", o->translate.search.layer,
                   "whose weights (-1: the last; default: as 'align --choose' chose)")
      ->check(CLI::Range(-1, 1000000));
  command
      ->add_option("--head", o->translate.search.head,
                   "whose weights (-1: the mean of all; default: as chosen)")
      ->check(CLI::Range(-1, 1000000));
  command
      ->add_option("--shift", o->translate.search.shift,
                   "with --layer or --head: a word's weights are those of the step that writes it "
                   "(0), or of the next, which reads it (1)")
      ->check(CLI::Range(0, 1));
  command->add_flag("--tree", o->translate.search.want_tree,
                    "the beam as a tree, in place of the weights (the page has both)");
  command->add_option("--color", o->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command->add_option("--html", o->html, "write a page on which layers and heads can be chosen");
  command->add_option("--svg", o->svg, "write the first sentence's picture");
  command->add_option("--png", o->png, "write the first sentence's picture");
  command->add_option("--width", o->width, "columns of the terminal; 0: as many as it takes")
      ->check(not_negative());
  o->bad.add_flag(*command);
  add_inference_flags(*command, o->machine);
  command->callback([o] { view(*o); });
}

}  // namespace heed::apps
