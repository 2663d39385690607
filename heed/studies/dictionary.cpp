// Attention as a look-up: a dictionary's entries are keys and values, and what is asked for is a
// query. Exact look-up is the limit of attention as the temperature falls; a query that is no key
// finds the nearest, where an exact dictionary finds nothing.
#include <cmath>

#include "heed/attention/attend.h"
#include "heed/studies/study.h"
#include "heed/view/heatmap.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

constexpr int64_t kKey = 64, kValue = 8;

struct Dictionary {
  Tensor keys, values;  // [1, 1, n, kKey], [1, 1, n, kValue]
};

// Keys of length 1.
Dictionary make_dictionary(int64_t entries, Random& random) {
  const Tensor k = normal({1, 1, entries, kKey}, 1, random, Type::f64);
  return {k / reshape(sqrt(sum(square(k), -1)), {1, 1, entries, 1}),
          normal({1, 1, entries, kValue}, 1, random, Type::f64)};
}

struct Found {
  double weight = 0;    // of the entry that exact look-up gives
  double distance = 0;  // between what was read and that entry's value
};

// Means over all queries.
Found look_up(const Dictionary& d, const Tensor& queries, double temperature) {
  const Params params(1, Type::f64);
  const auto score = make_score("dot", params, {.query = kKey, .key = kKey});
  const Attended soft = attend(
      *score, queries, d.keys, d.values,
      {.weigh = {.kind = Weigh::Kind::soft, .temperature = temperature}, .want_weights = true});
  const Attended exact = attend(*score, queries, d.keys, d.values,
                                {.weigh = {.kind = Weigh::Kind::hard}, .want_weights = true});
  return {.weight = mean(sum(*soft.weights * *exact.weights, -1)).item(),
          .distance = mean(sqrt(sum(square(soft.context - exact.context), -1))).item()};
}

// A dictionary that can be read: what each entry weighs when "cat" is looked up.
std::string picture_of_weights(const std::vector<double>& temperatures, Random& random) {
  const std::vector<std::string> words = {"bird",  "cat",   "dog",   "fish",
                                          "horse", "mouse", "sheep", "wolf"};
  const int64_t n = static_cast<int64_t>(words.size()), cat = 1;
  const Dictionary d = make_dictionary(n, random);
  const Params params(1, Type::f64);
  const auto score = make_score("dot", params, {.query = kKey, .key = kKey});
  Heatmap map{.rows = {}, .columns = words, .weights = {}, .title = "Looking up \"cat\""};
  for (const double t : temperatures) {
    const Attended read = attend(*score, slice(d.keys, 2, cat, cat + 1), d.keys, d.values,
                                 {.weigh = {.temperature = t}, .want_weights = true});
    const std::vector<double> w = read.weights->values();
    char name[32];
    std::snprintf(name, sizeof name, "temperature %g", t);
    map.rows.emplace_back(name);
    map.weights.insert(map.weights.end(), w.begin(), w.end());
  }
  return draw_svg(map);
}

}  // namespace

Study dictionary_study(const StudyOptions& o) {
  Random random(o.seed);
  const int64_t n = o.small ? 64 : 1024;
  const Dictionary d = make_dictionary(n, random);
  const Tensor near = d.keys + normal(d.keys.shape(), 0.05, random, Type::f64);
  std::vector<double> temperatures;
  for (int i = 0; i <= 12; ++i) temperatures.push_back(10 * std::pow(10.0, -i / 4.0));

  Study study;
  StudyTable table{.name = "temperature",
                   .title = "A dictionary of " + std::to_string(n) +
                            " entries, looked up by attention: means over as many queries",
                   .columns = {"query", "temperature", "weight", "distance"}};
  LineChart chart{.title = "From mixing all entries to looking one up",
                  .x = {"temperature", Scale::log},
                  .y = {"distance from the exact value", Scale::log}};
  for (const auto& [name, queries] : {std::pair{"a key", d.keys}, {"near a key", near}}) {
    for (const double t : temperatures) {
      const Found found = look_up(d, queries, t);
      table.rows.push_back({name, t, found.weight, found.distance});
    }
    chart.lines.push_back({std::string("query: ") + name, temperatures,
                           table.numbers("distance", {{"query", name}})});
  }
  for (const char* name : {"a key", "near a key"}) {
    const std::vector<double> weight = table.numbers("weight", {{"query", name}});
    const std::vector<double> distance = table.numbers("distance", {{"query", name}});
    study.claims.push_back(
        {std::string("query ") + name + ": the entry's weight grows whenever the temperature falls",
         std::is_sorted(weight.begin(), weight.end()) && weight.front() < weight.back()});
    study.claims.push_back({std::string("query ") + name +
                                ": at the highest temperature every entry weighs about the same, "
                                "at the lowest what is "
                                "read is the exact value, to a millionth",
                            weight.front() * double(n) < 1.2 && distance.back() < 1e-6});
  }
  study.pictures = {
      {"dictionary", draw_svg(chart)},
      {"dictionary-weights", picture_of_weights({10, 1, 0.5, 0.2, 0.1, 0.01}, random)}};
  study.tables.push_back(std::move(table));
  return study;
}

}  // namespace heed
