// Flags from a described configuration (models/config.h): one for each field, named after it with
// dashes. Only those that are given change anything, so a preset can be the ground.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "heed/base/check.h"

namespace heed::apps {

// "average_last": "--average-last".
std::string flag_of(const std::string& field);

// Every field of a described configuration, as text.
template <class Config>
std::map<std::string, std::string> field_values(const Config& config) {
  std::map<std::string, std::string> out;
  fields(config, [&](const char* name, const auto& value, const char*) {
    std::ostringstream text;
    text << std::boolalpha << value;
    out[name] = text.str();
  });
  return out;
}

// The flags that make `config` of a plain one, and those that are `always` wanted: what a preset
// stands for.
template <class Config>
std::string flags_of(const Config& config, const std::set<std::string>& always) {
  const auto plain = field_values(Config{}), all = field_values(config);
  std::string out;
  fields(config, [&](const char* name, const auto&, const char*) {
    const std::string &value = all.at(name), flag = flag_of(name);
    if (value == plain.at(name) && !always.contains(name)) return;
    out += out.empty() ? "" : " ";
    out += value == "true"    ? flag
           : value == "false" ? "--no-" + flag.substr(2)
                              : flag + " " + value;
  });
  return out;
}

template <class Config>
class Flags {
 public:
  // `told`: what holds where a flag is not given, for --help; none where that is a preset's.
  // `hidden`: fields that are not for this command; its --help does not have them.
  Flags(CLI::App& app, const std::string& group, const std::optional<Config>& told,
        const std::set<std::string>& hidden) {
    Config defaults = told.value_or(Config{});
    fields(defaults, [&](const char* name, auto& value, const char* what) {
      using T = std::remove_cvref_t<decltype(value)>;
      const std::string flag = flag_of(name);
      auto given = std::make_shared<T>(value);
      // What counts is whether the flag was there: CLI11 also sets a bool where it was not.
      CLI::Option* option = nullptr;
      if constexpr (std::is_same_v<T, bool>)
        option = app.add_flag(flag + ",!--no-" + flag.substr(2), *given, what)->group(group);
      else
        option = app.add_option(flag, *given, what)->group(group);
      if (!told) option->default_str("");
      if (hidden.contains(name)) option->group("");
      given_.push_back([option, name] { return option->count() > 0 ? name : ""; });
      set_.push_back([option, given, wanted = std::string(name)](Config& config) {
        if (option->count() == 0) return;
        fields(config, [&](const char* field, auto& target, const char*) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(target)>, T>)
            if (wanted == field) target = *given;
        });
      });
    });
  }
  void apply(Config& config) const {
    for (const auto& set : set_) set(config);
  }
  // The fields whose flags were given.
  std::set<std::string> given() const {
    std::set<std::string> names;
    for (const auto& name : given_) names.insert(name());
    names.erase("");
    return names;
  }

 private:
  std::vector<std::function<std::string()>> given_;  // a field's name, or nothing
  std::vector<std::function<void(Config&)>> set_;
};

// The arguments of the program, with what the file of a command's --config adds: a JSON file whose
// keys are the command's flags ("batch_tokens"), or a model's config.json, to train another like
// it. What the command line says comes first.
inline constexpr const char* kConfigFlag = "--config";
std::vector<std::string> with_settings(const CLI::App& app, std::vector<std::string> arguments);

// --threads and --device, as every command that computes has them.
struct Machine {
  int threads = 0;
  std::string device = "auto";
  int gpu = 0;  // of several ranks: this one's
};
void add_machine_flags(CLI::App& app, Machine& machine);
// Throws Error if the device is not there.
void use(const Machine& machine);

// What a flag's number may be. CLI11's own PositiveNumber tells it in 309 digits.
CLI::Validator above_zero();
CLI::Validator not_negative();

// For every number of the commands: CLI11 takes '' for 0, 010 for 8, and what 64 bits do not hold.
void check_numbers(CLI::App& app);

// Throws what is told as a mistake in the arguments, unless `holds`.
void want(bool holds, const std::string& words);
// What `check` gives; an Error that it throws is told as such a mistake.
template <class Check>
auto as_usage(Check check) {
  try {
    return check();
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

// "1h02m", "3m20s", "12s".
std::string duration(double seconds);

// A line that is written over on a terminal; nothing where stderr is none.
class StatusLine {
 public:
  ~StatusLine();
  void show(const std::string& text);
  void clear();

 private:
  bool shown_ = false;
};
bool stderr_is_terminal();
bool stdout_is_terminal();

}  // namespace heed::apps
