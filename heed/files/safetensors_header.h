// The header of a safetensors file, taken apart: for safetensors.cpp alone.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/files/safetensors.h"

namespace heed {

inline constexpr std::string_view kMetadataKey = "__metadata__";

struct HeaderTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws Error, `what` at its head, unless `text` is UTF-8 and JSON of the form that the format
// wants. Names of tensors that come twice, and what offsets mean, are for the caller.
Header read_header(std::string_view text, std::string_view what);

// The length of the longest part of `text`, from its start, that is whole UTF-8.
std::size_t valid_utf8(std::string_view text);

// `text` as one short line without control characters: what stands in a file may be meant for the
// terminal that shows the message.
std::string printable(std::string_view text, std::size_t limit = 120);

// The head of a message about a tensor.
std::string tensor_at(std::string_view what, std::string_view name);

}  // namespace heed
