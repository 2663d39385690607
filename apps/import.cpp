// heed import: another toolkit's model as a folder of heed's.
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/exchange/import.h"

namespace heed::apps {
namespace {

struct Options {
  std::string from, folder, source_pieces, target_pieces, pieces;
  bool source_end = false, dry_run = false;
};

void run(const Options& o, bool end_given) {
  want(!o.from.empty(), "a model to import is required, a folder or a file");
  want(o.dry_run || !o.folder.empty(), "--model is required, the new folder");
  ImportOptions options;
  if (!o.pieces.empty()) options.source_pieces = options.target_pieces = o.pieces;
  if (!o.source_pieces.empty()) options.source_pieces = o.source_pieces;
  if (!o.target_pieces.empty()) options.target_pieces = o.target_pieces;
  if (end_given) options.source_end = o.source_end;
  const ForeignModel model = read_foreign(o.from, options);
  for (const std::string& note : model.notes) std::fprintf(stderr, "%s\n", note.c_str());
  int64_t count = 0;
  for (const auto& [name, array] : model.parameters) count += std::ssize(array.values);
  if (o.dry_run) {
    for (const std::string& line : model.mapping) std::cout << line << '\n';
    std::cout << to_json(model.config) << '\n';
  } else {
    write_model(model, o.from, o.folder);
  }
  std::fprintf(stderr, "%s: %s, %.1f million parameters, %d and %d pieces%s\n",
               o.dry_run ? o.from.c_str() : o.folder.c_str(), model.format.c_str(),
               double(count) / 1e6, static_cast<int>(model.tokenizers.source->size()),
               static_cast<int>(model.tokenizers.target->size()),
               o.dry_run ? "; nothing was written" : "");
}

}  // namespace

void add_import(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "import",
      "another toolkit's model as one of heed's: translated with, shown, aligned, trained on\n"
      "What it is is seen from the files: folders of CTranslate2, of Hugging Face (MarianMT), of\n"
      "Marian and OPUS-MT (decoder.yml, .npz), of Firefox (.bin). See docs/import.md.\n"
      "Examples:\n"
      "  heed import opus-mt-en-de --model m          then: heed translate --model m < text.en\n"
      "  heed import ct2-folder --pieces spm.model --model m\n"
      "  heed import ct2-folder --dry-run             which array becomes what; writes nothing\n");
  command->add_option("path", o->from, "the model: a folder, or a file of weights");
  command->add_option("--model", o->folder, "the new folder");
  command->add_option("--pieces", o->pieces,
                      "the SentencePiece model of both sides, where it is not in the folder");
  command->add_option("--source-pieces", o->source_pieces, "the SentencePiece model of the source");
  command->add_option("--target-pieces", o->target_pieces, "the SentencePiece model of the target");
  CLI::Option* const end =
      command->add_flag("--source-end,!--no-source-end", o->source_end,
                        "sources are read with an end, or without (where the files do not say)");
  command->add_flag("--dry-run", o->dry_run,
                    "print which array becomes what and the configuration; write nothing");
  command->callback([o, end] { run(*o, end->count() > 0); });
}

}  // namespace heed::apps
