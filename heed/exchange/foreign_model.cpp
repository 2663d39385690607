#include "heed/exchange/foreign_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/files/safetensors.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace

Array transposed(const Array& x) {
  const int64_t m = x.shape.at(0), n = x.shape.at(1);
  Array out{{n, m}, std::vector<float>(x.values.size())};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      out.values[static_cast<size_t>(j * m + i)] = x.values[static_cast<size_t>(i * n + j)];
  return out;
}

Array rows_of(const Array& x, int64_t first, int64_t count) {
  const int64_t n = x.shape.size() > 1 ? x.shape[1] : 1;
  Array out{x.shape, {}};
  out.shape[0] = count;
  const auto from = x.values.begin() + first * n;
  out.values.assign(from, from + count * n);
  return out;
}

Array columns_of(const Array& x, int64_t first, int64_t count) {
  return transposed(rows_of(transposed(x), first, count));
}

const Array& Conversion::at(const std::string& name) {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    std::vector<std::string> names;
    for (const auto& [other, array] : arrays_) names.push_back(other);
    const std::string near = nearest(name, names);
    fail(what_, ": has no array '", name, "'", near.empty() ? "" : "; there is '" + near + "'");
  }
  used_.insert(name);
  return found->second;
}

Array Conversion::take(const std::string& name, size_t rank) {
  Array array = at(name);
  while (array.shape.size() > rank && array.shape.front() == 1)
    array.shape.erase(array.shape.begin());
  require(array.shape.size() == rank, what_, ": array '", name, "' is ", text_of(at(name).shape),
          ", wanted: ", rank, " sizes");
  return array;
}

std::optional<double> Conversion::scalar(const std::string& name) {
  if (!has(name)) return std::nullopt;
  const Array& array = at(name);
  require(array.values.size() == 1, what_, ": '", name, "' is ", text_of(array.shape),
          "; a number was wanted");
  return double(array.values[0]);
}

void Conversion::put(std::string name, Array array, const std::string& from) {
  std::replace(name.begin(), name.end(), '/', '.');
  for (const float x : array.values)
    require(std::isfinite(x), what_, ": array '", from,
            "' has numbers that are none (NaN or infinite)");
  mapping_.push_back(from + " -> " + name + " " + text_of(array.shape));
  require(parameters_.emplace(name, std::move(array)).second, what_, ": '", name, "' comes twice");
}

Array Conversion::weight(const std::string& name) {
  const Array array = take(name, 2);
  return layout_ == Layout::out_in ? transposed(array) : array;
}

void Conversion::linear(const std::string& weight_name, const std::string& bias_name,
                        const std::string& to) {
  Array w = weight(weight_name);
  const int64_t out = w.shape[1];
  put(to + "/weight", std::move(w), weight_name);
  Array bias{{out}, std::vector<float>(static_cast<size_t>(out))};
  const bool there = has(bias_name);
  if (there) bias = take(bias_name, 1);
  put(to + "/bias", std::move(bias), there ? bias_name : "zeros");
}

void Conversion::norm(const std::string& gain, const std::string& bias, const std::string& to) {
  put(to + "/gain", take(gain, 1), gain);
  put(to + "/bias", take(bias, 1), bias);
}

void Conversion::finish(ForeignModel& model) {
  std::string unused;
  size_t count = 0;
  for (const auto& [name, array] : arrays_)
    if (!used_.contains(name) && ++count <= 5) unused += (unused.empty() ? "" : ", ") + name;
  require(count == 0, what_, ": ", count, " array", count > 1 ? "s" : "",
          " that heed has no part for: ", unused, count > 5 ? ", ..." : "",
          "; the model cannot be imported");
  model.parameters = std::move(parameters_);
  model.mapping = std::move(mapping_);
}

void add_zero_begin(ForeignModel& model) {
  const auto widen = [&](const std::string& name) {
    Array& table = model.parameters.at(name);
    table.values.resize(table.values.size() + static_cast<size_t>(table.shape.at(1)));
    ++table.shape[0];
  };
  if (!model.config.shared_embeddings)
    widen("target.table");
  else
    widen("source.table");
  if (!model.config.tied) {
    Array& out = model.parameters.at("output.weight");  // [D, V]
    Array wide = transposed(out);
    wide.values.resize(wide.values.size() + static_cast<size_t>(wide.shape[1]));
    ++wide.shape[0];
    out = transposed(wide);
  }
  const auto words = static_cast<int64_t>(model.tokenizers.target->size());
  Array& bias = model.parameters["output.bias"];
  bias.shape = {words};
  bias.values.resize(static_cast<size_t>(words - 1));
  bias.values.push_back(kNever);
  model.config.output_bias = true;
}

void check(const ForeignModel& model, const std::string& what) {
  check(model.config);
  float nothing = 0;
  size_t known = 0;
  const Params counted([&](const std::string& name, const Shape& shape, Params::Use) {
    const auto found = model.parameters.find(name);
    require(found != model.parameters.end(), what, ": has nothing for '", name,
            "', which a model of this configuration has");
    require(Shape(std::span<const int64_t>(found->second.shape)) == shape, what, ": '", name,
            "' is ", text_of(found->second.shape), ", the configuration wants ", shape);
    ++known;
    return look_at({.data = &nothing}, shape);
  });
  assembled(what, model.config, model.tokenizers, counted);
  for (const auto& [name, array] : model.parameters)
    require(known == model.parameters.size() ||
                std::any_of(counted.all().begin(), counted.all().end(),
                            [&](const Parameter& p) { return p.name == name; }),
            what, ": '", name, "' has no place in a model of this configuration");
}

void write_model(const ForeignModel& model, const std::filesystem::path& from,
                 const std::filesystem::path& to) {
  check(model, from.string());
  std::error_code error;
  require(!std::filesystem::exists(to) || std::filesystem::is_empty(to, error), to.string(),
          ": is there already; choose another folder for the model");
  std::filesystem::create_directories(to, error);
  require(!error, to.string(), ": the model's folder cannot be made: ", error.message());
  model.tokenizers.save(to);
  if (!model.shortlist.empty()) write_file(to / kShortlistName, model.shortlist);
  std::vector<TensorEntry> entries;
  for (const auto& [name, array] : model.parameters)
    entries.push_back({.name = name,
                       .dtype = StoredDtype::F32,
                       .shape = array.shape,
                       .bytes = std::as_bytes(std::span(array.values))});
  write_safetensors(to / "model.safetensors", entries, {{kChecksumEntry, ""}}, 64);
  nlohmann::ordered_json json{
      {"heed", kFolderFormat},
      {"model", nlohmann::ordered_json::parse(to_json(model.config))},
      {"imported", {{"format", model.format}, {"from", from.filename().string()}}},
      {"search", to_json(model.search)},
      {"alignment", to_json(model.alignment)},
      {"checksums", nlohmann::ordered_json::object()}};
  for (const std::string& name : tokenizer_names())
    if (std::filesystem::exists(to / name)) json["checksums"][name] = checksum(to / name);
  write_config(to, std::move(json));  // last: from here on it is a model
}

}  // namespace heed
