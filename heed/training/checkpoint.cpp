#include "heed/training/checkpoint.h"

#include <cstring>
#include <span>

#include "heed/files/safetensors.h"

namespace heed {
namespace {

StoredDtype stored(Type type) {
  switch (type) {
    case Type::f32: return StoredDtype::F32;
    case Type::f64: return StoredDtype::F64;
    case Type::bf16: return StoredDtype::BF16;
    case Type::i32: return StoredDtype::I32;
  }
  fail("checkpoint: a type that has no place in a file");
}

std::span<std::byte> bytes_of(const Tensor& x) {
  const size_t size = static_cast<size_t>(x.count()) * size_of(x.type());
  const auto pointer = [&]<class T>() { return reinterpret_cast<std::byte*>(x.data<T>()); };
  return {x.type() == Type::f64 ? pointer.operator()<double>() : pointer.operator()<float>(), size};
}

}  // namespace

void save_parameters(const Params& params, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const Parameter& p : params.all())
    entries.push_back({.name = p.name,
                       .dtype = stored(p.value.type()),
                       .shape = {p.value.shape().begin(), p.value.shape().end()},
                       .bytes = bytes_of(p.value)});
  write_safetensors(path, entries, metadata);
}

void load_parameters(const Params& params, const std::filesystem::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const Parameter& p : params.all()) {
    const TensorEntry& entry = file.at(p.name);
    const Shape shape(entry.shape);
    require(shape == p.value.shape() && entry.dtype == stored(p.value.type()), path.string(),
            ": tensor '", p.name, "' is ", to_string(entry.dtype), " ", shape, ", the model wants ",
            name(p.value.type()), " ", p.value.shape());
  }
  require(file.entries().size() == params.all().size(), path.string(), ": has ",
          file.entries().size(), " tensors, the model wants ", params.all().size());
  for (const Parameter& p : params.all())
    std::memcpy(bytes_of(p.value).data(), file.at(p.name).bytes.data(), bytes_of(p.value).size());
}

}  // namespace heed
