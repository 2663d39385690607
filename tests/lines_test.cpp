// Lines: what ends one, from plain files, gzip files and standard input; where reading can go on.
#include "heed/files/lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "heed/base/check.h"
#include "tests/folder.h"

namespace heed {
namespace {

using Strings = std::vector<std::string>;

std::string joined(const Strings& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Strings numbered(int count) {
  Strings lines;
  for (int i = 0; i < count; ++i) lines.push_back("line " + std::to_string(i * 7919));
  return lines;
}

// The lines of a file with these bytes, which come out of a gzip file just so.
Strings lines_of(const std::string& bytes) {
  const Folder folder;
  const Strings lines = read_lines(folder.put("plain", bytes));
  EXPECT_EQ(read_lines(folder.put_gzip("packed", bytes)), lines);
  return lines;
}

// A file in the place of standard input, as long as this lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& path) : before_(::dup(STDIN_FILENO)) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  ~StandardInput() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  int before_;
};

TEST(Lines, EndWithANewlineOrTheFile) {
  EXPECT_EQ(lines_of(""), Strings{});
  EXPECT_EQ(lines_of("\n"), Strings{""});
  EXPECT_EQ(lines_of("a\n\nb"), (Strings{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\nb\n"), (Strings{"a", "b"}));
  EXPECT_EQ(lines_of("\u2028é 猫\u0085\n"), (Strings{"\u2028é 猫\u0085"}));
}

TEST(Lines, CarriageReturnsAndTheByteOrderMarkGo) {
  EXPECT_EQ(lines_of("a\r\n\r\nb\rc\r\n"), (Strings{"a", "", "b\rc"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBFone\r\ntwo\r"), (Strings{"one", "two"}));
  EXPECT_EQ(lines_of("one\n\xEF\xBB\xBFtwo"), (Strings{"one", "\xEF\xBB\xBFtwo"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"), Strings{});
}

TEST(Lines, BytesThatAreNotUtf8AreTheCallersToJudge) {
  EXPECT_EQ(lines_of("b\xE9\n"), Strings{"b\xE9"});
}

TEST(Lines, OfAnyLengthComeWhole) {
  Strings lines;
  for (const size_t length : {0, 1, 131'071, 131'072, 131'073, 1'000'000, 3})
    lines.push_back(std::string(length, 'x'));
  EXPECT_EQ(lines_of(joined(lines)), lines);
}

TEST(Lines, GzipFilesMayFollowEachOther) {
  const Folder folder;
  const std::string a = read(folder.put_gzip("a", "a\n")), b = read(folder.put_gzip("b", "b\n"));
  EXPECT_EQ(read_lines(folder.put("both", a + b)), (Strings{"a", "b"}));
}

TEST(Lines, TheReaderCountsAndEnds) {
  const Folder folder;
  LineReader reader(folder.put("a", "a\nb"));
  EXPECT_EQ(reader.name(), folder / "a");
  EXPECT_EQ(reader.next(), "a");
  EXPECT_EQ(reader.position(), (LineReader::Position{.byte = 2, .line = 1}));
  EXPECT_EQ(reader.next(), "b");
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.position(), (LineReader::Position{.byte = 3, .line = 2}));
}

TEST(Lines, ReadingGoesOnWhereItStopped) {
  const Folder folder;
  const Strings lines = numbered(40'000);
  const std::string text = "\xEF\xBB\xBF" + joined(lines);
  for (const std::string& path : {folder.put("plain", text), folder.put_gzip("packed", text)}) {
    for (const size_t stop : {size_t{0}, size_t{1}, size_t{20'000}, lines.size()}) {
      LineReader first(path);
      EXPECT_EQ(first.skip(stop), stop);
      LineReader second(path, first.position());
      EXPECT_EQ(second.position(), first.position());
      for (size_t i = stop; i < lines.size(); ++i) ASSERT_EQ(second.next(), lines[i]) << stop;
      EXPECT_EQ(second.next(), std::nullopt);
      EXPECT_EQ(second.position().line, lines.size());
    }
    EXPECT_TRUE(has(message([&] { LineReader(path, {.byte = 10'000'000, .line = 1}); }),
                    "fewer than 10000000 bytes"));
  }
}

TEST(Lines, ComeFromStandardInputToo) {
  const Folder folder;
  const Strings lines = numbered(20'000);
  const std::string plain = folder.put("plain", joined(lines));
  for (const std::string& path : {plain, folder.put_gzip("packed", joined(lines))}) {
    const StandardInput input(path);
    LineReader reader("-");
    EXPECT_EQ(reader.name(), "standard input");
    for (const std::string& line : lines) ASSERT_EQ(reader.next(), line);
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_EQ(reader.position().line, lines.size());
  }
  const StandardInput input(plain);
  EXPECT_EQ(message([] { LineReader("-", {.byte = 14, .line = 2}); }),
            "standard input: cannot be read from byte 14 on; save it to a file");
}

// A pipe whose other end is this test.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) fail("no pipe");
  }
  ~Pipe() {
    ::close(ends_[0]);
    close();
  }
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  void put(const std::string& bytes) const {
    EXPECT_EQ(::write(ends_[1], bytes.data(), bytes.size()), std::ssize(bytes));
  }
  void close() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(Lines, OfAPipeComeBeforeItsEnd) {
  Pipe pipe;
  pipe.put("\xEF\xBB\xBFone\ntwo\nthr");
  LineReader reader(pipe.path());
  EXPECT_EQ(reader.next(), "one");
  EXPECT_TRUE(reader.ready(std::chrono::milliseconds(0)));
  EXPECT_EQ(reader.next(), "two");
  EXPECT_FALSE(reader.ready(std::chrono::milliseconds(1)));  // a part of a line
  pipe.put("ee\n");
  EXPECT_TRUE(reader.ready(std::chrono::milliseconds(1)));
  EXPECT_EQ(reader.next(), "three");
  EXPECT_FALSE(reader.ready(std::chrono::milliseconds(1)));
  pipe.put("last");
  pipe.close();
  EXPECT_EQ(reader.next(), "last");
  EXPECT_TRUE(reader.ready(std::chrono::milliseconds(1)));
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(Lines, OfAPipeMayBePacked) {
  const Folder folder;
  const std::string packed = read(folder.put_gzip("a.gz", joined(numbered(1000))));
  const auto through = [](const std::string& bytes) {
    Pipe pipe;
    pipe.put(bytes);
    pipe.close();
    return read_lines(pipe.path());
  };
  const Strings once = numbered(1000);
  Strings twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_EQ(through(packed + packed), twice);  // members one after the other, as gzip has it
  EXPECT_EQ(through(packed + "garbage"), numbered(1000));
  EXPECT_EQ(through("\x1f"), Strings{"\x1f"});
  EXPECT_EQ(through(""), Strings{});
  EXPECT_TRUE(has(message([&] { through(packed.substr(0, packed.size() / 2)); }), "too early"));
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 0x40;
  EXPECT_TRUE(has(message([&] { through(damaged); }), "damaged gzip file"));
}

TEST(Lines, BadFilesAreNamed) {
  const Folder folder;
  const std::string directory = folder.path().string();
  EXPECT_EQ(message([&] { LineReader(folder / "none"); }),
            (folder / "none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(message([&] { LineReader{directory}; }),
            directory + ": is a directory; the name of a text file was wanted");
  EXPECT_TRUE(has(message([&] { LineReader(""); }), "path is empty"));
  const std::string packed = read(folder.put_gzip("a.gz", joined(numbered(10'000))));
  EXPECT_TRUE(
      has(message([&] { read_lines(folder.put("b.gz", packed.substr(0, packed.size() / 2))); }),
          "b.gz: cut short after line"));
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 0x40;
  EXPECT_TRUE(has(message([&] { read_lines(folder.put("c.gz", damaged)); }), "c.gz: "));
}

}  // namespace
}  // namespace heed
