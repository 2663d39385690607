// The subcommands of the program. Each adds itself to the parser and, if it was asked for, runs.
#pragma once

#include <CLI/CLI.hpp>

namespace heed::apps {

// Those that this program has: a link seam, commands.cpp or bench/peer_commands.cpp.
void add_commands(CLI::App& app);

void add_bench(CLI::App& app);
void add_embed(CLI::App& app);
void add_export(CLI::App& app);
void add_import(CLI::App& app);
void add_info(CLI::App& app);
void add_lm(CLI::App& app);
void add_quantize(CLI::App& app);
void add_score(CLI::App& app);
void add_train(CLI::App& app);
void add_translate(CLI::App& app);
void add_align(CLI::App& app);
void add_view(CLI::App& app);
void add_serve(CLI::App& app);
void add_shortlist(CLI::App& app);
void add_study(CLI::App& app);

}  // namespace heed::apps
