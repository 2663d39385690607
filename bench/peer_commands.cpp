// The program that has libtorch linked in only benchmarks: libtorch and SentencePiece each bring
// Protocol Buffers of their own, and cannot live in one process.
#include "apps/commands.h"
#include "bench/bench.h"

namespace heed::apps {

void add_commands(CLI::App& app) { add_bench(app); }

}  // namespace heed::apps

namespace heed::bench {

std::vector<Row> inference_rows() { return {}; }  // no tokenizers, no models' folders

}  // namespace heed::bench
