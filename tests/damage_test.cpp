// Checksums, and that no damage to a model's folder goes unnoticed.
#include <gtest/gtest.h>

#include "heed/base/parallel.h"
#include "heed/files/checksum.h"
#include "heed/training/run_folder.h"
#include "heed/translation/loaded_model.h"
#include "tests/toy_run.h"

namespace heed {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Of xxHash's own reference program.
TEST(Checksum, XXH64IsTheReferences) {
  EXPECT_EQ(xxh64(bytes_of("")), 0xEF46DB3751D8E999u);
  EXPECT_EQ(xxh64(bytes_of("a")), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(xxh64(bytes_of("abc")), 0x44BC2CF5AD770999u);
  EXPECT_EQ(xxh64(bytes_of("Nobody inspects the spammish repetition")), 0xFBCEA83C8A378BF1u);
}

TEST(Checksum, OfBlocksKnowsEveryByteAndItsPlace) {
  constexpr size_t kMany = (size_t{5} << 20) + 13;  // five blocks and a bit
  std::string text(kMany, '\0');
  Random random(3);
  for (char& c : text) c = static_cast<char>(random.below(256));
  const auto sum = [](std::vector<std::string_view> parts) {
    std::vector<std::span<const std::byte>> spans;
    for (const std::string_view part : parts) spans.push_back(bytes_of(part));
    return checksum_of_blocks(spans);
  };
  const int before = threads();
  set_threads(1);
  const std::string wanted = sum({"head", text});
  set_threads(4);
  EXPECT_EQ(sum({"head", text}), wanted);
  EXPECT_EQ(sum({"", "head", text}), wanted);  // what is empty has no blocks
  set_threads(before);
  EXPECT_EQ(wanted.size(), kBlocksDigits);
  EXPECT_NE(sum({"hea", "d" + text}), wanted);
  EXPECT_NE(sum({text, "head"}), wanted);
  for (const size_t at : {size_t{0}, size_t{1} << 20, kMany - 1}) {
    text[at] ^= 1;
    EXPECT_NE(sum({"head", text}), wanted) << at;
    text[at] ^= 1;
  }
  std::swap_ranges(text.begin(), text.begin() + (1 << 20), text.begin() + (1 << 20));
  EXPECT_NE(sum({"head", text}), wanted) << "two blocks have changed places";
}

TEST(Checksum, OfATextStandsWithinIt) {
  const std::string text = with_own_checksum("{\n \"a\": \"checksum\",\n \"b\": 2\n}");
  EXPECT_EQ(text.substr(0, text.size() - 12),
            "{\n \"a\": \"checksum\",\n \"b\": 2,\n \"checksum\": \"");
  EXPECT_EQ(text.substr(text.size() - 4), "\"\n}\n");
  const auto said = [](const std::string& t) {
    return message([&] { check_own_checksum(t, "file"); });
  };
  EXPECT_EQ(said(text), "");
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string other = text;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(has(said(other), "file: ")) << other;
  }
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_TRUE(has(said(text.substr(0, size)), "file: ")) << size;
  EXPECT_TRUE(has(said(text + "\n"), "changed by hand"));
  EXPECT_TRUE(has(said("{\"a\": 2}"), "has no checksum of itself"));
}

// ---- a folder

// All that a folder may have: the plain mean's files beside the checkpoint, and validations.
TrainConfig training() {
  TrainConfig c;
  c.steps = 6, c.validate_every = 2, c.average_last = 2, c.batch_tokens = 64;
  return c;
}

struct Made {
  Folder data, folder;
  std::shared_ptr<Corpus> corpus;
  std::vector<std::string> files;

  explicit Made(double sampling)
      : corpus(toy_corpus(data, {.sentences = 40, .sampling = sampling})) {
    ModelConfig config;
    config.size = 4, config.dropout = 0;
    const ModelFolder model = create_model(folder.path(), config, training(), corpus->tokenizers());
    Trainer(*model.model, model.params, corpus, training(), model.path).run({});
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      if (entry.is_regular_file())
        files.push_back(std::filesystem::relative(entry.path(), folder.path()).string());
    std::sort(files.begin(), files.end());
  }
  std::string opened() const {
    return message([&] { open_model(folder.path()); });
  }
  std::string loaded() const {
    return message([&] { LoadedModel::open(folder.path()); });
  }
  std::string resumed() const {
    return message([&] {
      const ModelFolder model = open_model(folder.path(), Parameters::leave);
      Trainer trainer(*model.model, model.params, corpus, training(), model.path);
      require(trainer.resume(), "nothing to resume");
    });
  }
};

void expect_every_flip_to_be_found(double sampling, const std::vector<std::string>& files,
                                   int flips) {
  const Made made(sampling);
  ASSERT_EQ(made.files, files);
  ASSERT_EQ(made.opened() + made.loaded() + made.resumed(), "");
  Random random(11);
  for (int i = 0; i < flips; ++i) {
    // By turns, so that small files are hit as often as large ones.
    const std::string& name = files[static_cast<size_t>(i) % files.size()];
    const std::string whole = read(made.folder / name);
    const uint32_t at = random.below(static_cast<uint32_t>(whole.size())), bit = random.below(8);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
    made.folder.put(name, damaged);
    const std::string where =
        name + ", byte " + std::to_string(at) + ", bit " + std::to_string(bit);
    if (name.starts_with("checkpoint/")) {
      EXPECT_NE(made.resumed(), "") << where;
    } else {
      EXPECT_NE(made.opened(), "") << where;
      EXPECT_NE(made.loaded(), "") << where;
      // What a resumed run reads: all but the parameters of the best model.
      EXPECT_EQ(made.resumed() == "", name == "model.safetensors") << where;
    }
    made.folder.put(name, whole);
  }
  EXPECT_EQ(made.opened() + made.loaded() + made.resumed(), "");
}

TEST(Damage, EverySingleBitIsFound) {
  expect_every_flip_to_be_found(
      0,
      {"checkpoint/last.safetensors", "checkpoint/seconds.json", "checkpoint/step-4.safetensors",
       "checkpoint/step-6.safetensors", "config.json", "model.safetensors", "source.words",
       "target.words"},
      kSlow ? 200 : 1000);
}

TEST(Damage, EverySingleBitOfSubwordsIsFound) {
  expect_every_flip_to_be_found(0.1,
                                {"checkpoint/last.safetensors", "checkpoint/seconds.json",
                                 "checkpoint/step-4.safetensors", "checkpoint/step-6.safetensors",
                                 "config.json", "model.safetensors", "source.spm", "target.spm"},
                                kSlow ? 40 : 200);
}

TEST(Damage, AMissingChecksumIsAnErrorUnlessTheFormatIsTheFirst) {
  const Made made(0);
  const std::string model = "model.safetensors", last = "checkpoint/last.safetensors";
  const auto strip = [&](const std::string& name) {
    const SafetensorsFile file = SafetensorsFile::open(made.folder / name);
    auto metadata = file.metadata();
    EXPECT_EQ(metadata.erase(kChecksumEntry), 1u);
    write_safetensors(made.folder / name, file.entries(), metadata);
  };
  strip(model), strip(last);
  EXPECT_TRUE(has(made.opened(), "model.safetensors: has no checksum")) << made.opened();
  EXPECT_TRUE(has(made.loaded(), "model.safetensors: has no checksum")) << made.loaded();
  EXPECT_TRUE(has(made.resumed(), "last.safetensors: has no checksum")) << made.resumed();
  std::string config = read(made.folder / "config.json");
  config.replace(config.find("\"heed\": 2"), 9, "\"heed\": 1");
  made.folder.put("config.json", config);
  EXPECT_TRUE(has(made.opened(), "changed by hand")) << "a checksum that is there counts";
  made.folder.put("config.json", config.substr(0, config.rfind(",\n \"checksum\"")) + "\n}\n");
  EXPECT_EQ(made.opened() + made.loaded() + made.resumed(), "");
  // It stays in its format, whatever is written into it.
  keep_alignment(made.folder.path(), {0, 0});
  keep_training(made.folder.path(), training());
  EXPECT_EQ(made.opened() + made.loaded() + made.resumed(), "");
}

}  // namespace
}  // namespace heed
