// Flags from a described configuration (models/config.h): one for each field, named after it with
// dashes. Only those that are given change anything, so a preset can be the ground.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed::apps {

template <class Config>
class Flags {
 public:
  Flags(CLI::App& app, const std::string& group) {
    Config defaults;
    fields(defaults, [&](const char* name, auto& value, const char* what) {
      using T = std::remove_cvref_t<decltype(value)>;
      std::string flag = name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      auto given = std::make_shared<std::optional<T>>();
      if constexpr (std::is_same_v<T, bool>)
        // By function: bound to a variable, a flag that is not given would set it to false.
        app.add_flag_function(
               "--" + flag + ",!--no-" + flag, [given](int64_t count) { *given = count > 0; }, what)
            ->group(group);
      else
        app.add_option("--" + flag, *given, what)->group(group);
      set_.push_back([given, wanted = std::string(name)](Config& config) {
        if (!*given) return;
        fields(config, [&](const char* field, auto& target, const char*) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(target)>, T>)
            if (wanted == field) target = **given;
        });
      });
    });
  }
  void apply(Config& config) const {
    for (const auto& set : set_) set(config);
  }

 private:
  std::vector<std::function<void(Config&)>> set_;
};

// --threads and --device, as every command that computes has them.
struct Machine {
  int threads = 0;
  std::string device = "auto";
};
void add_machine_flags(CLI::App& app, Machine& machine);
// Throws Error if the device is not there.
void use(const Machine& machine);

// Throws what is told as a mistake in the arguments, unless `holds`.
void want(bool holds, const std::string& words);

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
