// heed view: what a translation attended to, or a language model while it read, drawn.
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>
#include <utility>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/inference.h"
#include "apps/translator_flags.h"
#include "heed/alignment/aligner.h"
#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/data/alignment.h"
#include "heed/data/word_weights.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/language/language_model.h"
#include "heed/metrics/metrics.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"
#include "heed/view/page.h"
#include "heed/view/tree.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, input = "-";
  std::string source, target, gold, use, posterior = "joint";
  TranslateOptions translate;
  std::string color = "auto", html, svg, png, scale = "none";
  bool words = false, hide_end = false, one_based = false, zero_based = false;
  const CLI::App* command = nullptr;
  bool tree = false;  // in place of the weights
  bool why = false;
  int width = 0;
  BadLines bad;
  Inference machine;

  bool scale_rows() const { return scale == "rows"; }
};

Ink ink_of(const Options& o) {
  const bool color = o.color == "always" || (o.color == "auto" && stdout_is_terminal());
  return color ? Ink::color : Ink::plain;
}

// ---- what all that is drawn has in common

// What is shown of a sentence, as text and as a picture.
struct Drawing {
  std::string terminal, legend = "";
  std::function<std::string()> svg, png;
};

Drawing drawing_of(const Options& o, const Heatmap& map) {
  return {draw_terminal(map, ink_of(o), o.width), terminal_legend(map, ink_of(o)),
          [map] { return draw_svg(map); }, [map] { return draw_png(map); }};
}

// Prints every sentence; a picture is of one, the first, and the page has them all.
class Gallery {
 public:
  explicit Gallery(const Options& o) : o_(o) {}

  void show(const std::string& heading, const Drawing& drawing) {
    std::cout << heading << '\n' << drawing.terminal << '\n';
    if (first_ && !o_.svg.empty()) write_file(o_.svg, drawing.svg());
    if (first_ && !o_.png.empty()) write_file(o_.png, drawing.png());
    first_ = false;
    legend_ = drawing.legend;
  }
  AttentionPage page{.title = "Attention", .sentences = {}};

  void finish() {
    require(!first_, "view: no sentence to show; ",
            o_.source.empty() ? name_of_input(o_.input) : o_.source, " has no line with words");
    std::cout << legend_;
    page.start.scale_rows = o_.scale_rows();
    page.start.hide_ends = o_.hide_end;
    if (!o_.html.empty()) write_file(o_.html, draw_html(page));
  }

 private:
  const Options& o_;
  bool first_ = true;
  std::string legend_;
};

struct Pairs {
  std::vector<std::string> source, target;
  std::vector<std::vector<GoldLink>> gold;  // or empty
};

Pairs read_pairs(Options& o) {
  Pairs pairs{read_text(o.source, o.bad.told()), read_text(o.target, o.bad.told()), {}};
  require(pairs.source.size() == pairs.target.size(), o.source, " has ", pairs.source.size(),
          " lines, ", o.target, " has ", pairs.target.size());
  if (o.gold.empty()) return pairs;
  const std::vector<std::string> lines = zero_based_gold(
      read_lines(o.gold), o.gold, {.from_one = o.one_based, .from_zero = o.zero_based});
  require(lines.size() == pairs.source.size(), o.source, " has ", pairs.source.size(), " lines, ",
          o.gold, " has ", lines.size());
  for (const std::string& line : lines) pairs.gold.push_back(parse_gold_alignment(line));
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t sources = split_words(pairs.source[i]).size();
    const size_t targets = split_words(pairs.target[i]).size();
    for (const GoldLink& g : pairs.gold[i])
      require(std::cmp_less(g.link.source, sources) && std::cmp_less(g.link.target, targets),
              o.gold, ": line ", i + 1, ": link ", g.link.source, "-", g.link.target,
              " is outside a sentence of ", sources, " and one of ", targets, " words");
  }
  return pairs;
}

// Predicted links beside gold ones, all between words.
Heatmap::Marks marks_of(Links predicted, const std::vector<GoldLink>& gold) {
  Heatmap::Marks out{.predicted = std::move(predicted)};
  for (const GoldLink& g : gold) (g.sure ? out.sure : out.possible).push_back(g.link);
  return out;
}

// ---- translators

// What the rows and columns of a translation's weights stand for, pieces or words, the ends last.
struct Sides {
  std::vector<std::string> source, target;        // their names
  std::vector<int32_t> source_word, target_word;  // to which of them a piece, or the end, belongs
};

Sides sides_of(const ModelFolder& model, const Translation& t, bool words) {
  const auto side = [&](const Tokenizer& tokenizer, const Sentence& s,
                        std::vector<std::string>& names, std::vector<int32_t>& word) {
    if (words) {
      word = s.word;
      const auto last = word.empty() ? 0 : static_cast<size_t>(word.back()) + 1;
      for (const std::string_view w : split_words(s.text))
        if (names.size() < last) names.emplace_back(w);
      names.resize(last);  // of a text without words there is one, which has no name
    } else {
      names = tokenizer.pieces(s.ids);
      word.resize(s.ids.size());
      std::iota(word.begin(), word.end(), 0);
    }
    word.push_back(static_cast<int32_t>(names.size()));
    names.push_back(tokenizer.piece(tokenizer.special().end));
  };
  Sides out;
  side(*model.tokenizers.source, t.source, out.source, out.source_word);
  side(*model.tokenizers.target, t.best().target, out.target, out.target_word);
  return out;
}

std::vector<double> joined(const Sides& sides, const PieceWeights& weights) {
  const WordWeights all = join_weights(weights, sides.source_word, sides.target_word);
  std::vector<double> out(all.values.begin(), all.values.end());
  // A translation that could not be has none.
  out.resize(sides.source.size() * sides.target.size(), std::numeric_limits<double>::quiet_NaN());
  return out;
}

void drop_ends(Heatmap& map) {
  const size_t columns = map.columns.size(), rows = map.rows.size();
  std::vector<double> kept;
  for (size_t i = 0; i + 1 < rows; ++i)
    for (size_t j = 0; j + 1 < columns; ++j) kept.push_back(map.weights[i * columns + j]);
  map.weights = std::move(kept);
  map.rows.pop_back();
  map.columns.pop_back();
}

Heatmap map_of(const Options& o, const Translation& t, const Sides& sides,
               const std::optional<Heatmap::Marks>& marks) {
  Heatmap map{.rows = sides.target,
              .columns = sides.source,
              .weights = joined(sides, t.best().weights),
              .marks = marks,
              .scale_rows = o.scale_rows()};
  if (o.hide_end) drop_ends(map);
  return map;
}

// Those whose words are still there where a sentence was cut.
Links kept_links(const Links& links, const Sides& sides) {
  Links out;
  for (const Link& link : links)
    if (std::cmp_less(link.source, sides.source.size() - 1) &&
        std::cmp_less(link.target, sides.target.size() - 1))
      out.push_back(link);
  return out;
}

// Every layer's and head's weights [1, H, rows, columns], each as `draw` makes it of its rows.
std::vector<AttentionPage::Layer> page_layers(
    const std::vector<Weights>& weights,
    const std::function<std::vector<double>(PieceWeights)>& draw) {
  std::vector<AttentionPage::Layer> out;
  for (const Weights& w : weights) {
    const std::vector<double> all = w.values.values();
    const auto H = w.values.size(1), Tt = w.values.size(2), Ts = w.values.size(3);
    AttentionPage::Layer layer;
    for (int64_t h = 0; h < H; ++h) {
      PieceWeights rows;
      for (int64_t i = 0; i < Tt; ++i)
        rows.emplace_back(all.begin() + (h * Tt + i) * Ts, all.begin() + (h * Tt + i + 1) * Ts);
      layer.heads.push_back(draw(std::move(rows)));
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
                          .score = n.score,
                          .finished = n.finished,
                          .best = n.best});
  return tree;
}

// Along the way that won: what might have stood there instead.
std::vector<std::vector<AttentionPage::Candidate>> candidates_of(const ModelFolder& model,
                                                                 const Translation& t) {
  std::vector<std::vector<AttentionPage::Candidate>> out;
  for (const SearchNode& n : t.tree) {
    if (!n.best) continue;
    out.emplace_back();
    for (const SearchNode::Candidate& c : n.candidates)
      out.back().push_back({model.tokenizers.target->piece(c.token), std::exp(c.log_probability)});
  }
  return out;
}

// The head that aligns, unless another is named.
AlignmentHead shown_head(const Options& o, const Translator& translator) {
  const SearchOptions& asked = o.translate.search;
  if (!asked.layer && !asked.head) return translator.model().alignment;
  return {asked.layer.value_or(-1), asked.head.value_or(-1), asked.shift};
}

std::vector<double> flat(const PieceWeights& rows) {
  std::vector<double> out;
  for (const std::vector<float>& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

AttentionPage::Words words_of(const Sentence& s) {
  AttentionPage::Words out;
  const auto last = s.word.empty() ? 0 : static_cast<size_t>(s.word.back()) + 1;
  for (const std::string_view w : split_words(s.text)) out.names.emplace_back(w);
  out.names.resize(std::max(last, out.names.size()));
  out.of.assign(s.word.begin(), s.word.end());
  return out;
}

AttentionPage::Why why_of(const ModelConfig& config, const Translator::Attentions& all) {
  AttentionPage::Why out{config.score, config.weigh, config.temperature, {}, all.before};
  for (const std::vector<Translator::HeadTerms>& heads : all.terms) {
    out.layers.emplace_back();
    for (const Translator::HeadTerms& h : heads)
      out.layers.back().push_back({.form = h.form,
                                   .size = h.size,
                                   .value_size = h.value_size,
                                   .q = h.q,
                                   .k = h.k,
                                   .v = h.v,
                                   .bias = h.bias,
                                   .values = h.values,
                                   .scale = h.scale});
  }
  return out;
}

// The page has pieces; joining them to words is a choice there.
AttentionPage::Sentence page_sentence(const Translator& translator, const Translation& t,
                                      const std::optional<Heatmap::Marks>& marks, bool why) {
  const ModelFolder& model = translator.model();
  const Sides sides = sides_of(model, t, /*words=*/false);
  AttentionPage::Sentence page{.source = sides.source,
                               .target = sides.target,
                               .layers = {},
                               .ends = true,
                               .marks = marks,
                               .source_words = words_of(t.source),
                               .target_words = words_of(t.best().target),
                               .log_probability = t.best().log_probability,
                               .score = t.best().score};
  if (!t.tree.empty()) page.tree = tree_of(model, t), page.candidates = candidates_of(model, t);
  if (has_attention(model.config)) {
    const Translator::Attentions all = translator.attentions(t);
    page.layers = page_layers(all.cross, flat);
    page.encoder = page_layers(all.encoder_self, flat);
    page.decoder = page_layers(all.decoder_self, flat);
    if (why) page.why = why_of(model.config, all);
    if (!t.best().weights.empty()) page.chosen = flat(t.best().weights);
  }
  return page;
}

// The page begins with the head that aligns unless another is named, and then at the step that was
// named with it.
AttentionPage::Start start_of(const Options& o, const AttentionPage& page, int64_t shift) {
  const SearchOptions& asked = o.translate.search;
  AttentionPage::Start out{.words = o.words};
  const size_t layers = page.sentences.empty() ? 0 : page.sentences.front().layers.size();
  if (layers == 0) return out;
  if (asked.layer || asked.head) {
    const int64_t layer = asked.layer.value_or(-1), head = asked.head.value_or(-1);
    out.layer = layer < 0 ? layers - 1 : static_cast<size_t>(layer);
    if (head >= 0) out.head = static_cast<size_t>(head);
  }
  out.shift = static_cast<int>(shift);
  return out;
}

void view_translations(const Options& o, const Translator& translator, const Pairs& pairs,
                       const std::vector<Translation>& found) {
  const ModelFolder& model = translator.model();
  Gallery gallery(o);
  for (size_t i = 0; i < found.size(); ++i) {
    const Translation& t = found[i];
    if (t.cut)
      std::fprintf(stderr, "heed: line %zu has more than %lld pieces; the rest was left out\n",
                   i + 1, static_cast<long long>(translator.longest(o.translate)));
    if (t.source.ids.empty()) continue;
    const Sides sides = sides_of(model, t, o.words);
    std::optional<Heatmap::Marks> marks, word_marks;
    if (!pairs.gold.empty()) {
      word_marks = marks_of(
          word_alignment(model, t.source, t.best().target, t.best().weights, o.translate.extract),
          pairs.gold[i]);
      if (t.cut) {
        const Sides words = sides_of(model, t, /*words=*/true);
        for (Links* links : {&word_marks->predicted, &word_marks->sure, &word_marks->possible})
          *links = kept_links(*links, words);
      }
      marks = word_marks;
      if (!o.words)
        for (Links* links : {&marks->predicted, &marks->sure, &marks->possible})
          *links = to_pieces(*links, t.source.word, t.best().target.word);
    }
    const std::string heading = t.source.text + "\n-> " + t.best().text + "\nlog probability " +
                                format_number(t.best().log_probability, 2) + ", score " +
                                format_number(t.best().score, 3);
    if (o.tree) {
      const SearchTree tree = tree_of(model, t);
      gallery.show(heading, {.terminal = draw_terminal(tree, ink_of(o), o.width),
                             .svg = [tree] { return draw_svg(tree); },
                             .png = {}});
    } else {
      gallery.show(heading, drawing_of(o, map_of(o, t, sides, marks)));
    }
    if (!o.html.empty()) {
      gallery.page.sentences.push_back(page_sentence(translator, t, word_marks, o.why));
      gallery.page.sentences.back().number = static_cast<int64_t>(i) + 1;
    }
  }
  gallery.page.start = start_of(o, gallery.page, shown_head(o, translator).shift);
  gallery.finish();
}

// ---- language models

// What a language model attended to as it read each line: rows are the pieces it was to say,
// columns those it had read.
void view_language_model(const Options& o, const LanguageModel& model,
                         const std::vector<std::string>& lines) {
  Gallery gallery(o);
  int64_t number = 0;
  for (const std::string& line : lines) {
    ++number;
    if (model.tokenizer().encode(line).ids.empty()) continue;
    const ReadText r = model.read(line, /*want_weights=*/true, number);
    const UseDevice host(Device::cpu);  // where what was read is
    const Tensor chosen = chosen_weights(r.weights, o.translate.search.layer.value_or(-1),
                                         o.translate.search.head.value_or(-1));
    const Heatmap map{.rows = model.tokenizer().pieces(r.out),
                      .columns = model.tokenizer().pieces(r.in),
                      .weights = chosen.values(),
                      .scale_rows = o.scale_rows()};
    gallery.show(line, drawing_of(o, map));
    const auto first_columns = [&](const PieceWeights& rows) {
      std::vector<double> out;
      for (size_t i = 0; i < map.rows.size(); ++i)
        out.insert(out.end(), rows[i].begin(), rows[i].begin() + std::ssize(map.columns));
      return out;
    };
    if (!o.html.empty())
      gallery.page.sentences.push_back({.source = map.columns,
                                        .target = map.rows,
                                        .layers = page_layers(r.weights, first_columns),
                                        .number = number,
                                        .note = line,
                                        .past = true});
  }
  gallery.page.start = start_of(o, gallery.page, 0);
  gallery.page.start.shift.reset();
  gallery.finish();
}

// ---- aligners

void view_aligner(Options& o) {
  const WordAligner aligner = WordAligner::load(o.use);
  const Pairs pairs = read_pairs(o);
  AlignerOptions options{.want_posteriors = true};
  take_threshold(options, o.translate.extract);
  const AlignedPairs found = aligner.align(pairs.source, pairs.target, options);
  Gallery gallery(o);
  gallery.page.title = "Posteriors";
  for (size_t i = 0; i < found.posteriors.size(); ++i) {
    const Posteriors& p = found.posteriors[i];
    if (p.sources == 0 || p.targets == 0) continue;
    const auto names = [](const std::string& line) {
      std::vector<std::string> out;
      for (const std::string_view word : split_words(line)) out.emplace_back(word);
      out.emplace_back("NULL");  // the empty word
      return out;
    };
    const auto weights = [](const std::vector<float>& of) {
      return std::vector<double>(of.begin(), of.end());
    };
    Heatmap map{.rows = names(pairs.target[i]),
                .columns = names(pairs.source[i]),
                .weights = weights(o.posterior == "forward"    ? p.forward
                                   : o.posterior == "backward" ? p.backward
                                                               : p.joint),
                .scale_rows = o.scale_rows()};
    if (!pairs.gold.empty()) map.marks = marks_of(found.links[i], pairs.gold[i]);
    if (!o.html.empty())
      gallery.page.sentences.push_back(
          {.source = map.columns,
           .target = map.rows,
           .layers = {{.heads = {weights(p.forward)}, .name = "forward"},
                      {.heads = {weights(p.backward)}, .name = "backward"},
                      {.heads = {weights(p.joint)}, .name = "joint"}},
           .number = static_cast<int64_t>(i) + 1,
           .ends = true,
           .marks = map.marks});
    if (o.hide_end) drop_ends(map);
    gallery.show(pairs.source[i] + "\n-> " + pairs.target[i], drawing_of(o, map));
  }
  gallery.page.start.layer = o.posterior == "forward" ? 0 : o.posterior == "backward" ? 1 : 2;
  gallery.finish();
}

// ---- the command

void check_usage(const Options& o) {
  want(o.folder.empty() || o.use.empty(), "a picture is of --model or of --use: one of these");
  want(!o.folder.empty() || !o.use.empty(),
       "--model is required, a folder that 'heed train' made; or --use, a file of 'heed align'");
  want(o.source.empty() == o.target.empty(), "--source and --target go together: given pairs");
  want(o.use.empty() || !o.source.empty(), "--use draws given pairs: --source and --target");
  want(o.source.empty() || o.input == "-", "--source and --target are shown, or --input: not both");
  want(o.gold.empty() || !o.source.empty(),
       "--gold has the links of given pairs: --source and --target");
  want(!o.one_based || !o.zero_based, "--one-based and --zero-based exclude each other");
  want(!o.gold.empty() || !(o.one_based || o.zero_based),
       "--one-based and --zero-based are of --gold");
  want(!o.why || !o.html.empty(), "--why is of the page: --html");
  want(o.posterior == "joint" || !o.use.empty(), "--posterior is of an aligner: --use");
  const SearchOptions& s = o.translate.search;
  want(!o.tree || (o.source.empty() && o.use.empty()),
       "--tree shows how a translation was found; given pairs are not searched for");
  want(o.png.empty() || !o.tree, "--png draws weights; a tree goes to --svg");
  want(o.use.empty() || !(s.layer || s.head || s.shift),
       "--layer, --head and --shift are of a model's weights");
}

void view(Options o) {
  check_usage(o);
  for (const std::string& path : {o.html, o.svg, o.png}) want_writable(path);
  use(o.machine);
  if (!o.use.empty()) return view_aligner(o);
  const auto loaded = opened(o.folder, o.machine);
  const ModelFolder& model = loaded->folder();
  require(has_attention(model.config) || !is_language_model(model.config), o.folder,
          ": a language model without attention; there is nothing to show");
  require(has_attention(model.config) || o.tree, o.folder,
          ": a model without attention; there is nothing to show but the search (--tree)");
  o.translate.search.want_weights = has_attention(model.config);
  o.translate.search.want_tree = o.source.empty() && (o.tree || !o.html.empty());
  if (is_language_model(model.config)) {
    want(!o.tree, "--tree shows how a translation was found; this is a language model");
    want(!o.words && !o.hide_end && o.source.empty(),
         "--words, --hide-end, --source and --target are of translators; this is a language model");
  }
  if (!o.source.empty()) {
    const Translator translator(loaded);
    const Pairs pairs = read_pairs(o);
    o.bad.sum_up();
    return view_translations(o, translator, pairs,
                             translator.score(pairs.source, pairs.target, o.translate));
  }
  const std::vector<std::string> lines = read_text(o.input, o.bad.told());
  o.bad.sum_up();
  if (is_language_model(model.config)) return view_language_model(o, LanguageModel(loaded), lines);
  const Translator translator(loaded);
  take_search_defaults(o.translate, *o.command, model);
  view_translations(o, translator, {}, translator.translate(lines, o.translate));
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
      "  echo 'a dog runs .' | heed view --model m --beam 3 --tree    what the search kept\n"
      "  heed view --model m --source a.en --target a.fr --gold gold.align --words   given pairs\n"
      "  heed view --use en-fr.aligner --source a.en --target a.fr    an aligner's posteriors\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--use", o->use,
                      "instead: a file of 'heed align --save', whose posteriors are drawn");
  command->add_option("--input", o->input, "lines of text (plain or packed); -: standard input");
  command->add_option("--source", o->source, "given pairs instead: their source, and");
  command->add_option("--target", o->target, "their target");
  command->add_option("--gold", o->gold,
                      "the pairs' true links (sure 0-0, possible 0p1), drawn beside those that are "
                      "predicted");
  command->add_flag("--one-based", o->one_based, "--gold counts words from 1");
  command->add_flag("--zero-based", o->zero_based, "--gold counts from 0, although none has a 0");
  command->add_flag("--words", o->words, "pieces joined to words");
  command->add_option("--scale", o->scale, "rows: shades are of the row's largest weight; none")
      ->check(CLI::IsMember({"none", "rows"}));
  command->add_flag("--hide-end", o->hide_end,
                    "without the last row and column, </s>; rows may then sum to less than one");
  command
      ->add_option("--posterior", o->posterior,
                   "--use: forward (rows sum to one), backward (columns do) or joint, by which "
                   "links are chosen")
      ->check(CLI::IsMember({"forward", "backward", "joint"}));
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
  command->add_flag("--tree", o->tree,
                    "the beam as a tree, in place of the weights (the page has both)");
  command->add_option("--color", o->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command->add_option("--html", o->html, "write a page on which layers and heads can be chosen");
  command->add_flag(
      "--why", o->why,
      "--html: and what every head compares and reads, so that the page can say why a "
      "weight is what it is; the file grows");
  command->add_option("--svg", o->svg, "write the first sentence's picture");
  command->add_option("--png", o->png, "write the first sentence's picture");
  command->add_option("--width", o->width, "columns of the terminal; 0: as many as it takes")
      ->check(not_negative());
  add_extract_flags(*command, o->translate.extract);
  o->bad.add_flag(*command);
  o->command = command;
  add_inference_flags(*command, o->machine);
  command->callback([o] { view(*o); });
}

}  // namespace heed::apps
