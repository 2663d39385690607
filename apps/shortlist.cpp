// heed shortlist: which target pieces each source piece may become, kept in a model's folder.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/translation/model_folder.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, source, target;
  ShortlistOptions list;
  Machine machine;
};

// How many pieces a sentence may say, of the first ones.
double mean_length(const Shortlist& list, const TokenizerPair& tokenizers,
                   const std::vector<std::string>& sources) {
  const size_t count = std::min<size_t>(sources.size(), 1000);
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += list.of(framed(tokenizers.source->encode(sources[i]).ids, tokenizers.source->special()))
               .size();
  return double(sum) / double(std::max<size_t>(1, count));
}

void run(Options o) {
  want(!o.folder.empty() && !o.source.empty() && !o.target.empty(),
       "--model, --source and --target are required");
  use(o.machine);
  const std::filesystem::path file = std::filesystem::path(o.folder) / kShortlistName;
  require(!is_language_model(read_model_config(o.folder)), o.folder,
          ": a language model; a shortlist is of a translator, whose source says what may follow");
  const TokenizerPair tokenizers = TokenizerPair::load(o.folder);
  want_writable(file);
  const std::vector<std::string> sources = read_text(o.source), targets = read_text(o.target);
  require(sources.size() == targets.size(), o.source, " has ", sources.size(), " lines, ", o.target,
          " has ", targets.size());
  StatusLine status;
  o.list.progress = [&](const AlignerProgress& p) {
    status.show(std::string(p.stage) + ": pass " + std::to_string(p.pass) + " of " +
                std::to_string(p.passes) + ", " + std::to_string(p.done) + " of " +
                std::to_string(p.pairs) + " pairs");
  };
  const Shortlist list = learn_shortlist(tokenizers, sources, targets, o.list);
  status.clear();
  write_file(file, list.bytes());
  std::fprintf(stderr, "%s: a sentence of these may say %.0f of %d pieces on average\n",
               file.string().c_str(), mean_length(list, tokenizers, sources),
               tokenizers.target->size());
}

}  // namespace

void add_shortlist(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "shortlist",
      "learn from pairs which pieces a translation may have, and keep it in the model's folder\n"
      "Its output layer then computes these alone, which is faster, mostly of large vocabularies.\n"
      "Examples:\n"
      "  heed shortlist --model m --source train.en --target train.de\n"
      "  heed translate --model m < text.en > text.de\n"
      "  heed translate --model m --shortlist none < text.en > text.de      all pieces\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--source", o->source, "source sentences, as the model was trained on");
  command->add_option("--target", o->target, "their translations");
  command
      ->add_option("--always", o->list.always,
                   "so many target pieces, the most frequent, are always allowed")
      ->check(CLI::Range(0, 1000000));
  command->add_option("--best", o->list.best, "target pieces of a source piece at most")
      ->check(CLI::Range(1, 1000000));
  add_machine_flags(*command, o->machine);
  command->callback([o] { run(*o); });
}

}  // namespace heed::apps
