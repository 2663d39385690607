// AER (Och and Ney, 2003): how much of an alignment A is wrong, where the gold alignment has sure
// links S and possible ones P, which include the sure:
//   AER = 1 - (|A and S| + |A and P|) / (|A| + |S|).
// A sure link that is missing counts, and so does a link that is not even possible.
//
// Statistics: |A and S|, |A and P|, |A|, |S|.
#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>
#include <tuple>

#include "heed/base/check.h"
#include "heed/metrics/metrics.h"

namespace heed {
namespace {

// "12p3", or nothing.
std::optional<Link> parse_link(std::string_view token) {
  Link link;
  const char* const end = token.data() + token.size();
  const auto [middle, source_error] = std::from_chars(token.data(), end, link.source);
  if (source_error != std::errc() || middle == end) return {};
  if (std::string_view("-pP?").find(*middle) == std::string_view::npos) return {};
  link.sure = *middle == '-';
  const auto [last, target_error] = std::from_chars(middle + 1, end, link.target);
  if (target_error != std::errc() || last != end) return {};
  return link.source < 0 || link.target < 0 ? std::nullopt : std::optional(link);
}

bool same_place(const Link& a, const Link& b) {
  return a.source == b.source && a.target == b.target;
}

class Aer final : public Metric {
 public:
  std::string name() const override { return "AER"; }
  std::vector<SignaturePart> signature() const override { return {}; }

  Statistics line(std::string_view hypothesis,
                  std::span<const std::string_view> references) const override {
    require(references.size() == 1, "AER: one gold alignment is wanted, given ", references.size());
    const std::vector<Link> links = parse_alignment(hypothesis);
    const std::vector<Link> gold = parse_alignment(references[0]);
    double in_sure = 0, in_possible = 0;
    auto g = gold.begin();
    for (const Link& link : links) {
      g = std::find_if(g, gold.end(), [&](const Link& other) {
        return std::tie(other.source, other.target) >= std::tie(link.source, link.target);
      });
      if (g == gold.end()) break;
      if (!same_place(*g, link)) continue;
      ++in_possible;
      if (g->sure) ++in_sure;
    }
    const auto sure = std::count_if(gold.begin(), gold.end(), [](const Link& l) { return l.sure; });
    return {in_sure, in_possible, double(links.size()), double(sure)};
  }

  double score(const Statistics& sums) const override {
    const auto [in_sure, in_possible, links, sure] = std::tie(sums[0], sums[1], sums[2], sums[3]);
    return links + sure > 0 ? 100 * (1 - (in_sure + in_possible) / (links + sure)) : 0;
  }

  std::string details(const Statistics& sums) const override {
    const auto percent = [](double part, double whole) {
      return whole > 0 ? 100 * part / whole : 0;
    };
    std::ostringstream out;
    out << std::fixed << std::setprecision(1) << "precision = " << percent(sums[1], sums[2])
        << " recall = " << percent(sums[0], sums[3]) << std::setprecision(0)
        << " (links = " << sums[2] << " sure = " << sums[3] << ")";
    return out.str();
  }
};

}  // namespace

std::vector<Link> parse_alignment(std::string_view line) {
  std::vector<Link> links;
  for (size_t at = 0, token = 1;; ++token) {
    at = line.find_first_not_of(" \t\r\n", at);
    if (at == line.npos) break;
    const size_t end = std::min(line.find_first_of(" \t\r\n", at), line.size());
    const std::string_view text = line.substr(at, end - at);
    const std::optional<Link> link = parse_link(text);
    require(link.has_value(), "alignment: token ", token, ", '", text,
            "', is no link; wanted: source-target, as 3-4, or 3p4 for a possible one");
    links.push_back(*link);
    at = end;
  }
  // Sure before possible, so that unique() keeps it.
  std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
    return std::tuple(a.source, a.target, !a.sure) < std::tuple(b.source, b.target, !b.sure);
  });
  links.erase(std::unique(links.begin(), links.end(), same_place), links.end());
  return links;
}

std::unique_ptr<Metric> make_aer() { return std::make_unique<Aer>(); }

}  // namespace heed
