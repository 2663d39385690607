// All commands of the program.
#include "apps/commands.h"

namespace heed::apps {

void add_commands(CLI::App& app) {
  add_train(app);
  add_translate(app);
  add_align(app);
  add_view(app);
  add_serve(app);
  add_lm(app);
  add_embed(app);
  add_quantize(app);
  add_shortlist(app);
  add_import(app);
  add_export(app);
  add_info(app);
  add_score(app);
  add_study(app);
  add_bench(app);
}

}  // namespace heed::apps
