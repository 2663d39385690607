// heed._core.LanguageModel and heed._core.Embedder.
#include "bindings.h"
#include "heed/base/check.h"
#include "heed/language/embedder.h"
#include "heed/language/language_model.h"

namespace heed::python {
namespace {

struct Interrupted {};

ScoreOptions stoppable(int64_t stride, const std::atomic<bool>& stop) {
  return {.stride = stride, .progress = [&stop](const TextScore&) {
            if (stop) throw Interrupted();
          }};
}

// What is under way keeps the model.
using Held = std::shared_ptr<const LanguageModel>;

std::vector<Generated> generate(const Held& model, const std::string& prompt, GenerateOptions o) {
  check(o.search);
  return interruptibly([=](const std::atomic<bool>& stop) mutable {
    o.wanted = [&stop] { return !stop; };
    return model->generate(prompt, o);
  });
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

  py::class_<LanguageModel, std::shared_ptr<LanguageModel>>(m, "LanguageModel")
      .def(py::init([](const std::string& path, const std::string& device,
                       const std::string& compute, int threads) {
             return std::make_shared<LanguageModel>(opened(path, device, compute, threads));
           }),
           py::arg("path"), py::arg("device"), py::arg("compute"), py::arg("threads"))
      .def_property_readonly("of_lines", &LanguageModel::of_lines)
      .def_property_readonly("context", &LanguageModel::context)
      .def("score",
           [](const Held& model, const std::string& text, int64_t stride) {
             return interruptibly([=](const std::atomic<bool>& stop) {
               return model->score(text, stoppable(stride, stop));
             });
           })
      .def("score_lines",
           [](const Held& model, const std::vector<std::string>& lines) {
             return interruptibly([=](const std::atomic<bool>& stop) {
               return model->score_lines(lines, stoppable(0, stop));
             });
           })
      // What was predicted, its log-probabilities, and the weights of each layer [H, T, T].
      .def(
          "read",
          [](const Held& model, const std::string& text, bool weights) {
            ReadText r =
                interruptibly([=](const std::atomic<bool>&) { return model->read(text, weights); });
            auto kept = std::make_shared<std::vector<double>>(std::move(r.log_probability));
            py::list layers;
            for (const Weights& w : r.weights) {
              const Shape& s = w.values.shape();
              const auto values = std::make_shared<Tensor>(w.values);
              layers.append(view_of(values->data<float>(), {s[1], s[2], s[3]}, values));
            }
            return py::make_tuple(model->tokenizer().pieces(r.in), model->tokenizer().pieces(r.out),
                                  view_of(kept->data(), {std::ssize(*kept)}, kept), layers);
          })
      .def(
          "generate",
          [](const Held& model, const std::string& prompt, int64_t length, int64_t count,
             int64_t beam, bool sample, double temperature, int64_t top_k, double top_p,
             uint64_t seed) {
            GenerateOptions o{.length = length, .count = count};
            o.search.beam = beam, o.search.sample = sample, o.search.temperature = temperature;
            o.search.top_k = top_k, o.search.top_p = top_p, o.search.seed = seed;
            py::list out;
            for (const Generated& g : generate(model, prompt, o))
              out.append(py::make_tuple(g.text, g.log_probability));
            return out;
          },
          py::arg("prompt"), py::kw_only(), py::arg("length"), py::arg("count"), py::arg("beam"),
          py::arg("sample"), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
          py::arg("seed"));

  py::class_<Embedder, std::shared_ptr<Embedder>>(m, "Embedder")
      .def(py::init([](const std::string& path, const std::string& device,
                       const std::string& compute, int threads) {
             return std::make_shared<Embedder>(opened(path, device, compute, threads));
           }),
           py::arg("path"), py::arg("device"), py::arg("compute"), py::arg("threads"))
      .def_property_readonly("layers", &Embedder::layers)
      // Words, and an array [words, size] that looks at the vectors.
      .def("embed", [](const std::shared_ptr<const Embedder>& embedder,
                       const std::vector<std::string>& lines, const std::string& layer) {
        const Layer which = layer.empty() ? embedder->usual() : layer_from(layer);
        std::vector<WordVectors> found =
            interruptibly([=](const std::atomic<bool>&) { return embedder->embed(lines, which); });
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
