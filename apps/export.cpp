// heed export: a Transformer of heed's in another toolkit's files.
#include <cstdio>

#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/exchange/hugging_face.h"
#include "heed/exchange/marian.h"
#include "heed/tensor/cuda.h"
#include "heed/translation/model_folder.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, to, out;
};

void run(const Options& o) {
  want(!o.folder.empty() && !o.to.empty() && !o.out.empty(),
       "--model, --to and --out are required");
  const UseDevice host(Device::cpu);
  const NoTape off;
  const ModelFolder model = load_model(o.folder);
  if (o.to == "ctranslate2") write_ctranslate2(model, o.out);
  if (o.to == "huggingface") write_hugging_face(model, o.out);
  if (o.to == "marian") write_marian(model, o.out);
  std::fprintf(stderr, "%s: written for %s\n", o.out.c_str(), o.to.c_str());
  if (o.to == "ctranslate2")
    std::fprintf(stderr, "there heed's words are those of translate_batch(pieces, %s)\n",
                 ctranslate2_search(model).c_str());
}

}  // namespace

void add_export(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "export",
      "write a Transformer for CTranslate2, Hugging Face (MarianMT) or Marian\n"
      "What the other cannot compute is said before anything is written. See docs/import.md.\n"
      "Examples:\n"
      "  heed export --model m --to ctranslate2 --out m-ct2\n"
      "  heed export --model m --to huggingface --out m-hf\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--to", o->to, "ctranslate2, huggingface or marian")
      ->check(CLI::IsMember({"ctranslate2", "huggingface", "marian"}));
  command->add_option("--out", o->out, "the new folder");
  command->callback([o] { run(*o); });
}

}  // namespace heed::apps
