// heed._core.LanguageModel and heed._core.Embedder.
#include "bindings.h"
#include "heed/base/check.h"
#include "heed/language/embedder.h"
#include "heed/language/language_model.h"

namespace heed::python {
namespace {

std::shared_ptr<const LoadedModel> opened(const std::string& path, const std::string& device,
                                          const std::string& compute, int threads) {
  const Compute numbers = compute_named(compute);
  require(threads >= 0, "threads wants a number of at least 0 (0: all cores), given ", threads);
  const ChosenDevice chosen = device_named(device);
  const py::gil_scoped_release free;
  return LoadedModel::open(
      path,
      {.device = chosen.device, .index = chosen.index, .threads = threads, .compute = numbers});
}

struct Interrupted {};

ScoreOptions stoppable(int64_t stride, const std::atomic<bool>& stop) {
  return {.stride = stride, .progress = [&stop](const TextScore&) {
            if (stop) throw Interrupted();
          }};
}

struct GenerateGiven {
  int64_t length, count, beam, top_k;
  bool sample;
  double temperature, top_p;
  uint64_t seed;
};

std::vector<Generated> generate(const LanguageModel& model, const std::string& prompt,
                                const GenerateGiven& g) {
  GenerateOptions o{.length = g.length, .count = g.count};
  o.search.beam = g.beam, o.search.sample = g.sample, o.search.temperature = g.temperature;
  o.search.top_k = g.top_k, o.search.top_p = g.top_p, o.search.seed = g.seed;
  check(o.search);
  std::vector<Generated> out;
  run_interruptibly([&](const std::atomic<bool>&) { out = model.generate(prompt, o); });
  return out;
}

}  // namespace

void add_language(py::module_& m) {
  py::class_<TextScore>(m, "TextScore")
      .def_readonly("log_probability", &TextScore::log_probability)
      .def_readonly("pieces", &TextScore::pieces)
      .def_readonly("words", &TextScore::words)
      .def_readonly("characters", &TextScore::characters)
      .def_readonly("unknown", &TextScore::unknown)
      .def_property_readonly("perplexity_by_piece", &TextScore::perplexity_by_piece)
      .def_property_readonly("perplexity_by_word", &TextScore::perplexity_by_word);

  py::class_<LanguageModel>(m, "LanguageModel")
      .def(py::init(
               [](const std::string& path, const std::string& device, const std::string& compute,
                  int threads) { return LanguageModel(opened(path, device, compute, threads)); }),
           py::arg("path"), py::arg("device"), py::arg("compute"), py::arg("threads"))
      .def_property_readonly("of_lines", &LanguageModel::of_lines)
      .def_property_readonly("context", &LanguageModel::context)
      .def("score",
           [](const LanguageModel& model, const std::string& text, int64_t stride) {
             TextScore out;
             run_interruptibly([&](const std::atomic<bool>& stop) {
               out = model.score(text, stoppable(stride, stop));
             });
             return out;
           })
      .def("score_lines",
           [](const LanguageModel& model, const std::vector<std::string>& lines) {
             std::vector<TextScore> out;
             run_interruptibly([&](const std::atomic<bool>& stop) {
               out = model.score_lines(lines, stoppable(0, stop));
             });
             return out;
           })
      // What was predicted, its log-probabilities, and the weights of each layer [H, T, T].
      .def("read",
           [](const LanguageModel& model, const std::string& text, bool weights) {
             ReadText r;
             {
               const py::gil_scoped_release free;
               r = model.read(text, weights);
             }
             auto kept = std::make_shared<std::vector<double>>(std::move(r.log_probability));
             py::list layers;
             for (const Weights& w : r.weights) {
               const Shape& s = w.values.shape();
               const auto values = std::make_shared<Tensor>(w.values);
               layers.append(view_of(values->data<float>(), {s[1], s[2], s[3]}, values));
             }
             return py::make_tuple(model.tokenizer().pieces(r.in), model.tokenizer().pieces(r.out),
                                   view_of(kept->data(), {std::ssize(*kept)}, kept), layers);
           })
      .def(
          "generate",
          [](const LanguageModel& model, const std::string& prompt, int64_t length, int64_t count,
             int64_t beam, bool sample, double temperature, int64_t top_k, double top_p,
             uint64_t seed) {
            py::list out;
            for (const Generated& g : generate(model, prompt,
                                               {.length = length,
                                               .count = count,
                                               .beam = beam,
                                               .top_k = top_k,
                                               .sample = sample,
                                               .temperature = temperature,
                                               .top_p = top_p,
                                               .seed = seed}))
              out.append(py::make_tuple(g.text, g.log_probability));
            return out;
          },
          py::arg("prompt"), py::kw_only(), py::arg("length"), py::arg("count"), py::arg("beam"),
          py::arg("sample"), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
          py::arg("seed"));

  py::class_<Embedder>(m, "Embedder")
      .def(py::init([](const std::string& path, const std::string& device,
                       const std::string& compute,
                       int threads) { return Embedder(opened(path, device, compute, threads)); }),
           py::arg("path"), py::arg("device"), py::arg("compute"), py::arg("threads"))
      .def_property_readonly("layers", &Embedder::layers)
      // Words, and an array [words, size] that looks at the vectors.
      .def("embed", [](const Embedder& embedder, const std::vector<std::string>& lines,
                       const std::string& layer) {
        const Layer which = layer.empty() ? embedder.usual() : layer_from(layer);
        std::vector<WordVectors> found;
        run_interruptibly([&](const std::atomic<bool>&) { found = embedder.embed(lines, which); });
        py::list out;
        for (WordVectors& v : found) {
          const auto kept = std::make_shared<WordVectors>(std::move(v));
          out.append(py::make_tuple(
              kept->words,
              view_of(kept->values.data(), {std::ssize(kept->words), kept->size}, kept)));
        }
        return out;
      });
}

}  // namespace heed::python
