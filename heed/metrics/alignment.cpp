// AER (Och and Ney, 2003): how much of an alignment A is wrong, where the gold alignment has sure
// links S and possible ones P, which include the sure:
//   AER = 1 - (|A and S| + |A and P|) / (|A| + |S|).
// A sure link that is missing counts, and so does a link that is not even possible.
//
// Statistics: |A and S|, |A and P|, |A|, |S|.
#include <algorithm>
#include <iomanip>
#include <sstream>
#include <tuple>
#include <utility>

#include "heed/base/alignment.h"
#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/metrics/metrics.h"

namespace heed {
namespace {

// "12p3", or nothing.
std::optional<GoldLink> parse_gold_link(std::string_view token) {
  const size_t mark = token.find_first_of("-pP?");
  if (mark == token.npos) return {};
  const std::optional<Link> link = parse_link(token, token[mark]);
  return link ? std::optional(GoldLink{*link, token[mark] == '-'}) : std::nullopt;
}

class Aer final : public Metric {
 public:
  std::string name() const override { return "AER"; }
  std::vector<SignaturePart> signature() const override { return {}; }

  Statistics line(std::string_view hypothesis,
                  std::span<const std::string_view> references) const override {
    require(references.size() == 1, "AER: one gold alignment is wanted, given ", references.size());
    // Marks in the alignment that is scored mean nothing.
    const std::vector<GoldLink> links = parse_gold_alignment(hypothesis);
    const std::vector<GoldLink> gold = parse_gold_alignment(references[0]);
    double in_sure = 0, in_possible = 0;
    auto g = gold.begin();
    for (const auto& [link, marked] : links) {
      g = std::ranges::lower_bound(g, gold.end(), link, {}, &GoldLink::link);
      if (g == gold.end()) break;
      if (g->link != link) continue;
      ++in_possible;
      if (g->sure) ++in_sure;
    }
    const auto sure = std::ranges::count(gold, true, &GoldLink::sure);
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

std::vector<GoldLink> parse_gold_alignment(std::string_view line) {
  std::vector<GoldLink> links;
  size_t count = 0;
  for (const std::string_view token : split_words(line)) {
    ++count;
    const std::optional<GoldLink> link = parse_gold_link(token);
    require(link.has_value(), "alignment: token ", count, ", '", token,
            "', is no link; wanted: source-target, as 3-4, or 3p4 for a possible one");
    links.push_back(*link);
  }
  // Sure before possible, so that of two it is the one that stays.
  std::ranges::sort(links, {},
                    [](const GoldLink& gold) { return std::pair(gold.link, !gold.sure); });
  const auto repeated = std::ranges::unique(links, {}, &GoldLink::link);
  links.erase(repeated.begin(), repeated.end());
  return links;
}

std::vector<std::string> zero_based_gold(std::vector<std::string> lines, std::string_view name,
                                         CountedFrom from) {
  bool any = false, zero = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<GoldLink> links;
    try {
      links = parse_gold_alignment(lines[i]);
    } catch (const Error& error) {
      fail(name, ": line ", i + 1, ": ", error.what());
    }
    any = any || !links.empty();
    const auto has_zero = [](const GoldLink& gold) {
      return gold.link.source == 0 || gold.link.target == 0;
    };
    const bool here = std::ranges::any_of(links, has_zero);
    zero = zero || here;
    if (!from.from_one) continue;
    require(!here, name, ": line ", i + 1,
            ": has a word 0; counted from 1 (--one-based), there is none");
    lines[i].clear();
    for (const auto& [link, sure] : links)
      lines[i] += (lines[i].empty() ? "" : " ") + std::to_string(link.source - 1) +
                  (sure ? "-" : "p") + std::to_string(link.target - 1);
  }
  require(!any || zero || from.from_one || from.from_zero, name,
          ": no link has a word 0; say --one-based if its words are counted from 1, --zero-based "
          "if they are counted from 0 all the same");
  return lines;
}

std::unique_ptr<Metric> make_aer() { return std::make_unique<Aer>(); }

}  // namespace heed
