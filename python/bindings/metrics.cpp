// heed._core.Metric: scores of translations and alignments, as sacreBLEU gives them.
#include "heed/metrics/metrics.h"

#include "bindings.h"
#include "heed/base/check.h"
#include "heed/base/stop.h"

namespace heed::python {
namespace {

template <class T, class U>
void take(const py::dict& from, const char* key, U& into) {
  if (from.contains(key) && !from[key].is_none()) into = from[key].cast<T>();
}

Smoothing smoothing_named(const std::string& name) {
  const std::vector<std::string> names = {"none", "floor", "add-k", "exp"};
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Smoothing>(i);
  fail(unknown_name("smoothing", name, names));
}

std::unique_ptr<Metric> metric_of(const std::string& name, const py::dict& o) {
  if (name == "bleu") {
    BleuOptions b;
    take<std::string>(o, "tokenize", b.tokenizer);
    take<bool>(o, "lowercase", b.lowercase);
    take<double>(o, "smooth_value", b.smooth_value);
    take<bool>(o, "effective_order", b.effective_order);
    if (o.contains("smooth")) b.smoothing = smoothing_named(o["smooth"].cast<std::string>());
    return make_bleu(b);
  }
  if (name == "chrf") {
    ChrfOptions c;
    take<int>(o, "char_order", c.char_order);
    take<int>(o, "word_order", c.word_order);
    take<int>(o, "beta", c.beta);
    take<bool>(o, "lowercase", c.lowercase);
    take<bool>(o, "whitespace", c.whitespace);
    take<bool>(o, "eps_smoothing", c.eps_smoothing);
    return make_chrf(c);
  }
  if (name == "ter") {
    TerOptions t;
    take<bool>(o, "normalized", t.normalized);
    take<bool>(o, "no_punctuation", t.no_punctuation);
    take<bool>(o, "asian_support", t.asian_support);
    take<bool>(o, "case_sensitive", t.case_sensitive);
    return make_ter(t);
  }
  if (name == "aer") return make_aer();
  fail(unknown_name("metric", name, {"bleu", "chrf", "ter", "aer"}));
}

using Lines = std::vector<std::string>;

// The score, its text as sacreBLEU prints it, its signature, and that of each line.
py::tuple measured(const std::string& name, const Lines& hypotheses,
                   const std::vector<Lines>& references, int bootstrap, const py::dict& options) {
  const std::shared_ptr<const Metric> metric = metric_of(name, options);
  require(!references.empty(), name, ": wants at least one list of references");
  for (const Lines& lines : references)
    require(lines.size() == hypotheses.size(), name, ": ", hypotheses.size(), " hypotheses, ",
            lines.size(), " references");
  require(bootstrap >= 0, name, ": bootstrap wants a number of at least 0, given ", bootstrap);
  struct Found {
    ScoreReport report;
    std::vector<double> by_line;
  };
  const auto [report, by_line] = interruptibly([=](const std::atomic<bool>& stop) {
    const StopWhen no_longer_wanted(stop);
    Found found{.report = {.name = metric->name()}, .by_line = {}};
    const std::vector<Statistics> lines = statistics(*metric, hypotheses, references);
    const Statistics sums = sum_statistics(lines);
    found.report.value = metric->score(sums);
    found.report.details = metric->details(sums);
    if (bootstrap > 0) found.report.confidence = confidence(resample(*metric, lines, bootstrap));
    for (const Statistics& line : lines) found.by_line.push_back(metric->score(line));
    return found;
  });
  const std::string signed_as = signature(
      *metric, {.references = static_cast<int>(references.size()), .bootstrap = bootstrap});
  return py::make_tuple(
      report.value, score_text(report, signed_as), signed_as, by_line,
      report.confidence
          ? py::object(py::make_tuple(report.confidence->mean, report.confidence->half_width))
          : py::object(py::none()));
}

}  // namespace

void add_metrics(py::module_& m) {
  m.def("measure", &measured, py::arg("metric"), py::arg("hypotheses"), py::arg("references"),
        py::arg("bootstrap"), py::arg("options"));
}

}  // namespace heed::python
