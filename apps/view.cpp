// heed view: what a translation attended to, drawn.
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder;
  TranslateOptions translate;
  std::string color = "auto";
  Machine machine;
};

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
  std::vector<std::string> out;
  for (const Id id : ids) out.push_back(tokenizer.piece(id));
  return out;
}

Heatmap map_of(const ModelFolder& model, const Translation& t) {
  const Translation::Candidate& c = t.best();
  Heatmap map{pieces(*model.tokenizers.target, c.target.ids),
              pieces(*model.tokenizers.source, t.source.ids),
              {}};
  for (size_t i = 0; i < map.rows.size(); ++i)
    for (size_t j = 0; j < map.columns.size(); ++j) map.weights.push_back(double(c.weights[i][j]));
  return map;
}

void view(Options o) {
  require(!o.folder.empty(), "view: wants --model, a folder that 'heed train' made");
  use(o.machine);
  const Translator translator(o.folder);
  require(translator.model().config.score != "none", o.folder,
          ": a model without attention; there is nothing to show");
  o.translate.search.want_weights = true;
  const bool color = o.color == "always" || (o.color == "auto" && stdout_is_terminal());
  const std::vector<Translation> found = translator.translate(read_lines("-"), o.translate);
  for (const Translation& t : found) {
    if (t.source.ids.empty()) continue;
    std::printf(
        "%s\n-> %s\n%s\n", t.source.text.c_str(), t.best().text.c_str(),
        draw_terminal(map_of(translator.model(), t), color ? Ink::color : Ink::plain).c_str());
  }
}

}  // namespace

void add_view(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("view",
                                         "show what translations attend to\n"
                                         "Examples:\n"
                                         "  echo 'the black cat sleeps .' | heed view --model m\n"
                                         "  heed view --model m --beam 1 --head 2 < text.en\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--beam", o->translate.search.beam, "hypotheses kept in search")
      ->check(CLI::Range(1, 1000));
  command->add_option("--layer", o->translate.search.layer, "whose weights (-1: the last)");
  command->add_option("--head", o->translate.search.head, "whose weights (-1: the mean of all)");
  command->add_option("--color", o->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  add_machine_flags(*command, o->machine);
  command->callback([o] { view(*o); });
}

}  // namespace heed::apps
