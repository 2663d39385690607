// As much of YAML as Marian's files have: a configuration (names with texts or lists of them), and
// vocabularies, whose keys are texts whatever YAML would make of them.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

// A name's values; one that is no list has one.
using YamlConfig = std::map<std::string, std::vector<std::string>>;
YamlConfig parse_yaml_config(std::string_view text, const std::string& what);

// Entries by their ids, which may have gaps: these are empty. Throws Error for a line that is no
// entry, for ids that come twice, and for gaps that no vocabulary has.
std::vector<std::string> parse_yaml_vocabulary(std::string_view text, const std::string& what);

// Pieces by their ids; empty ones where ids have gaps. Throws Error for ids that come twice or lie
// far beyond the entries.
std::vector<std::string> placed_by_id(std::vector<std::pair<std::string, int64_t>> entries,
                                      const std::string& what);

}  // namespace heed
