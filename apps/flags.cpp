#include "apps/flags.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

namespace heed::apps {

std::string flag_of(const std::string& field) {
  std::string flag = "--" + field;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
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
        return text.empty() ? std::string("wants a number, given ''") : std::string();
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
