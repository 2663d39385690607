// heed study: experiments that show why attention is as it is.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/training.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/studies/study.h"

namespace heed::apps {
namespace {

struct Options {
  std::string name, out = ".", grammar, senses;
  bool list = false;
  StudyOptions study;
  Machine machine;
};

// What comes with heed: in this folder's data, as in the sources, or where it was installed or
// built.
std::filesystem::path of_heed(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path here = fs::path("data") / name;
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& found :
       {here, program / HEED_INSTALLED_DATA / name, program / HEED_SOURCE_DATA / name})
    if (fs::exists(found, none)) return found.lexically_normal();
  return here;
}

const StudyRow& chosen(const std::string& name) {
  want(!name.empty(), "the name of a study is required ('heed study --list' has them)");
  return *as_usage([&] { return &study_row(name); });
}

void check_usage(const Options& o, const StudyRow& row) {
  const StudyOptions& s = o.study;
  const size_t given = static_cast<size_t>(!s.text.source.empty()) + !s.text.target.empty() +
                       !s.test.source.empty() + !s.test.target.empty();
  want(given == 0 || !s.small, "real text takes minutes; leave --small out");
  if (std::string(row.name) == "senses" && given == 1 && !s.text.source.empty()) return;
  want(given == 0 || given == 4,
       "real text wants four files: --source, --target, --test-source and --test-target");
  want(given == 0 || std::string(row.name) == "bottleneck",
       std::string("study '") + row.name + "' reads no text; 'bottleneck' and 'senses' do");
}

// What an earlier run of the study wrote is written over, and nothing else.
void want_own_files(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path data = folder / (name + ".json");
  constexpr const char* kTrouble = ": heed did not write it; choose another folder with --out";
  if (const std::optional<std::string> text = read_file(data)) {
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    require(json.is_object() && json.contains("study") && json["study"] == name, data.string(),
            kTrouble);
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    require(
        !file.ends_with(".svg") || !(file.starts_with(name + ".") || file.starts_with(name + "-")),
        entry.path().string(), kTrouble);
  }
}

void run(Options o) {
  if (o.list) {
    for (const StudyRow& row : study_table()) std::printf("%-12s %s\n", row.name, row.what);
    return;
  }
  const StudyRow& row = chosen(o.name);
  check_usage(o, row);
  use(o.machine);
  const std::filesystem::path folder = o.out;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(std::filesystem::is_directory(folder), o.out,
          ": the folder to write to cannot be made: ", error ? error.message() : "it is a file");
  want_own_files(folder, o.name);
  o.study.grammar = o.grammar.empty() ? of_heed("grammar") : std::filesystem::path(o.grammar);
  o.study.senses =
      o.senses.empty() ? of_heed("senses/senses.tsv") : std::filesystem::path(o.senses);
  StatusLine status;
  o.study.tell = [&](const std::string& line) { status.show(line); };
  // Only from where a model trains on: before, and in a study without any, Ctrl-C ends at once.
  o.study.stop = [asked = std::function<bool()>()]() mutable {
    if (!asked) asked = stop_on_signal();
    return asked();
  };
  const Study study = row.run(o.study);
  status.clear();
  for (const StudyTable& table : study.tables) std::printf("%s\n", to_text(table).c_str());
  for (const StudyClaim& claim : study.claims)
    std::printf("%s: %s\n", claim.holds ? "holds" : "does not hold", claim.text.c_str());
  write_file(folder / (o.name + ".json"), to_json(o.name, o.study, study));
  for (const StudyPicture& picture : study.pictures)
    write_file(folder / (picture.name + ".svg"), picture.svg);
  std::fprintf(stderr, "%s.json", (folder / o.name).c_str());
  for (const StudyPicture& picture : study.pictures)
    std::fprintf(stderr, ", %s.svg", (folder / picture.name).c_str());
  std::fprintf(stderr, "\n");
}

}  // namespace

void add_study(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* study = app.add_subcommand(
      "study",
      "experiments that show why attention is as it is: a table, pictures, the data\n"
      "Examples:\n"
      "  heed study --list\n"
      "  heed study dictionary                      prints, and writes dictionary.json and .svg\n"
      "  heed study bottleneck --small --out s      half a minute instead of many\n"
      "  heed study bottleneck --source a.en --target a.de --test-source t.en --test-target "
      "t.de\n");
  study->add_option("name", o->name, "which one");
  study->add_flag("--list", o->list, "list the studies");
  study->add_option("--out", o->out, "the folder for NAME.json and the pictures");
  study->add_flag("--small", o->study.small,
                  "small models and short training, for the same claims");
  study->add_option("--seed", o->study.seed, "of everything that is drawn");
  study->add_option("--grammar", o->grammar,
                    "scores: the folder with the grammar's words, if not heed's own");
  study->add_option("--senses", o->senses,
                    "senses, with --source: the file of the word-sense test, if not heed's own");
  study->add_option("--source", o->study.text.source,
                    "bottleneck, senses: real text to learn from");
  study->add_option("--target", o->study.text.target, "its translation");
  study->add_option("--test-source", o->study.test.source, "real text to translate");
  study->add_option("--test-target", o->study.test.target, "its translation");
  add_machine_flags(*study, o->machine);
  study->callback([o] { run(*o); });
}

}  // namespace heed::apps
