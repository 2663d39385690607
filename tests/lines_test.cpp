#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/files/lines.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// A file with these bytes, removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    std::string pattern = testing::TempDir() + "/heed_lines_XXXXXX";
    const int descriptor = ::mkstemp(pattern.data());
    if (descriptor < 0) fail("cannot make a file like ", pattern);
    ::close(descriptor);
    path_ = pattern;
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { fs::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Lines lines_of(const std::string& bytes) { return read_lines(TemporaryFile(bytes).path()); }

std::string gzipped(const std::string& text) {
  const TemporaryFile file("");
  const gzFile out = ::gzopen(file.path().c_str(), "wb");
  ::gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(out);
  std::ifstream in(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string message(const std::string& path) {
  try {
    read_lines(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Lines, EndWithANewlineOrTheFile) {
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("\n"), Lines{""});
  EXPECT_EQ(lines_of("a\n\nb"), (Lines{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\nb\n"), (Lines{"a", "b"}));
  EXPECT_EQ(lines_of("a\r\n\r\nb\rc\r\n"), (Lines{"a", "", "b\rc"}));
  EXPECT_EQ(lines_of("\u2028é 猫\u0085\n"), (Lines{"\u2028é 猫\u0085"}));
}

TEST(Lines, OfAnyLengthComeWhole) {
  std::string text;
  Lines wanted;
  for (size_t length : {0, 1, 65535, 65536, 65537, 1000000, 3}) {
    wanted.push_back(std::string(length, 'x'));
    text += wanted.back() + "\n";
  }
  EXPECT_EQ(lines_of(text), wanted);
  EXPECT_EQ(lines_of(gzipped(text)), wanted);
}

TEST(Lines, GzipIsSeenFromTheBytes) {
  EXPECT_EQ(lines_of(gzipped("a\nb\n")), (Lines{"a", "b"}));
  EXPECT_EQ(lines_of(gzipped("a\n") + gzipped("b\n")), (Lines{"a", "b"}));
  EXPECT_EQ(lines_of(gzipped("")), Lines{});
}

TEST(Lines, TheReaderCountsAndEnds) {
  const TemporaryFile file("a\nb");
  LineReader reader(file.path());
  EXPECT_EQ(reader.next(), "a");
  EXPECT_EQ(reader.count(), 1u);
  EXPECT_EQ(reader.next(), "b");
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.count(), 2u);
}

TEST(Lines, WhatCannotBeReadIsSaid) {
  EXPECT_EQ(message("/nosuch/file"), "/nosuch/file: cannot be opened: No such file or directory");
  const std::string folder = fs::temp_directory_path().string();
  EXPECT_EQ(message(folder), folder + ": is a directory; the name of a file was wanted");
  const TemporaryFile latin("a\nb\xE9\n");
  EXPECT_EQ(message(latin.path()),
            latin.path() +
                ":2: not UTF-8: byte 2 is 0xE9; convert the file first, as with iconv "
                "-f latin1 -t utf-8");
  std::string text;
  for (int i = 0; i < 10000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string whole = gzipped(text);
  const TemporaryFile cut(whole.substr(0, whole.size() / 2));
  EXPECT_NE(message(cut.path()).find("cut short after line"), std::string::npos)
      << message(cut.path());
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x55;
  const TemporaryFile broken(damaged);
  EXPECT_NE(message(broken.path()), "");
}

}  // namespace
}  // namespace heed
