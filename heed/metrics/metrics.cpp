#include "heed/metrics/metrics.h"

#include <iomanip>
#include <mutex>
#include <sstream>

#include "heed/base/check.h"
#include "heed/base/parallel.h"

namespace heed {
namespace {

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

}  // namespace

std::vector<Statistics> statistics(const Metric& metric, const std::vector<std::string>& hypotheses,
                                   const std::vector<std::vector<std::string>>& references) {
  require(!references.empty(), metric.name(), ": no reference to compare with");
  for (const std::vector<std::string>& lines : references)
    require(lines.size() == hypotheses.size(), metric.name(), ": ", hypotheses.size(),
            " hypotheses, but ", lines.size(), " references; each line wants one");
  std::vector<Statistics> result(hypotheses.size());
  // Of several bad lines the first is told, whichever thread comes to its own first.
  std::mutex mutex;
  size_t bad_line = hypotheses.size();
  std::string trouble;
  constexpr int64_t kGrain = 16;
  parallel_for(static_cast<int64_t>(hypotheses.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::vector<std::string_view> line_references(references.size());
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      for (size_t k = 0; k < references.size(); ++k) line_references[k] = references[k][i];
      try {
        result[i] = metric.line(hypotheses[i], line_references);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (i < bad_line) bad_line = i, trouble = error.what();
      }
    }
  });
  require(bad_line == hypotheses.size(), "line ", bad_line + 1, ": ", trouble);
  return result;
}

Statistics sum_statistics(std::span<const Statistics> lines) {
  require(!lines.empty(), "sum_statistics: no lines, so there is nothing to score");
  Statistics sums(lines.front().size());
  for (const Statistics& line : lines)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += line[i];
  return sums;
}

std::string signature(const Metric& metric, const Circumstances& circumstances,
                      SignatureForm form) {
  const auto& [references, bootstrap, randomization, seed] = circumstances;
  std::vector<SignaturePart> parts{{"nrefs", "#", std::to_string(references)}};
  if (bootstrap > 0) parts.push_back({"bs", "bs", std::to_string(bootstrap)});
  if (randomization > 0) parts.push_back({"ar", "ar", std::to_string(randomization)});
  if (bootstrap > 0 || randomization > 0) parts.push_back({"seed", "rs", std::to_string(seed)});
  for (SignaturePart& part : metric.signature()) parts.push_back(std::move(part));
  std::string text;
  for (const SignaturePart& part : parts)
    text += (text.empty() ? "" : "|") + (form == SignatureForm::full ? part.key : part.brief) +
            ":" + part.value;
  return text;
}

std::string number_text(const ScoreReport& score, int digits) {
  std::string text = fixed(score.value, digits);
  // As sacreBLEU has it: no interval around nothing.
  if (score.confidence && score.confidence->mean > 0)
    text += " (μ = " + fixed(score.confidence->mean, digits) + " ± " +
            fixed(score.confidence->half_width, digits) + ")";
  return text;
}

std::string score_text(const ScoreReport& score, std::string_view signature, int digits) {
  std::string text = score.name;
  if (!signature.empty()) (text += "|") += signature;
  text += " = " + number_text(score, digits);
  if (!score.details.empty()) text += " " + score.details;
  return text;
}

}  // namespace heed
