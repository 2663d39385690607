// Whose files a model's folder has: what heed did not write stays as it is, and what its killed
// runs left is in nobody's way.
#include "heed/training/run_folder.h"

#include <gtest/gtest.h>

#include "heed/files/checksum.h"
#include "tests/toy.h"

namespace heed {
namespace {

using Names = std::vector<std::string>;

struct Toy {
  Folder text;
  TokenizerPair tokenizers = toy_corpus(text)->tokenizers();

  void create(const Folder& folder) const {
    ModelConfig config;
    config.size = 4;
    create_model(folder.path(), config, {.steps = 1}, tokenizers);
  }
  std::string said(const Folder& folder) const {
    return message([&] { create(folder); });
  }
};

TEST(RunFolder, WhatHeedDidNotWriteIsRefusedAndStays) {
  const Toy toy;
  for (const char* name : {"config.json", "joint.spm", "source.words", "model.safetensors"}) {
    const Folder folder;
    folder.put(name, "{\"mine\":1}");
    EXPECT_EQ(foreign_files(folder.path()), Names{name});
    EXPECT_EQ(toy.said(folder),
              folder / name + ": heed did not write it; choose another folder for the model");
    EXPECT_EQ(folder.names(), Names{name});
    EXPECT_EQ(read(folder / name), "{\"mine\":1}");
  }
}

TEST(RunFolder, WhatHeedWouldNotWriteOverIsToldToo) {
  const Folder folder;
  folder.put("notes", "");
  std::filesystem::create_directory(folder / "checkpoint");
  folder.put("checkpoint/step-4.safetensors", "");
  EXPECT_EQ(foreign_files(folder.path()), (Names{"checkpoint", "notes"}));
  EXPECT_EQ(foreign_files(folder / "nosuch"), Names{});
}

TEST(RunFolder, BesideAModelOnlyTokenizersCanBeInTheWay) {
  const Toy toy;
  const Folder folder;
  toy.create(folder);
  folder.put("notes", "");
  EXPECT_EQ(foreign_files(folder.path()), Names{});
  EXPECT_EQ(toy.said(folder), "");
  folder.put("joint.spm", "mine");
  EXPECT_EQ(foreign_files(folder.path()), Names{"joint.spm"});
  EXPECT_TRUE(has(toy.said(folder), "joint.spm: heed did not write it"));
  EXPECT_EQ(read(folder / "joint.spm"), "mine");
}

TEST(RunFolder, WhatAKilledRunLeavesIsAccepted) {
  const Toy toy;
  const Folder whole;
  toy.create(whole);
  const std::string config = read(whole / "config.json");
  // In the order in which a run writes it.
  const Folder folder;
  std::filesystem::create_directory(folder / "checkpoint");
  folder.put("config.json.tmp-12-0", "{");
  EXPECT_EQ(toy.said(folder), "");
  const size_t sums = config.find("\"checksums\": {");
  folder.put("config.json", with_own_checksum(config.substr(0, sums) + "\"checksums\": {}\n}"));
  EXPECT_TRUE(has(message([&] { open_model(folder.path()); }), "begin it anew"));
  EXPECT_EQ(toy.said(folder), "");
  folder.put("config.json", with_own_checksum(config.substr(0, sums) + "\"checksums\": {}\n}"));
  folder.put("joint.spm", "of the run before");
  folder.put("source.words.tmp-12-1", "");
  EXPECT_EQ(toy.said(folder), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "joint.spm"));
  EXPECT_EQ(read(folder / "config.json"), config);
}

TEST(RunFolder, OnlyTemporariesOfItsOwnFilesAreRemoved) {
  const Folder folder;
  std::filesystem::create_directories(folder / "checkpoint/last.safetensors.tmp-1-1");
  std::filesystem::create_directory(folder / "other");
  const Names ours{"config.json.tmp-12-0",
                   "model.safetensors.tmp-1-23",
                   "source.words.tmp-7-7",
                   "alignment.tmp-7-0",
                   "alignment.tmp-7-0.tmp-7-8",
                   "checkpoint/last.safetensors.tmp-12-4",
                   "checkpoint/seconds.json.tmp-12-5",
                   "checkpoint/step-30.safetensors.tmp-12-6"};
  const Names others{"config.json.tmp-12",
                     "config.json.tmp-12-",
                     "config.json.tmp--1",
                     "config.json.tmp-12-0x",
                     "config.json.tmp-12-0.bak",
                     ".tmp-12-0",
                     "notes.tmp-12-0",
                     "step-3.safetensors.tmp-1-1",
                     "model.safetensors",
                     "checkpoint/step-.safetensors.tmp-1-1",
                     "checkpoint/step-a.safetensors.tmp-1-1",
                     "checkpoint/config.json.tmp-12-0",
                     "checkpoint/last.safetensors",
                     "other/config.json.tmp-12-0"};
  for (const Names& names : {ours, others})
    for (const std::string& name : names) folder.put(name, "x");
  std::filesystem::create_symlink(folder / "notes.tmp-12-0", folder / "joint.spm.tmp-1-1");
  remove_temporaries(folder.path());
  for (const std::string& name : ours) EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
  for (const std::string& name : others) EXPECT_EQ(read(folder / name), "x") << name;
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "joint.spm.tmp-1-1"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "checkpoint/last.safetensors.tmp-1-1"));
  remove_temporaries(folder / "nosuch");
}

// Before memory is asked for, of which there would not be enough after minutes.
TEST(RunFolder, AModelThatCannotFitIntoMemoryIsRefusedAtOnce) {
  const Toy toy;
  for (const char* name : {"transformer-tiny", "rnn"})
    for (const int64_t size : {int64_t{1} << 20, int64_t{1} << 33, int64_t{1} << 40}) {
      const Folder folder;
      ModelConfig config = preset(name);
      config.size = size;
      const std::string said =
          message([&] { create_model(folder.path(), config, {.steps = 1}, toy.tokenizers); });
      EXPECT_TRUE(has(said, "config: the model has more than ")) << said;
      EXPECT_TRUE(has(said, "choose a smaller --size")) << said;
      EXPECT_EQ(folder.names(), Names{});
    }
}

}  // namespace
}  // namespace heed
