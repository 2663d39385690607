// Whole folders of other toolkits, whose files must fit together, whatever is in them. The bytes
// are the files, one after the other, each after a line "---- " and its name.
#include "heed/exchange/import.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"

using namespace heed;

namespace {

namespace fs = std::filesystem;

// Names that a file may have: others are left out, so that nothing is written elsewhere.
constexpr std::array kNames = {"model.bin",
                               "config.json",
                               "source_vocabulary.txt",
                               "target_vocabulary.txt",
                               "model.npz",
                               "decoder.yml",
                               "vocab.yml",
                               "vocab.json",
                               "model.safetensors",
                               "pytorch_model.bin",
                               "generation_config.json",
                               "tokenizer_config.json",
                               "lex.s2t.bin"};

const fs::path& folder() {
  static const fs::path path = fs::path("/dev/shm") / ("heed-fuzz-" + std::to_string(::getpid()));
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fs::remove_all(folder());
  fs::create_directory(folder());
  std::string_view rest = fuzz::text_of(data, size);
  constexpr std::string_view kMark = "---- ";
  while (rest.starts_with(kMark)) {
    const std::size_t line = std::min(rest.find('\n'), rest.size());
    const std::string_view name = rest.substr(kMark.size(), line - kMark.size());
    rest.remove_prefix(std::min(line + 1, rest.size()));
    const std::size_t next = rest.find("\n---- ");
    const std::string_view bytes = rest.substr(0, next);
    rest.remove_prefix(next == std::string_view::npos ? rest.size() : next + 1);
    for (const char* known : kNames)
      if (name == known) std::ofstream(folder() / known, std::ios::binary) << bytes;
  }
  fuzz::takes([&] { read_foreign(folder()); });
  fs::remove_all(folder());
  return 0;
}
