// Checkpoints: a training run goes on from one that fits, and says of all others why not.
#include <filesystem>
#include <fstream>

#include "heed/data/corpus.h"
#include "heed/training/trainer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate_header.h"

using namespace heed;

namespace {

// The smallest run there is, in a folder of its own.
struct Run {
  std::filesystem::path folder;
  Params params{1};
  std::shared_ptr<Corpus> corpus;
  std::unique_ptr<Model> model;
  TrainConfig config;

  Run() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heed_fuzz_XXXXXX").string();
    fuzz::demand(::mkdtemp(pattern.data()));
    folder = pattern;
    std::filesystem::create_directories(folder / "checkpoint");
    // Of format 1: what is drawn never has the checksum that another one wants.
    std::ofstream(folder / "config.json") << R"({"heed": 1, "model": {}})";
    for (const char* side : {"source", "target"}) std::ofstream(folder / side) << "a b\nb a\n";
    const CorpusFiles files{.source = folder / "source", .target = folder / "target"};
    const TokenizerPair words{learn_tokenizer(texts(files, Side::source), {.kind = "words"}),
                              learn_tokenizer(texts(files, Side::target), {.kind = "words"})};
    corpus = std::make_shared<Corpus>(files, words, CorpusOptions{});
    ModelConfig small;
    small.size = 1, small.score = "dot", small.bidirectional = false, small.wiring = "after";
    model = make_model(params, small, {words.source->size(), words.target->size()});
    config.steps = 1, config.average = 0;
  }
  ~Run() { std::filesystem::remove_all(folder); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Run run;
  std::ofstream(run.folder / "checkpoint/last.safetensors", std::ios::binary)
      << fuzz::text_of(data, size);
  Trainer trainer(*run.model, run.params, run.corpus, run.config, run.folder);
  const bool resumed = fuzz::takes([&] { fuzz::demand(trainer.resume()); });
  if (!resumed) return 0;
  // Parameters are numbers, whatever the file had.
  for (const Parameter& p : run.params.all())
    for (const double x : p.value.values()) fuzz::demand(x - x == 0);
  return 0;
}
