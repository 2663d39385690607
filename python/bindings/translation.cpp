// heed._core.Translator and what it gives.
#include <mutex>
#include <numeric>
#include <set>

#include "bindings.h"
#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/translation/config_file.h"
#include "heed/translation/text_translator.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"
#include "heed/view/page.h"
#include "heed/view/tree.h"

namespace heed::python {
namespace {

// ---- options

// Takes what is under `key`, if it is there and not None.
template <class T, class U>
void take(const py::dict& from, const char* key, U& into) {
  if (from.contains(key) && !from[key].is_none()) into = from[key].cast<T>();
}

// What a call says; where it says nothing of the search, what the model's makers search with.
TranslateOptions options_of(const ModelFolder& model, const py::dict& from) {
  TranslateOptions o;
  SearchOptions& s = o.search;
  take<int64_t>(from, "beam", s.beam);
  take<int64_t>(from, "best", s.best);
  take<double>(from, "patience", s.patience);
  take<double>(from, "normalize", s.normalize);
  take<double>(from, "coverage", s.coverage);
  take<int64_t>(from, "min_length", s.min_length);
  take<double>(from, "max_ratio", s.max_ratio);
  take<int64_t>(from, "no_repeat", s.no_repeat);
  take<bool>(from, "sample", s.sample);
  take<double>(from, "temperature", s.temperature);
  take<int64_t>(from, "top_k", s.top_k);
  take<double>(from, "top_p", s.top_p);
  take<uint64_t>(from, "seed", s.seed);
  take<int64_t>(from, "layer", s.layer);
  take<int64_t>(from, "head", s.head);
  take<int64_t>(from, "shift", s.shift);
  take<bool>(from, "alignment", s.want_weights);
  take<bool>(from, "tree", s.want_tree);
  take<bool>(from, "replace_unk", o.replace_unknown);
  take<int64_t>(from, "batch", o.batch);
  take<int64_t>(from, "batch_tokens", o.batch_tokens);
  take<int64_t>(from, "max_length", o.max_length);
  take<int64_t>(from, "first_line", o.first_line);
  take<double>(from, "threshold", o.extract.threshold);
  if (from.contains("extract")) o.extract.how = extract_named(from["extract"].cast<std::string>());
  std::set<std::string> given;
  fields(model.search, [&](const char* name, const auto&) {
    // max_length of a call is of sources.
    if (std::string_view(name) != "max_length" && from.contains(name)) given.insert(name);
  });
  take_search_defaults(o, model, given);
  require(s.sample || s.best <= s.beam, "translate: best=", s.best,
          " wants a beam of as many, given ", s.beam);
  require(!s.sample || s.best == 1,
          "translate: sample draws one translation of a line; best is for "
          "searches, given ",
          s.best);
  require(s.shift == 0 || s.layer || s.head,
          "translate: shift is of the head that layer and head "
          "name; a model's own has its own");
  check(s);
  return o;
}

// ---- results

// A matrix or more of weights, in one piece of memory that arrays look at.
struct Numbers {
  std::vector<py::ssize_t> shape;
  std::vector<float> values;
};

py::array view_of(const std::shared_ptr<Numbers>& n) {
  return python::view_of(n->values.data(), n->shape, n);
}

// A line and its translations. Weights that were not asked for are computed when they are looked
// at: the model then reads both sides once more.
class Result {
 public:
  Result(Translator translator, Translation translation, const TranslateOptions& options)
      : translator_(std::move(translator)),
        translation_(std::move(translation)),
        extract_(options.extract),
        weights_(translation_.candidates.size()),
        attention_(translation_.candidates.size()) {
    const SearchOptions& s = options.search;
    head_ = s.layer || s.head ? AlignmentHead{s.layer.value_or(-1), s.head.value_or(-1), s.shift}
                              : model().alignment;
  }

  const Translation& translation() const { return translation_; }
  const Translation::Candidate& candidate(size_t i) const {
    require(i < translation_.candidates.size(), "result: hypothesis ", i, " of ",
            translation_.candidates.size());
    return translation_.candidates[i];
  }
  std::vector<std::string> source_pieces() const {
    return model().tokenizers.source->pieces(translation_.source.ids);
  }
  std::vector<std::string> pieces(size_t i) const {
    return model().tokenizers.target->pieces(candidate(i).target.ids);
  }
  bool attends() const { return has_attention(model().config); }

  // [layer, head, target, source], the ends last.
  std::shared_ptr<Numbers> attention(size_t i) {
    candidate(i);
    const std::lock_guard lock(mutex_);
    if (!attention_[i]) attention_[i] = all_weights(i);
    return attention_[i];
  }

  // [target, source]: those of the head that aligns.
  std::shared_ptr<Numbers> weights(size_t i) {
    candidate(i);
    const std::lock_guard lock(mutex_);
    if (!weights_[i]) weights_[i] = as_numbers(rows(i));
    return weights_[i];
  }

  // Links between words, by the options of the call.
  std::vector<std::pair<int, int>> links(size_t i) {
    const Translation::Candidate& c = candidate(i);
    if (translation_.source.ids.empty()) return {};
    std::vector<std::pair<int, int>> out;
    for (const Link& link :
         word_alignment(model(), translation_.source, c.target, rows(i), extract_))
      out.emplace_back(link.source, link.target);
    return out;
  }

  SearchTree tree() const {
    require(!translation_.tree.empty(),
            "result: the search's tree was not kept; translate with tree=True");
    SearchTree out;
    for (const SearchNode& n : translation_.tree)
      out.nodes.push_back({.word = model().tokenizers.target->piece(n.token),
                           .parent = static_cast<int>(n.parent),
                           .log_probability = n.log_probability,
                           .finished = n.finished,
                           .best = n.best});
    return out;
  }

  Heatmap heatmap(size_t i, bool words) {
    const Sides sides = sides_of(i, words);
    return {.rows = sides.target, .columns = sides.source, .weights = joined(sides, rows(i))};
  }

  // The page of `heed view --html`, with this sentence alone.
  std::string page(size_t i, bool words) {
    const Sides sides = sides_of(i, words);
    AttentionPage::Sentence s{.source = sides.source,
                              .target = sides.target,
                              .layers = {},
                              .note = candidate(i).text,
                              .ends = true};
    if (!translation_.tree.empty()) s.tree = tree();
    const int64_t shift = words ? head_.shift : 0;
    if (attends() && !translation_.source.ids.empty())
      for (const auto& layer : by_head(*attention(i))) {
        AttentionPage::Layer& out = s.layers.emplace_back();
        for (PieceWeights head : layer) {
          shift_weights(head, shift);
          out.heads.push_back(joined(sides, head));
        }
      }
    AttentionPage page{.title = "Attention", .sentences = {s}};
    if (!s.layers.empty()) {
      page.start.layer = head_.layer < 0 ? s.layers.size() - 1 : static_cast<size_t>(head_.layer);
      if (head_.head >= 0) page.start.head = static_cast<size_t>(head_.head);
      if (!words) page.start.shift = static_cast<int>(head_.shift);
    }
    return draw_html(page);
  }

 private:
  struct Sides {  // what rows and columns stand for, and to which of them a piece belongs
    std::vector<std::string> source, target;
    std::vector<int32_t> source_word, target_word;
  };

  const ModelFolder& model() const { return translator_.model(); }

  void want_attention() const {
    require(attends(), model().path.string(), ": a model without attention; it has no weights");
  }

  Translation alone(size_t i) const {
    return {.source = translation_.source, .candidates = {candidate(i)}};
  }

  std::shared_ptr<Numbers> all_weights(size_t i) const {
    want_attention();
    auto out = std::make_shared<Numbers>();
    if (translation_.source.ids.empty()) {
      out->shape = {0, 0, 0, 0};
      return out;
    }
    const std::vector<Weights> found = translator_.all_weights(alone(i));
    const Shape& s = found.at(0).values.shape();  // [1, H, Tt, Ts]
    out->shape = {std::ssize(found), s[1], s[2], s[3]};
    out->values.reserve(static_cast<size_t>(std::ssize(found) * s.count()));
    for (const Weights& w : found) {
      require(w.values.shape() == s, "result: layers of different shapes, ", s, " and ",
              w.values.shape());
      const float* const data = w.values.data<float>();
      out->values.insert(out->values.end(), data, data + s.count());
    }
    return out;
  }

  static std::vector<std::vector<PieceWeights>> by_head(const Numbers& all) {
    std::vector<std::vector<PieceWeights>> out(static_cast<size_t>(all.shape[0]));
    const float* at = all.values.data();
    for (auto& layer : out)
      for (py::ssize_t h = 0; h < all.shape[1]; ++h) {
        PieceWeights& rows = layer.emplace_back();
        for (py::ssize_t t = 0; t < all.shape[2]; ++t, at += all.shape[3])
          rows.emplace_back(at, at + all.shape[3]);
      }
    return out;
  }

  // As a search with want_weights gives them.
  PieceWeights rows(size_t i) {
    const Translation::Candidate& c = candidate(i);
    if (!c.weights.empty() || translation_.source.ids.empty()) return c.weights;
    const auto all = by_head(*attention(i));
    const auto layers = std::ssize(all);
    const int64_t at = head_.layer < 0 ? layers - 1 : head_.layer;
    require(at < layers, "result: layer ", at, " of ", layers);
    const std::vector<PieceWeights>& heads = all[static_cast<size_t>(at)];
    require(head_.head < std::ssize(heads), "result: head ", head_.head, " of ", heads.size());
    PieceWeights out = heads[head_.head < 0 ? 0 : static_cast<size_t>(head_.head)];
    if (head_.head < 0)  // the mean of all
      for (size_t t = 0; t < out.size(); ++t)
        for (size_t j = 0; j < out[t].size(); ++j) {
          float sum = 0;
          for (const PieceWeights& head : heads) sum += head[t][j];
          out[t][j] = sum / static_cast<float>(heads.size());
        }
    shift_weights(out, head_.shift);
    return out;
  }

  static std::shared_ptr<Numbers> as_numbers(const PieceWeights& rows) {
    auto out = std::make_shared<Numbers>();
    out->shape = {std::ssize(rows), rows.empty() ? 0 : std::ssize(rows[0])};
    for (const auto& row : rows) out->values.insert(out->values.end(), row.begin(), row.end());
    return out;
  }

  Sides sides_of(size_t i, bool words) const {
    const auto side = [&](const Tokenizer& tokenizer, const Sentence& s,
                          std::vector<std::string>& names, std::vector<int32_t>& word) {
      if (words) {
        word = s.word;
        const auto last = word.empty() ? 0 : static_cast<size_t>(word.back()) + 1;
        for (const std::string_view w : split_words(s.text))
          if (names.size() < last) names.emplace_back(w);
        names.resize(last);
      } else {
        names = tokenizer.pieces(s.ids);
        word.resize(s.ids.size());
        std::iota(word.begin(), word.end(), 0);
      }
      word.push_back(static_cast<int32_t>(names.size()));
      names.push_back(tokenizer.piece(tokenizer.special().end));
    };
    Sides out;
    side(*model().tokenizers.source, translation_.source, out.source, out.source_word);
    side(*model().tokenizers.target, candidate(i).target, out.target, out.target_word);
    return out;
  }

  static std::vector<double> joined(const Sides& sides, const PieceWeights& weights) {
    const WordWeights all = join_weights(weights, sides.source_word, sides.target_word);
    std::vector<double> out(all.values.begin(), all.values.end());
    out.resize(sides.source.size() * sides.target.size(), std::nan(""));
    return out;
  }

  Translator translator_;
  Translation translation_;
  ExtractOptions extract_;
  AlignmentHead head_;
  std::recursive_mutex mutex_;  // weights() looks at attention()
  std::vector<std::shared_ptr<Numbers>> weights_, attention_;
};

using Results = std::vector<std::shared_ptr<Result>>;

Results results(const Translator& translator, std::vector<Translation> found,
                const TranslateOptions& options) {
  Results out;
  out.reserve(found.size());
  for (Translation& t : found)
    out.push_back(std::make_shared<Result>(translator, std::move(t), options));
  return out;
}

struct Interrupted {};  // thrown through score(); who runs it interruptibly never sees it

// ---- the module's functions

// What is under way keeps the translator.
using Held = std::shared_ptr<const TextTranslator>;
using Lines = std::vector<std::string>;

Results translate(const Held& texts, Lines lines, Lines prefixes, const py::dict& given) {
  return interruptibly([=, o = options_of(texts->translator().model(), given)](
                           const std::atomic<bool>& stop) mutable {
    const Translator& translator = texts->translator();
    for (const std::string& prefix : prefixes)
      o.search.prefixes.push_back(translator.model().tokenizers.target->encode(prefix).ids);
    o.wanted = [&stop] { return !stop; };
    std::vector<Translation> found = translator.translate(lines, o);
    return results(translator, std::move(found), o);
  });
}

Results score(const Held& texts, Lines sources, Lines targets, const py::dict& given) {
  return interruptibly([=, o = options_of(texts->translator().model(), given)](
                           const std::atomic<bool>& stop) mutable {
    const Translator& translator = texts->translator();
    o.progress = [&stop](int64_t) {
      if (stop) throw Interrupted();
    };
    std::vector<Translation> found = translator.score(sources, targets, o);
    return results(translator, std::move(found), o);
  });
}

std::vector<TranslatedText> translate_texts(const Held& translator, Lines texts,
                                            const py::dict& given) {
  TextOptions o{.translate = options_of(translator->translator().model(), given)};
  take<int64_t>(given, "alternatives", o.alternatives);
  take<std::string>(given, "language", o.source_language);
  take<int64_t>(given, "longest_part", o.longest_part);
  std::string format = "text";
  take<std::string>(given, "format", format);
  require(format == "text" || format == "html",
          "translate_text: format is 'text' or 'html', given '", format, "'");
  if (format == "html") o.format = TextOptions::Format::html;
  return interruptibly([=](const std::atomic<bool>& stop) mutable {
    o.translate.wanted = [&stop] { return !stop; };
    return translator->translate(texts, o);
  });
}

}  // namespace

void add_translation(py::module_& m) {
  py::class_<SearchTree>(m, "SearchTree")
      .def_property_readonly(
          "nodes",
          [](const SearchTree& tree) {
            py::list out;
            for (const SearchTree::Node& n : tree.nodes)
              out.append(py::make_tuple(n.word, n.parent, n.log_probability, n.finished, n.best));
            return out;
          })
      .def("svg", [](const SearchTree& tree) { return draw_svg(tree); })
      .def(
          "text",
          [](const SearchTree& tree, int width) { return draw_terminal(tree, Ink::plain, width); },
          py::arg("width") = 0);

  py::class_<Result, std::shared_ptr<Result>>(m, "Result")
      .def_property_readonly("source", [](const Result& r) { return r.translation().source.text; })
      .def_property_readonly("cut", [](const Result& r) { return r.translation().cut; })
      .def_property_readonly("count",
                             [](const Result& r) { return r.translation().candidates.size(); })
      .def_property_readonly("source_pieces", &Result::source_pieces)
      .def("text", [](const Result& r, size_t i) { return r.candidate(i).text; })
      .def("pieces", &Result::pieces)
      .def("score", [](const Result& r, size_t i) { return r.candidate(i).score; })
      .def("log_probability",
           [](const Result& r, size_t i) { return r.candidate(i).log_probability; })
      .def("attention",
           [](Result& r, size_t i) {
             std::shared_ptr<Numbers> n;
             {
               const py::gil_scoped_release free;
               n = r.attention(i);
             }
             return view_of(n);
           })
      .def("weights",
           [](Result& r, size_t i) {
             std::shared_ptr<Numbers> n;
             {
               const py::gil_scoped_release free;
               n = r.weights(i);
             }
             return view_of(n);
           })
      .def("links", &Result::links, py::call_guard<py::gil_scoped_release>())
      .def("tree", &Result::tree)
      .def("page", &Result::page, py::call_guard<py::gil_scoped_release>())
      .def(
          "svg", [](Result& r, size_t i, bool words) { return draw_svg(r.heatmap(i, words)); },
          py::call_guard<py::gil_scoped_release>())
      .def("png",
           [](Result& r, size_t i, bool words) { return py::bytes(draw_png(r.heatmap(i, words))); })
      .def(
          "drawn",
          [](Result& r, size_t i, bool words, int width) {
            return draw_terminal(r.heatmap(i, words), Ink::plain, width);
          },
          py::call_guard<py::gil_scoped_release>());

  py::class_<TranslatedText>(m, "TranslatedText")
      .def_readonly("text", &TranslatedText::text)
      .def_readonly("alternatives", &TranslatedText::alternatives)
      .def_property_readonly("parts", [](const TranslatedText& t) {
        py::list out;  // bytes
        for (const TranslatedText::Part& p : t.parts)
          out.append(
              py::make_tuple(p.source_begin, p.source_end, p.target_begin, p.target_end, p.score));
        return out;
      });

  // A translator of texts, which has one of lines: what it knows of a vocabulary is made once.
  py::class_<TextTranslator, std::shared_ptr<TextTranslator>>(m, "Translator")
      .def(py::init([](const std::string& path, const std::string& device,
                       const std::string& compute, int threads, const std::string& shortlist) {
             return std::make_shared<TextTranslator>(
                 Translator(opened(path, device, compute, threads, shortlist)));
           }),
           py::arg("path"), py::arg("device"), py::arg("compute"), py::arg("threads"),
           py::arg("shortlist"))
      .def_property_readonly(
          "device", [](const TextTranslator& t) { return name(t.translator().loaded().device()); })
      .def_property_readonly(
          "attends",
          [](const TextTranslator& t) { return has_attention(t.translator().model().config); })
      .def_property_readonly(
          "search",
          [](const TextTranslator& t) { return to_json(t.translator().model().search).dump(); })
      .def("batch",
           [](const TextTranslator& t, const py::dict& o) {
             return t.translator().batch(options_of(t.translator().model(), o));
           })
      .def("translate", &translate, py::arg("lines"), py::arg("prefixes"), py::arg("options"))
      .def("score", &score, py::arg("sources"), py::arg("targets"), py::arg("options"))
      .def("translate_texts", &translate_texts, py::arg("texts"), py::arg("options"));
}

}  // namespace heed::python
