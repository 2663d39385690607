// Parameters to and from a safetensors file, by name.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "heed/nn/module.h"

namespace heed {

// Writes all parameters, whole or not at all (files/atomic_file.h).
void save_parameters(const Params& params, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata = {});

// Fills every parameter from the tensor of the same name. Throws Error, and changes nothing, if one
// is missing, has another shape or type, or if the file has tensors that no parameter wants.
void load_parameters(const Params& params, const std::filesystem::path& path);

}  // namespace heed
