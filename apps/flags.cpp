#include "apps/flags.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/files/atomic_file.h"
#include "heed/models/config.h"
#include "heed/models/config_json.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

namespace heed::apps {

std::string flag_of(const std::string& field) {
  std::string flag = "--" + field;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

namespace {

using Json = nlohmann::ordered_json;
using Settings = std::vector<std::pair<std::string, Json>>;

// What is wrong with a text that is no JSON, and where.
std::string json_trouble(const std::string& text) {
  try {
    return Json::parse(text).is_object() ? "" : "it is something else";
  } catch (const Json::exception& error) {
    const std::string told = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    return told.substr(told.find(']') + 2);
  }
}

// A model's own config.json: it has every field, those of other models too.
Settings settings_of_model(const Json& json) {
  Settings out;
  const ModelConfig described;
  const std::string other =
      json["model"].value("family", described.family) == "rnn" ? "transformer" : "rnn";
  fields(described, [&](const char* key, const auto&, const std::string& what) {
    if (json["model"].contains(key) && !what.starts_with(other + ":") &&
        !what.starts_with(other + ","))
      out.emplace_back(key, json["model"][key]);
  });
  // One of the two means takes the place of the other.
  const bool plain_mean = json["training"].value("average_last", int64_t{0}) > 0;
  const bool aligns = json["training"].value("guided_auto", false);
  for (const auto& [key, value] : json["training"].items()) {
    if (key == (plain_mean ? "average" : "average_last") || key == "guided_auto") continue;
    out.emplace_back(key, key == "guided" && aligns ? Json("auto") : value);
  }
  return out;
}

// The settings of a --config file, by the names that they have there.
Settings settings_of(const std::string& file) {
  const std::string where = "--config " + file + ": ";
  const std::optional<std::string> text = as_usage([&] { return read_file(file); });
  want(text.has_value(), where + "cannot be read: there is no such file");
  const Json json = parse_json<Json>(*text);
  if (!json.is_object())
    want(false, where + "not a JSON object, such as {\"minutes\": 20}: " + json_trouble(*text));
  if (!json.contains("heed")) {
    Settings out;
    for (const auto& [key, value] : json.items()) out.emplace_back(key, value);
    return out;
  }
  want(json.contains("model") && json.contains("training"),
       where + "a model's config.json, without what it was trained by");
  try {
    return settings_of_model(json);
  } catch (const Json::exception&) {
    want(false, where + "not as heed writes a model's config.json");
  }
  return {};
}

}  // namespace

std::vector<std::string> with_settings(const CLI::App& app, std::vector<std::string> arguments) {
  const CLI::App* command = nullptr;
  for (const CLI::App* one : app.get_subcommands({}))
    if (!arguments.empty() && one->get_name() == arguments[0]) command = one;
  if (!command || !command->get_option_no_throw(kConfigFlag)) return arguments;
  std::optional<std::string> file;
  for (size_t i = 1; i < arguments.size(); ++i)
    if (arguments[i] == kConfigFlag && i + 1 < arguments.size())
      file = arguments[i + 1];
    else if (arguments[i].starts_with(std::string(kConfigFlag) + "="))
      file = arguments[i].substr(std::string(kConfigFlag).size() + 1);
  if (!file) return arguments;
  want(!file->empty(), std::string(kConfigFlag) + " wants a file");
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames())
      if (name != "config" && name != "help" && name != "list") known.push_back(name);
  const std::vector<std::string> said = arguments;
  const auto given = [&](const std::string& flag) {
    return std::ranges::any_of(said, [&](const std::string& argument) {
      return argument == flag || argument.starts_with(flag + "=");
    });
  };
  for (const auto& [key, value] : settings_of(*file)) {
    const std::string flag = flag_of(key), name = flag.substr(2), no = "--no-" + name;
    if (std::ranges::find(known, name) == known.end())
      want(false, "--config " + *file + ": " + unknown_name("key", key, known));
    // Several files, as of a corpus: the flag several times.
    const bool list = value.is_array() && !value.empty() &&
                      std::ranges::all_of(value, [](const Json& v) { return v.is_string(); });
    want(list || value.is_string() || value.is_number() || value.is_boolean(),
         "--config " + *file + ": '" + key + "' cannot be " + value.dump());
    if (given(flag) || given(no)) continue;
    if (value == false && std::ranges::find(known, no.substr(2)) == known.end()) continue;
    if (value.is_boolean())
      arguments.push_back(value.get<bool>() ? flag : no);
    else
      for (const Json& one : list ? value : Json::array({value}))
        arguments.push_back(flag + "=" + (one.is_string() ? one.get<std::string>() : one.dump()));
  }
  return arguments;
}

void add_machine_flags(CLI::App& app, Machine& machine) {
  app.add_option("--threads", machine.threads, "threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->default_str("all");
  app.add_option("--device", machine.device, "cpu, cuda or auto")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
}

void use(const Machine& machine) {
  if (machine.threads > 0) set_threads(machine.threads);
  const CudaDevices cuda = cuda_devices();
  const bool usable = cuda.built && cuda.trouble.empty();
  if (machine.device == "cpu" || (machine.device == "auto" && !usable)) return;
  Context::set_default_gpu(machine.gpu);
  static const UseDevice from_now_on(Device::cuda);
}

namespace {
template <class Holds>
CLI::Validator number(const std::string& wanted, Holds holds) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        const bool read = CLI::detail::lexical_cast(text, value);
        return read && std::isfinite(value) && holds(value) ? ""
                                                            : "wants " + wanted + ", given " + text;
      },
      "");
}
}  // namespace

CLI::Validator above_zero() {
  return number("a number above 0", [](double x) { return x > 0; });
}
CLI::Validator not_negative() {
  return number("a number of at least 0", [](double x) { return x >= 0; });
}

namespace {
template <class T>
bool reads_as(const std::string& text) {
  T value{};
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0),
             *end = text.data() + text.size();
  const auto [last, error] = std::from_chars(begin, end, value);
  const bool octal = end - begin > 1 && *begin == '0';  // to CLI11
  return error == std::errc() && last == end && !octal;
}
std::string not_whole(const std::string& least, const std::string& text) {
  return "wants a whole number" + least + " in decimal digits, of at most 64 bits, given '" + text +
         "'";
}
}  // namespace

void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("UINT"))
      option->check([](const std::string& text) {
        return reads_as<uint64_t>(text) ? "" : not_whole(" of at least 0", text);
      });
    else if (type.starts_with("INT"))
      option->check([](const std::string& text) {
        return reads_as<int64_t>(text) ? "" : not_whole("", text);
      });
    else if (type.starts_with("FLOAT"))
      option->check([](const std::string& text) {
        double value = 0;
        const bool read = !text.empty() && CLI::detail::lexical_cast(text, value);
        return read ? std::string() : "wants a number, given '" + text + "'";
      });
  }
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

void want(bool holds, const std::string& words) {
  if (!holds) throw CLI::ValidationError(words);
}

std::string duration(double seconds) {
  const long s = std::lround(std::max(0.0, seconds));
  char text[32];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%ldh%02ldm", s / 3600, s / 60 % 60);
  else if (s >= 60)
    std::snprintf(text, sizeof text, "%ldm%02lds", s / 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lds", s);
  return text;
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

void StatusLine::show(const std::string& text) {
  if (!stderr_is_terminal()) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  shown_ = true;
}
void StatusLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}
StatusLine::~StatusLine() { clear(); }

}  // namespace heed::apps
