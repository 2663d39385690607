// A described configuration (config.h) to and from JSON.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "heed/base/check.h"

namespace heed {

// JSON of a file that somebody else may have written: what is nested deeper than any of ours is
// left out, since who writes it again, for a message, goes as deep. Discarded where it is no JSON.
template <class Json>
Json parse_json(const std::string& text) {
  constexpr int kDeepest = 32;
  return Json::parse(
      text, [](int depth, typename Json::parse_event_t, Json&) { return depth < kDeepest; },
      /*allow_exceptions=*/false);
}

template <class Config>
std::string config_to_json(const Config& config) {
  nlohmann::ordered_json out;
  fields(config, [&](const char* name, const auto& value, const char*) { out[name] = value; });
  return out.dump(1);
}

// `where` stands at the head of every message. A key that is not there keeps its default.
template <class Config>
Config config_from_json(const std::string& text, const std::string& where) {
  const auto given = parse_json<nlohmann::json>(text);
  require(given.is_object(), where, ": not a JSON object");
  Config config;
  std::vector<std::string> known;
  fields(config, [&](const char* name, auto& value, const char*) {
    known.emplace_back(name);
    const auto found = given.find(name);
    if (found == given.end()) return;
    try {
      // The library would cut a fraction off.
      require(!std::is_integral_v<std::remove_reference_t<decltype(value)>> ||
                  !found->is_number_float(),
              where, ": '", name, "' cannot be ", found->dump());
      found->get_to(value);
    } catch (const nlohmann::json::exception&) {
      fail(where, ": '", name, "' cannot be ", found->dump());
    }
  });
  for (const auto& [key, value] : given.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail(where, ": ", unknown_name("key", key, known));
  try {
    check(config);
  } catch (const Error& error) {
    fail(where, ": ", error.what());
  }
  return config;
}

}  // namespace heed
