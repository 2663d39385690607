// heed bench: our ops and training steps, timed beside a peer's (where one is linked in) and beside
// the machine's measured peak, in one run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/commands.h"
#include "bench/bench.h"
#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/files/atomic_file.h"
#include "heed/tensor/context.h"

namespace heed::apps {
namespace {

using namespace heed::bench;

// Rows whose figure is the most memory held at a time.
struct MemoryRow {
  const char* name;
  int64_t (*ours)();
  const char* peer;  // the row whose peer does the same
};
constexpr MemoryRow kMemoryRows[] = {
    {"memory/transformer", transformer_peak_bytes, "train/transformer"},
    {"memory/additive/512x512x256", additive_peak_bytes,
     "attention/additive/1x512x512x256/forward_backward"},
};

struct Options {
  std::string only, json;
  int most_threads = 0;
  double seconds = 1;
  std::string device = "cpu";
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best time of one iteration, for `seconds` and at least so many times.
double best_of(const Work& work, double seconds, int least) {
  double best = INFINITY;
  const double end = now() + seconds;
  for (int i = 0; i < least || now() < end; ++i) {
    const double begin = now();
    work();
    best = std::min(best, now() - begin);
  }
  return best;
}

// Ours and theirs in turn, four rounds, so that a slow minute of the machine hits both. The peer's
// threads spin for a while after work; a pause lets them go to sleep before ours is timed.
Result measure(const Row& row, int threads, double seconds, const Machine& machine) {
  Result result{
      .name = row.name, .threads = threads, .ours = INFINITY, .peer = {}, .peak_share = 0};
  set_threads(threads);
  peer_threads(threads);
  const Job job = row.make();
  const Work peer = job.peer ? job.peer : peer_work(row.name);
  job.work();
  if (peer) peer();
  constexpr int kRounds = 4;
  const int least = job.tokens > 0 ? 1 : 3;  // translations take long
  for (int round = 0; round < kRounds; ++round) {
    if (peer) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    result.ours = std::min(result.ours, best_of(job.work, seconds / kRounds, least));
    if (peer)
      result.peer =
          std::min(result.peer.value_or(INFINITY), best_of(peer, seconds / kRounds, least));
  }
  const double floor = std::max({job.flops / machine.flops,
                                 machine.int8 > 0 ? job.int8_operations / machine.int8 : 0,
                                 job.bytes / machine.bandwidth});
  result.peak_share = floor / result.ours;
  result.tokens = job.tokens;
  return result;
}

nlohmann::json to_json(const Result& r) {
  nlohmann::json row{{"name", r.name},   {"threads", r.threads},      {"ours", r.ours * 1e3},
                     {"peer", nullptr},  {"peer_name", peer_name()},  {"unit", "ms"},
                     {"ratio", nullptr}, {"peak_share", r.peak_share}};
  if (r.peer) row["peer"] = *r.peer * 1e3, row["ratio"] = *r.peer / r.ours;
  if (r.tokens > 0) row["tokens_a_second"] = r.tokens / r.ours;
  return row;
}
// Those of `rows` whose name has `only` in it. All names are added to `names`.
template <class Row>
std::vector<Row> wanted(const std::vector<Row>& rows, const std::string& only,
                        std::vector<std::string>& names) {
  std::vector<Row> out;
  for (const Row& row : rows)
    if (names.emplace_back(row.name).find(only) != std::string::npos) out.push_back(row);
  return out;
}

void run_on_gpu(const Options& options) {
  std::vector<std::string> names;
  const std::vector<CudaRow> rows = wanted(cuda_rows(), options.only, names);
  if (rows.empty()) throw CLI::ValidationError(unknown_name("row", options.only, names));
  const UseDevice use(Device::cuda);
  want_writable(options.json);
  nlohmann::json all = nlohmann::json::array();
  for (const CudaRow& row : rows) {
    const CudaResult r = row.measure();
    const double words = r.words / r.seconds, teraflops = r.flops / r.seconds / 1e12;
    std::printf("%-52s %8.3f ms  %7.0f MB", row.name.c_str(), r.seconds * 1e3, r.megabytes);
    if (r.words > 0) std::printf("  %10.0f words/s  norm %.3f", words, r.gradient_norm);
    if (r.flops > 0) std::printf("  %10.0f TFLOP/s", teraflops);
    std::printf("\n");
    std::fflush(stdout);
    nlohmann::json json{
        {"name", row.name}, {"ours", r.seconds * 1e3}, {"unit", "ms"}, {"megabytes", r.megabytes}};
    if (r.words > 0) json["words_a_second"] = words;
    if (r.flops > 0) json["teraflops"] = teraflops;
    all.push_back(json);
  }
  if (!options.json.empty()) write_file(options.json, all.dump(1) + "\n");
}

void run(const Options& options) {
  if (options.device == "cuda") return run_on_gpu(options);
  std::vector<Row> rows = train_rows();
  for (Row& row : attention_rows()) rows.push_back(std::move(row));
  for (Row& row : op_rows()) rows.push_back(std::move(row));
  for (Row& row : search_rows()) rows.push_back(std::move(row));
  for (Row& row : inference_rows()) rows.push_back(std::move(row));
  std::vector<std::string> names;
  rows = wanted(rows, options.only, names);
  const std::vector<MemoryRow> memory =
      wanted<MemoryRow>({std::begin(kMemoryRows), std::end(kMemoryRows)}, options.only, names);
  if (memory.empty() && rows.empty())
    throw CLI::ValidationError(unknown_name("row", options.only, names));
  want_writable(options.json);
  const int most = options.most_threads > 0 ? options.most_threads : threads();
  nlohmann::json all = nlohmann::json::array();
  const std::string peer = peer_name();
  std::printf("peer: %s\n", peer.empty() ? "none linked in (see 'make bench')" : peer.c_str());
  for (int count = 1; count <= most && !rows.empty();
       count = count < most ? std::min(2 * count, most) : most + 1) {
    const Machine machine = measure_machine(count);
    std::printf(
        "\n%d thread%s: %s, %.0f GFLOP/s of multiply-adds, %.0f GOP/s of bytes', "
        "%.1f GB/s read from memory\n",
        count, count > 1 ? "s" : "", machine.target.c_str(), machine.flops / 1e9,
        machine.int8 / 1e9, machine.bandwidth / 1e9);
    std::printf("%-50s %10s %10s %7s %14s\n", "", "ours, ms", "peer, ms", "ratio", "share of peak");
    for (const Row& row : rows) {
      const Result r = measure(row, count, options.seconds, machine);
      std::printf("%-50s %10.3f", r.name.c_str(), r.ours * 1e3);
      if (r.peer)
        std::printf(" %10.3f %7.2f", *r.peer * 1e3, *r.peer / r.ours);
      else
        std::printf(" %10s %7s", "-", "-");
      std::printf(" %13.0f%%", 100 * r.peak_share);
      if (r.tokens > 0) std::printf(" %10.0f tokens/s", r.tokens / r.ours);
      std::printf("\n");
      std::fflush(stdout);
      all.push_back(to_json(r));
    }
  }
  if (!memory.empty()) std::printf("\n");
  for (const MemoryRow& row : memory) {
    set_threads(1);
    const double ours = double(row.ours()) / 1e6;
    nlohmann::json json{{"name", row.name}, {"threads", 1},         {"ours", ours},
                        {"peer", nullptr},  {"peer_name", peer},    {"unit", "MB"},
                        {"ratio", nullptr}, {"peak_share", nullptr}};
    std::printf("%-50s %7.1f MB", row.name, ours);
    if (const Work work = peer_work(row.peer)) {
      work();
      const double theirs = double(peer_peak_bytes(work)) / 1e6;
      std::printf(" %7.1f MB %7.2f", theirs, theirs / ours);
      json["peer"] = theirs, json["ratio"] = theirs / ours;
    }
    std::printf("\n");
    all.push_back(json);
  }
  if (!options.json.empty()) write_file(options.json, all.dump(1) + "\n");
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* bench = app.add_subcommand(
      "bench",
      "time our ops, attention and training steps\n"
      "Examples:\n"
      "  heed bench --only train/              the training steps alone\n"
      "  heed bench --only inference/          translations, beside CTranslate2's\n"
      "  heed bench --threads 1 --json b.json  one thread, figures also as JSON\n");
  bench->add_option("--only", options->only, "only rows whose name contains this");
  bench->add_option("--json", options->json, "write the rows to this file as well");
  bench->add_option("--threads", options->most_threads, "at most so many threads")
      ->check(CLI::Range(1, 1024))
      ->default_str("all");
  bench->add_option("--seconds", options->seconds, "time for each row and side")
      ->check(CLI::Range(0.001, 3600.0));
  bench
      ->add_option("--device", options->device,
                   "cpu, or cuda: attention and training steps on the GPU, each for its own time")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  bench->callback([options] { run(*options); });
}

}  // namespace heed::apps
