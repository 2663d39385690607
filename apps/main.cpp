// The program `heed`: parse, call the library, print. Answers go to stdout, talk to stderr; the
// exit code is 0 on success, 1 for failures, 2 for usage, and as a shell tells it 130 after Ctrl-C,
// 143 after SIGTERM and 129 where the terminal was closed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <optional>
#include <sstream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/ranks.h"
#include "apps/training.h"
#include "heed/base/check.h"
#include "heed/tensor/cuda.h"
#include "heed/version.h"

namespace {

std::string version() {
  std::string text = std::string("heed ") + heed::kVersion + "\n";
  const heed::CudaDevices cuda = heed::cuda_devices();
  if (!cuda.built) return text + "cuda: not built in";
  if (cuda.names.empty()) return text + "cuda: built in, " + cuda.trouble;
  for (const std::string& name : cuda.names) text += "cuda: " + name + "\n";
  text.pop_back();
  return text;
}

class Help : public CLI::Formatter {
  // Of a command among others the first line: its examples are in its own help.
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = command->get_description();
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), text.substr(0, text.find('\n')),
                             column_width_);
    return out.str();
  }

  // A flag that may be given several times has no default worth telling.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    if (const size_t empty = text.find("=[]"); empty != text.npos) text.erase(empty, 3);
    return text;
  }
};

// What is said of the first flag that the command does not have, if there is one.
std::optional<std::string> misspelt(const CLI::App& command) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& given : command.remaining()) {
    if (given.size() < 2 || given[0] != '-') continue;
    const std::string near = heed::nearest(given, known);
    return "unknown flag '" + given + "'" + (near.empty() ? "" : "; did you mean '" + near + "'?");
  }
  return std::nullopt;
}

// What is said of arguments that do not fit.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error,
                        const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;  // the innermost that was recognized
  std::string called = "heed";
  size_t depth = 0;
  const auto go_into = [&](const CLI::App* inner) {
    command = inner;
    called += " " + command->get_name();
    ++depth;
  };
  for (auto inner = app.get_subcommands(); !inner.empty(); inner = command->get_subcommands())
    go_into(inner.front());
  // What is wrong with a --config file is found before any command is.
  if (depth == 0 && !arguments.empty())
    for (const CLI::App* inner : app.get_subcommands({}))
      if (inner->get_name() == arguments[0]) go_into(inner);
  std::vector<std::string> known;
  for (const CLI::App* inner : command->get_subcommands({})) known.push_back(inner->get_name());
  std::string trouble = misspelt(*command).value_or(error.what());
  if (const std::vector<std::string> more = command->remaining();
      dynamic_cast<const CLI::ExtrasError*>(&error) && !more.empty() && !misspelt(*command))
    trouble = "'" + more.front() + "' was not expected: no flag stands before it";
  const bool flag = arguments.size() > depth && arguments[depth].starts_with('-');
  if (!known.empty() && !flag && dynamic_cast<const CLI::RequiredError*>(&error))
    trouble = arguments.size() <= depth ? "a command is wanted"
                                        : heed::unknown_name("command", arguments[depth], known);
  return "heed: " + trouble + "\nRun '" + called + " --help' for what can be given.\n";
}

int run(int argc, char** argv) {
  CLI::App app{
      "heed: attention models, trained, run and shown\n"
      "Examples:\n"
      "  heed train --source a.en --target a.de --model m    a translator of your own\n"
      "  heed translate --model m < text.en > text.de\n"
      "  heed score -r ref.txt hyp.txt  BLEU of a translation, as sacreBLEU gives it\n"
      "  heed lm train --text book.txt --model m             a language model\n"
      "  heed study --list              experiments that show why attention is as it is\n",
      "heed"};
  app.formatter(std::make_shared<Help>());
  app.require_subcommand(1);
  app.set_version_flag("--version", version);
  app.option_defaults()->always_capture_default();  // --help tells them
  heed::apps::add_commands(app);
  heed::apps::check_numbers(app);
  try {
    try {
      std::vector<std::string> arguments = heed::apps::with_settings(app, {argv + 1, argv + argc});
      std::ranges::reverse(arguments);  // as CLI11 wants them
      app.parse(std::move(arguments));
    } catch (const CLI::Success& e) {  // --help, --version
      if (argv[1][0] != '-' && app.get_subcommands().empty()) {
        std::cerr << usage_error(app, CLI::RequiredError("command"), {argv + 1, argv + argc});
        return 2;
      }
      app.exit(e);
    }
    errno = 0;
    bool written = std::cout.flush() && std::fflush(stdout) == 0 && !std::ferror(stdout);
    // What failed before left no cause: it is asked for again.
    if (!written && errno == 0) std::fputc('\n', stdout), std::fflush(stdout);
    const int cause = errno;
    heed::require(written, "standard output cannot be written to", cause ? ": " : "",
                  cause ? std::strerror(cause) : "");
  } catch (const CLI::ParseError& e) {
    std::cerr << usage_error(app, e, {argv + 1, argv + argc});
    return 2;
  } catch (const std::bad_alloc&) {
    heed::apps::tell_failure("out of memory");
    return 1;
  } catch (const std::exception& e) {
    heed::apps::tell_failure(e.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  heed::apps::silence_other_ranks();
  const int code = run(argc, argv);
  heed::apps::leave_ranks(code);
  const int signal = heed::apps::stop_signal();
  if (signal == 0) return code;
  // What was asked to stop has saved, and now ends as it would have without: who started it, a
  // shell between `train && translate` say, sees that it was stopped.
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  return 128 + signal;  // the first process of a container, which such a signal does not end
}
