// Lines: what ends one, from plain and packed files and standard input; where reading can go on.
#include "heed/files/lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <malloc.h>
#include <unistd.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/random.h"
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

// With a checksum, as the program of that name writes it.
std::string zstd(const std::string& bytes) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string xz(const std::string& bytes) {
  std::string out(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, nullptr,
                                    reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                    reinterpret_cast<uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

// Files with these bytes, packed in every way.
Strings packed_files(const Folder& folder, const std::string& bytes) {
  return {folder.put_gzip("a.gz", bytes), folder.put("a.zst", zstd(bytes)),
          folder.put("a.xz", xz(bytes))};
}

// The lines of a file with these bytes, which come out of a packed file just so.
Strings lines_of(const std::string& bytes) {
  const Folder folder;
  const Strings lines = read_lines(folder.put("plain", bytes));
  for (const std::string& path : packed_files(folder, bytes))
    EXPECT_EQ(read_lines(path), lines) << path;
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

TEST(Lines, PackedFilesMayFollowEachOther) {
  const Folder folder;
  const auto packed = [&](const std::string& text) {
    Strings files;
    for (const std::string& path : packed_files(folder, text)) files.push_back(read(path));
    return files;
  };
  const Strings a = packed("a\n"), b = packed("b\n");
  for (size_t i = 0; i < a.size(); ++i)
    for (const size_t zeros : {0, 4, 300'000}) {  // between them and at the end
      const std::string padding(zeros, '\0');
      EXPECT_EQ(read_lines(folder.put("both", a[i] + padding + b[i] + padding)),
                (Strings{"a", "b"}));
    }
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
  Strings paths = packed_files(folder, text);
  paths.push_back(folder.put("plain", text));
  for (const std::string& path : paths) {
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

// What is before a member that is further than a buffer away is not even looked at.
TEST(Lines, ReadingGoesOnAtAMemberFarAway) {
  const Folder folder;
  Random random(5);
  Strings lines;
  std::vector<Strings> files(3);  // members of each kind
  for (int member = 0; member < 12; ++member) {
    std::string text;
    for (int i = 0; i < 2000; ++i) {
      lines.push_back(std::to_string(random.split()));
      text += lines.back() + "\n";
    }
    const Strings packed = packed_files(folder, text);
    for (size_t kind = 0; kind < 3; ++kind) files[kind].push_back(read(packed[kind]));
  }
  for (const Strings& members : files) {
    std::string all;
    for (const std::string& member : members) all += member;
    const std::string path = folder.put("all", all);
    LineReader reader(path);
    std::vector<LineReader::Position> positions;
    for (const std::string& line : lines) {
      positions.push_back(reader.position());
      ASSERT_EQ(reader.next(), line);
    }
    for (const size_t line :
         {size_t{0}, size_t{1}, size_t{6000}, size_t{17'999}, lines.size() - 1}) {
      LineReader second(path, positions[line]);
      for (size_t i = line; i < std::min(line + 3000, lines.size()); ++i)
        ASSERT_EQ(second.next(), lines[i]);
    }
    folder.put("all", all.replace(150'000, 1000, std::string(1000, 'x')));
    EXPECT_TRUE(has(message([&] { LineReader(path).skip(lines.size()); }), "all: after line "));
    EXPECT_EQ(LineReader(path, positions[22'500]).next(), lines[22'500]);
  }
}

// Where it could be gone on from, of a file of very many members, is not kept for all of it.
TEST(Lines, OfManyMembersTakeNoMemory) {
  const Folder folder;
  const std::string empty = read(folder.put_gzip("empty", "")),
                    one = read(folder.put_gzip("one", "a\n"));
  std::string all;
  for (int i = 0; i < 30'000; ++i) all += empty + one;
  LineReader reader(folder.put("all", all));
  reader.next();
  const size_t before = mallinfo2().uordblks;
  EXPECT_EQ(reader.skip(29'998), 29'998u);
  EXPECT_LT(mallinfo2().uordblks, before + 100'000);  // (sanitizers tell 0)
  EXPECT_EQ(reader.next(), "a");
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(Lines, ComeFromStandardInputToo) {
  const Folder folder;
  const Strings lines = numbered(20'000);
  const std::string plain = folder.put("plain", joined(lines));
  Strings paths = packed_files(folder, joined(lines));
  paths.push_back(plain);
  for (const std::string& path : paths) {
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
  const auto through = [](const std::string& bytes) {
    Pipe pipe;
    pipe.put(bytes);
    pipe.close();
    return read_lines(pipe.path());
  };
  const Strings once = numbered(1000);
  Strings twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  for (const std::string& path : packed_files(folder, joined(once))) {
    const std::string packed = read(path), kind = path.ends_with("gz")    ? "gzip"
                                                  : path.ends_with("zst") ? "zstd"
                                                                          : "xz";
    EXPECT_EQ(through(packed + packed), twice) << kind;  // members one after the other
    EXPECT_EQ(through(packed + "garbage"), once) << kind;
    EXPECT_EQ(through(packed.substr(0, 1)), Strings{packed.substr(0, 1)}) << kind;
    EXPECT_TRUE(has(message([&] { through(packed.substr(0, packed.size() / 2)); }),
                    "the " + kind + " file ends too early"));
    std::string damaged = packed;
    damaged[damaged.size() / 2] ^= 0x40;
    EXPECT_TRUE(has(message([&] { through(damaged); }), "damaged " + kind + " file")) << kind;
  }
  EXPECT_EQ(through(""), Strings{});
}

TEST(Lines, BadFilesAreNamed) {
  const Folder folder;
  const std::string directory = folder.path().string();
  EXPECT_EQ(message([&] { LineReader(folder / "none"); }),
            (folder / "none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(message([&] { LineReader{directory}; }),
            directory + ": is a directory; the name of a text file was wanted");
  EXPECT_TRUE(has(message([&] { LineReader(""); }), "path is empty"));
  for (const std::string& path : packed_files(folder, joined(numbered(10'000)))) {
    const std::string packed = read(path);
    EXPECT_TRUE(
        has(message([&] { read_lines(folder.put("b", packed.substr(0, packed.size() - 20))); }),
            "b: after line "))
        << path;
    std::string damaged = packed;
    damaged[damaged.size() / 2] ^= 0x40;
    EXPECT_TRUE(has(message([&] { read_lines(folder.put("c", damaged)); }), "/c: ")) << path;
  }
}

}  // namespace
}  // namespace heed
