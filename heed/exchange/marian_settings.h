// A configuration of Marian's, whose names are those of its flags; and what reads its recurrent
// models.
//
// Threads: an object that nobody changes may be read from any number at once.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/exchange/foreign_model.h"
#include "heed/exchange/yaml.h"

namespace heed {

class MarianSettings {
 public:
  MarianSettings(YamlConfig values, std::string where)
      : values_(std::move(values)), where_(std::move(where)) {}
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->second.empty() ? otherwise : found->second[0];
  }
  double number(const std::string& key, double otherwise) const {
    const std::string given = text(key, "");
    if (given.empty()) return otherwise;
    char* end = nullptr;
    const double value = std::strtod(given.c_str(), &end);
    require(end == given.c_str() + given.size() && std::isfinite(value) && std::abs(value) < 1e9,
            where_, ": '", key, "' cannot be '", given, "'");
    return value;
  }
  int64_t whole(const std::string& key, int64_t otherwise) const {
    return static_cast<int64_t>(number(key, double(otherwise)));
  }
  bool flag(const std::string& key) const {
    const std::string given = text(key, "false");
    return given == "true" || given == "True" || given == "1" || given == "yes";
  }
  std::vector<std::string> list(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::vector<std::string>{} : found->second;
  }
  const std::string& where() const { return where_; }

 private:
  YamlConfig values_;
  std::string where_;
};

// Names of amun's and Nematus' files become those of type s2s.
void rename_as_s2s(Arrays& arrays, const MarianSettings& settings);

// Marian's recurrent models (s2s, amun, nematus): configuration and parameters of all but the
// tokenizers. Throws Error for what heed does not have.
void convert_marian_rnn(Conversion& in, const MarianSettings& settings, ForeignModel& model);

}  // namespace heed
