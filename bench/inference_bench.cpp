// Rows for inference: whole translations, from tokens to tokens, by models with their first
// parameters, in f32, bf16 and int8; beside them CTranslate2, where python3 can import it, with the
// same weights, sentences and numbers of steps. Every translation has kSteps tokens, its end one of
// them: first parameters hardly ever say the end.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "bench/bench.h"
#include "heed/base/check.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/models/tensor_file.h"
#include "heed/ops/bf16.h"
#include "heed/training/run_folder.h"
#include "heed/translation/loaded_model.h"

namespace heed::bench {
namespace {

constexpr int64_t kSteps = 21;

struct Size {
  const char* preset;
  int64_t words;  // of the vocabulary, which both sides share
};
const std::map<std::string, Size> kSizes = {{"base", {"transformer-base", 32000}},
                                            {"tiny", {"transformer-tiny", 8000}}};

struct Kind {
  std::string model, type;
  int64_t beam, batch, sentences;  // so many for each thread
};

// A model's folder for as long as the program runs, and for the peer the same model.
class Folder {
 public:
  explicit Folder(const std::string& name) {
    const Size size = kSizes.at(name);
    path_ = std::filesystem::temp_directory_path() /
            ("heed-bench-" + std::to_string(getpid()) + "-" + name);
    int64_t next = 0;
    const auto words = learn_tokenizer(
        [&]() -> std::optional<std::string> {
          if (next == size.words) return std::nullopt;
          return "w" + std::to_string(next++);
        },
        {.kind = "words", .size = size.words});
    TrainConfig training;
    training.steps = 1;
    const ModelFolder model = create_model(path_, preset(size.preset), training, {words, words});
    save_parameters(model.params, path_ / "model.safetensors");
    write_ctranslate2(load_model(path_), path_ / "peer");
    special_ = words->special();
    size_ = words->size();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Lengths as in Multi30k: most about 13 tokens, some 40.
  std::vector<Engine::Request> requests(const Kind& kind) const {
    Random random(1);
    std::vector<Engine::Request> out;
    for (int64_t i = 0; i < kind.sentences; ++i) {
      int64_t length =
          5 + static_cast<int64_t>(random.below(8)) + static_cast<int64_t>(random.below(8));
      if (random.below(16) == 0) length += static_cast<int64_t>(random.below(24));
      Engine::Request& r = out.emplace_back();
      for (int64_t t = 0; t + 1 < length; ++t)
        r.source.push_back(static_cast<Id>(size_ - 1 - static_cast<Id>(random.below(4000))));
      r.source.push_back(special_.end);
      r.options.beam = kind.beam;
      r.options.begin = special_.begin, r.options.end = special_.end;
      r.options.pad = special_.pad, r.options.unknown = special_.unknown;
      r.options.max_ratio = 0, r.options.max_extra = r.options.min_length = kSteps - 1;
      r.number = i, r.slots = kind.batch;
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
      return a.source.size() > b.source.size();
    });
    return out;
  }

 private:
  std::filesystem::path path_;
  SpecialIds special_;
  Id size_ = 0;
};

const Folder& folder_of(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Folder>> made;
  auto& one = made[name];
  if (!one) one = std::make_unique<Folder>(name);
  return *one;
}

// CTranslate2 in a Python of its own, which translates whenever it is told to.
class Peer {
 public:
  Peer(const std::filesystem::path& folder, const std::vector<Engine::Request>& requests,
       const Kind& kind, int threads) {
    static const char* const kScript = R"(
import sys
import ctranslate2
folder, kind, beam, batch, threads, steps = sys.argv[1:7]
model = ctranslate2.Translator(folder, device="cpu", compute_type=kind,
                               inter_threads=int(threads), intra_threads=1)
words = ctranslate2.__version__
lines = [line.split() for line in open(folder + "/lines")]
print("ready", words, flush=True)
for _ in sys.stdin:
    found = model.translate_batch(lines, max_batch_size=int(batch), beam_size=int(beam),
                                  min_decoding_length=int(steps), max_decoding_length=int(steps))
    assert all(len(f.hypotheses[0]) == int(steps) for f in found)
    print("done", flush=True)
)";
    std::ofstream lines(folder / "lines");
    for (const Engine::Request& r : requests) {
      for (size_t i = 0; i + 1 < r.source.size(); ++i) lines << "w" << r.source[i] << " ";
      lines << "\n";
    }
    lines.close();
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], 0), dup2(from[1], 1);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      if (!freopen("/dev/null", "w", stderr)) _exit(1);
#if defined(__x86_64__)
      // It takes AVX-512 by itself on Intel's processors alone.
      if (__builtin_cpu_supports("avx512vnni")) setenv("CT2_FORCE_CPU_ISA", "AVX512", 0);
#endif
      const std::string type = kind.type == "f32" ? "float32" : kind.type,
                        beam = std::to_string(kind.beam), batch = std::to_string(kind.batch),
                        count = std::to_string(threads), steps = std::to_string(kSteps);
      execlp("python3", "python3", "-c", kScript, folder.c_str(), type.c_str(), beam.c_str(),
             batch.c_str(), count.c_str(), steps.c_str(), nullptr);
      _exit(1);
    }
    close(to[0]), close(from[1]);
    ask_ = fdopen(to[1], "w"), answers_ = fdopen(from[0], "r");
    ready_ = answered("ready");
  }
  ~Peer() {
    if (ask_) std::fclose(ask_);
    if (answers_) std::fclose(answers_);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool ready() const { return ready_; }
  void translate() {
    std::fputs("go\n", ask_);
    std::fflush(ask_);
    require(answered("done"), "bench: CTranslate2 has ended");
  }

 private:
  bool answered(const char* word) {
    char line[256];
    return answers_ && std::fgets(line, sizeof line, answers_) &&
           std::strncmp(line, word, std::strlen(word)) == 0;
  }

  pid_t child_ = -1;
  std::FILE *ask_ = nullptr, *answers_ = nullptr;
  bool ready_ = false;
};

// What all sentences take at least: the multiply-adds of every weight for every token, the
// encoder's and the decoder's, and the decoder's weights read once for every step of a batch.
struct Floor {
  double operations = 0, bytes = 0;
};
Floor floor_of(const Kind& kind, const std::vector<Engine::Request>& requests) {
  const Size size = kSizes.at(kind.model);
  const ModelConfig c = preset(size.preset);
  const double D = double(c.size), I = double(c.inner);
  const double encoder = double(c.encoder_layers) * (4 * D * D + 2 * D * I);
  const double cross = double(c.decoder_layers) * 2 * D * D;  // keys and values of the source
  const double decoder =
      double(c.decoder_layers) * (6 * D * D + 2 * D * I) + D * double(size.words);
  double source = 0;
  for (const Engine::Request& r : requests) source += double(r.source.size());
  const double steps = double(kSteps * kind.sentences), width = kind.type == "int8"   ? 1
                                                                : kind.type == "bf16" ? 2
                                                                                      : 4;
  return {2 * (source * (encoder + cross) + steps * double(kind.beam) * decoder),
          width * steps / double(kind.batch) * decoder};
}

Job job(const std::string& name, Kind kind) {
  kind.sentences *= threads();
  const Folder& folder = folder_of(kind.model);
  const auto model = LoadedModel::open(folder.path(), {.compute = compute_named(kind.type)});
  const std::vector<Engine::Request> requests = folder.requests(kind);
  const Floor floor = floor_of(kind, requests);
  std::shared_ptr<Peer> peer;  // which has no bf16 on a CPU
  if (kind.type != "bf16")
    peer = std::make_shared<Peer>(folder.path() / "peer", requests, kind, threads());
  Job out{.name = name,
          .work = [model, requests] { model->engine().decode(requests); },
          .bytes = floor.bytes,
          .tokens = double(kSteps * kind.sentences)};
  (kind.type == "int8" ? out.int8_operations : out.flops) = floor.operations;
  // VDPBF16PS: two multiply-adds a lane.
  if (kind.type == "bf16" && bf16_products_are_fast()) out.flops /= 2;
  if (peer && peer->ready()) out.peer = [peer] { peer->translate(); };
  return out;
}

}  // namespace

std::vector<Row> inference_rows() {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that has ended is told of by its silence
  std::vector<Row> rows;
  for (const char* model : {"base", "tiny"})
    for (const char* type : {"f32", "bf16", "int8"})
      for (const auto& [beam, batch] : {std::pair<int64_t, int64_t>{1, 1}, {1, 32}, {5, 32}}) {
        const int64_t batches = model == std::string("tiny") ? 4 : 1;
        const Kind kind{model, type, beam, batch, batches * std::max<int64_t>(batch, 4)};
        const std::string name = std::string("inference/") + model + "/" + type + "/beam" +
                                 std::to_string(beam) + "/batch" + std::to_string(batch);
        rows.push_back({name, [=] { return job(name, kind); }});
      }
  return rows;
}

}  // namespace heed::bench
