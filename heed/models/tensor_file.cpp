#include "heed/models/tensor_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "heed/base/parallel.h"
#include "heed/files/safetensors.h"
#include "heed/ops/bf16.h"
#include "heed/ops/int8.h"

namespace heed {
namespace {

StoredDtype stored(Type type) {
  switch (type) {
    case Type::f32: return StoredDtype::F32;
    case Type::f64: return StoredDtype::F64;
    case Type::bf16: return StoredDtype::BF16;
    case Type::i32: return StoredDtype::I32;
    case Type::i8: return StoredDtype::I8;
  }
  fail("checkpoint: a type that has no place in a file");
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.count()) * size_of(x.type())};
}

// Bytes of f32, wherever they begin: without the sign, infinity is the least that is non-finite.
bool all_finite(std::span<const std::byte> bytes) {
  constexpr size_t kSize = sizeof(uint32_t);
  constexpr int64_t kGrain = 1 << 16;
  std::atomic<bool> finite = true;
  parallel_for(static_cast<int64_t>(bytes.size() / kSize), kGrain, [&](int64_t begin, int64_t end) {
    uint32_t most = 0;
    for (int64_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, bytes.data() + static_cast<size_t>(i) * kSize, kSize);
      most = std::max(most, bits & 0x7FFFFFFFu);
    }
    if (most >= 0x7F800000u) finite = false;
  });
  return finite;
}

// Blocks, scales and sums of a weight of k by n in eight bits.
Shape blocks_shape(int64_t k, int64_t n) {
  return {(n + 15) / 16, kernels::int8_depth(k) / 4, 16, 4};
}
Shape padded_shape(int64_t n) { return {(n + 15) / 16 * 16}; }
std::string scales_of(const std::string& name) { return name + ".scales"; }
std::string sums_of(const std::string& name) { return name + ".sums"; }

void check_entry(const std::string& path, const TensorEntry& entry, const Shape& wanted,
                 Type type) {
  require(
      entry.dtype != StoredDtype::I8 || type == Type::i8, path, ": tensor '", entry.name,
      "' has eight bits (heed quantize made it); it can be used, not trained or computed in f32");
  const Shape shape(entry.shape);
  require(shape == wanted && entry.dtype == stored(type), path, ": tensor '", entry.name, "' is ",
          to_string(entry.dtype), " ", shape, ", the model wants ", name(type), " ", wanted);
  require(entry.dtype != StoredDtype::F32 || all_finite(entry.bytes), path, ": tensor '",
          entry.name, "' has numbers that are none (NaN or infinite): the file is damaged");
}

}  // namespace

void save_tensors(const TensorsByName& tensors, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorForm> forms;
  for (const auto& [name, x] : tensors) forms.emplace(name, TensorForm{x.shape(), x.type()});
  save_tensors(
      forms, [&](const std::string& name) { return tensors.at(name); }, path, metadata);
}

void save_tensors(const std::map<std::string, TensorForm>& forms,
                  const std::function<Tensor(const std::string& name)>& get,
                  const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, form] : forms)
    entries.push_back({.name = name,
                       .dtype = stored(form.type),
                       .shape = {form.shape.begin(), form.shape.end()},
                       .bytes = {}});
  Tensor here;
  const auto bytes = [&](const TensorEntry& entry) -> std::span<const std::byte> {
    here = to(get(entry.name), Device::cpu);
    return bytes_of(here);
  };
  std::map<std::string, std::string> with_checksum = metadata;
  with_checksum[kChecksumEntry] = "";
  write_safetensors(path, entries, with_checksum, 8, bytes);
}

std::map<std::string, std::string> load_tensors(const TensorsByName& tensors,
                                                const std::filesystem::path& path,
                                                SafetensorsOptions options) {
  TensorParts parts;
  for (const auto& [name, x] : tensors) parts.emplace(name, TensorPart{x, x.shape()});
  return load_tensors(parts, path, options);
}

std::map<std::string, std::string> load_tensors(const TensorParts& parts,
                                                const std::filesystem::path& path,
                                                SafetensorsOptions options) {
  const SafetensorsFile file = SafetensorsFile::open(path, options);
  for (const auto& [name, x] : parts)
    check_entry(path.string(), file.at(name), x.whole, x.part.type());
  require(file.entries().size() == parts.size(), path.string(), ": has ", file.entries().size(),
          " tensors, the model wants ", parts.size());
  for (const auto& [name, x] : parts) {
    const size_t size = size_of(x.part.type());
    set_numbers(x.part, file.at(name).bytes.subspan(static_cast<size_t>(x.begin) * size,
                                                    static_cast<size_t>(x.part.count()) * size));
  }
  return file.metadata();
}

MappedTensors::MappedTensors(const std::filesystem::path& path, SafetensorsOptions options)
    : path_(path.string()),
      file_(std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path, options))),
      arena_(Arena::shared(current_arena().device())) {}

Tensor MappedTensors::at(const std::string& name, const Shape& shape, Type type) const {
  const TensorEntry& entry = file_->at(name);
  check_entry(path_, entry, shape, type);
  const auto place = reinterpret_cast<uintptr_t>(entry.bytes.data());
  if (arena_->device() == Device::cpu && place % size_of(type) == 0)
    // Nobody writes to what never changes.
    return look_at({.data = const_cast<std::byte*>(entry.bytes.data()),
                    .device = Device::cpu,
                    .owner = file_,
                    .constant = true},
                   shape, type);
  const UseArena lasting(*arena_);
  return uploaded(entry.bytes, shape, type);
}

bool MappedTensors::holds_int8(const std::string& name) const {
  const TensorEntry* const entry = file_->find(name);
  return entry && entry->dtype == StoredDtype::I8;
}

Tensor MappedTensors::bf16_at(const std::string& name, const Shape& shape, int outputs) const {
  const UseArena lasting(*arena_);
  if (arena_->device() == Device::cuda) {
    const TensorEntry& entry = file_->at(name);
    check_entry(path_, entry, shape, Type::f32);
    return bf16_weight_on_gpu(entry.bytes, shape, outputs);
  }
  const Tensor out = bf16_weight(at(name, shape, Type::f32), outputs);
  give_back(name);
  return out;
}

// Of what is in the file nobody needs a copy in memory any more: whole pages of it.
void MappedTensors::give_back(const std::string& name) const {
  const std::span<const std::byte> bytes = file_->at(name).bytes;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page,
             last = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Tensor MappedTensors::int8_at(const std::string& name, const Shape& shape, int outputs) const {
  const UseArena lasting(*arena_);
  if (!holds_int8(name)) {
    const Tensor out = int8_weight(at(name, shape, Type::f32), outputs);
    give_back(name);
    return out;
  }
  const int64_t k = shape[1 - outputs], n = shape[outputs];
  Int8Tensors parts{at(name, blocks_shape(k, n), Type::i8),
                    at(scales_of(name), padded_shape(n), Type::f32),
                    at(sums_of(name), padded_shape(n), Type::i32)};
  // Vectors are read whole: another writer may have put them elsewhere.
  if (reinterpret_cast<uintptr_t>(parts.blocks.raw()) % 64 != 0)
    parts.blocks = uploaded(file_->at(name).bytes, blocks_shape(k, n), Type::i8);
  return int8_weight(std::move(parts), shape, outputs);
}

void MappedTensors::require_only(size_t count) const {
  require(file_->entries().size() == count, path_, ": has ", file_->entries().size(),
          " tensors, the model wants ", count);
}

namespace {

TensorsByName by_name(const Params& params) {
  TensorsByName out;
  for (const Parameter& p : params.all()) out.emplace(p.name, p.value);
  return out;
}

}  // namespace

void save_parameters(const Params& params, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata) {
  save_tensors(by_name(params), path, metadata);
}

void save_int8_parameters(const Params& params, const std::filesystem::path& path,
                          const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  const auto add = [&](const std::string& name, StoredDtype dtype, const Shape& shape,
                       std::span<const std::byte> bytes) {
    entries.push_back({name, dtype, {shape.begin(), shape.end()}, bytes});
  };
  for (const Parameter& p : params.all()) {
    if (p.value.type() != Type::i8) {
      add(p.name, stored(p.value.type()), p.value.shape(), bytes_of(p.value));
      continue;
    }
    const kernels::Int8Weights& w = p.value.storage()->int8->weights;
    const Int8Parts parts = int8_parts(p.value);
    add(p.name, StoredDtype::I8, blocks_shape(w.k, w.n), parts.blocks);
    add(scales_of(p.name), StoredDtype::F32, padded_shape(w.n), parts.scales);
    add(sums_of(p.name), StoredDtype::I32, padded_shape(w.n), parts.sums);
  }
  std::map<std::string, std::string> with_checksum = metadata;
  with_checksum[kChecksumEntry] = "";
  write_safetensors(path, entries, with_checksum, 64);
}

void load_parameters(const Params& params, const std::filesystem::path& path,
                     SafetensorsOptions options) {
  load_tensors(by_name(params), path, options);
}

}  // namespace heed
