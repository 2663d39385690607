// What a model's folder is: read from its files, without computing anything.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace heed {

// An object: what it is, its parameters by part, its vocabularies, where it came from, how far it
// was trained, its checksums and its bytes in memory. Throws Error for what is no model.
nlohmann::ordered_json describe(const std::filesystem::path& folder);

}  // namespace heed
