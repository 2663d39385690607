// Tensors to and from a safetensors file, by name.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "heed/files/safetensors.h"
#include "heed/nn/module.h"

namespace heed {

using TensorsByName = std::map<std::string, Tensor>;

// Writes all of them, whole or not at all (files/atomic_file.h), with a checksum of the file
// (kChecksumEntry in files/safetensors.h).
void save_tensors(const TensorsByName& tensors, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata = {});

// The same of tensors that are made one at a time, when those before them are written: `get` is
// called once for each name, in the order of types and names (write_safetensors).
struct TensorForm {
  Shape shape;
  Type type = Type::f32;
};
void save_tensors(const std::map<std::string, TensorForm>& forms,
                  const std::function<Tensor(const std::string& name)>& get,
                  const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata = {});

// Fills each from the tensor of the same name and returns the metadata. Throws Error, and changes
// nothing, if the file is damaged, if one is missing, has another shape or type, or if the file has
// more than these.
std::map<std::string, std::string> load_tensors(const TensorsByName& tensors,
                                                const std::filesystem::path& path,
                                                SafetensorsOptions options = {});

// The same of a part of each: of a tensor of shape `whole` the elements from `begin` on.
struct TensorPart {
  Tensor part;
  Shape whole;
  int64_t begin = 0;
};
using TensorParts = std::map<std::string, TensorPart>;
std::map<std::string, std::string> load_tensors(const TensorParts& parts,
                                                const std::filesystem::path& path,
                                                SafetensorsOptions options = {});

// A file's tensors without a copy, on a CPU: each looks into the mapped file, which stays mapped as
// long as one does. On a GPU they are uploaded. They never change and are read in every context.
class MappedTensors {
 public:
  explicit MappedTensors(const std::filesystem::path& path, SafetensorsOptions options = {});
  // Throws Error if it is missing, has another shape or type, or is not finite.
  Tensor at(const std::string& name, const Shape& shape, Type type) const;
  // A weight of eight bits (ops/int8.h): as the file has it or, where the file has it in f32, made
  // from that, whose memory is given back.
  Tensor int8_at(const std::string& name, const Shape& shape, int outputs) const;
  bool holds_int8(const std::string& name) const;
  // The same in bf16 (ops/bf16.h), made from f32.
  Tensor bf16_at(const std::string& name, const Shape& shape, int outputs) const;
  // Throws Error if the file has more than so many.
  void require_only(size_t count) const;

 private:
  void give_back(const std::string& name) const;

  std::string path_;
  std::shared_ptr<const SafetensorsFile> file_;
  std::shared_ptr<Arena> arena_;  // for what cannot be looked at
};

// Parameters of which some are weights of eight bits, each three tensors: its blocks under its own
// name, `name`.scales and `name`.sums.
void save_int8_parameters(const Params& params, const std::filesystem::path& path,
                          const std::map<std::string, std::string>& metadata = {});

// The same for a model's parameters.
void save_parameters(const Params& params, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata = {});
void load_parameters(const Params& params, const std::filesystem::path& path,
                     SafetensorsOptions options = {});

}  // namespace heed
