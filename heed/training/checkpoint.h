// Tensors to and from a safetensors file, by name.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "heed/nn/module.h"

namespace heed {

using TensorsByName = std::map<std::string, Tensor>;

// Writes all of them, whole or not at all (files/atomic_file.h).
void save_tensors(const TensorsByName& tensors, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata = {});

// Fills each from the tensor of the same name and returns the metadata. Throws Error, and changes
// nothing, if one is missing, has another shape or type, or if the file has more than these.
std::map<std::string, std::string> load_tensors(const TensorsByName& tensors,
                                                const std::filesystem::path& path);

// The same for a model's parameters.
void save_parameters(const Params& params, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata = {});
void load_parameters(const Params& params, const std::filesystem::path& path);

}  // namespace heed
