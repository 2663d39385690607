// That no file is ever half written, whatever happens to the process or the disk.
#include "heed/files/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/files/safetensors.h"
#include "tests/folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

// How a child process that runs `work` ends: its exit code, or 128 + the signal.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(AtomicFile, ReplacesTheTargetOnlyAtCommit) {
  const Folder folder;
  folder.put("f", "old");
  AtomicFile file(folder / "f");
  file.write("new ");
  file.write("words");
  EXPECT_EQ(read(folder / "f"), "old");
  file.commit();
  EXPECT_EQ(read(folder / "f"), "new words");
  EXPECT_EQ(folder.names(), Names{"f"});
  EXPECT_NE(message([&] { file.write("more"); }), "");
  EXPECT_NE(message([&] { file.commit(); }), "");
}

TEST(AtomicFile, OverwritesWhatWasWrittenBefore) {
  const Folder folder;
  AtomicFile file(folder / "f");
  file.write("new words");
  file.overwrite(4, "w0rds");
  file.write("!");
  EXPECT_NE(message([&] { file.overwrite(8, "too far"); }), "");
  file.commit();
  EXPECT_EQ(read(folder / "f"), "new w0rds!");
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const Folder folder;
  folder.put("f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(folder.names().size(), 2u);
  }
  EXPECT_EQ(folder.names(), Names{"f"});
  EXPECT_EQ(read(folder / "f"), "old");
}

TEST(AtomicFile, LetsTwoWritersWriteOneTarget) {
  const Folder folder;
  AtomicFile first(folder / "f");
  AtomicFile second(folder / "f");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read(folder / "f"), "first");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, WritesMuchAndNothing) {
  const Folder folder;
  std::string big(3'000'001, 'x');
  big.back() = 'y';
  write_file(folder / "f", big);
  EXPECT_EQ(read(folder / "f"), big);
  write_file(folder / "f", "");
  EXPECT_EQ(read(folder / "f"), "");
}

TEST(AtomicFile, KeepsThePermissionsOfAnOldFileAndTheUmaskForANewOne) {
  const Folder folder;
  const auto mode = [](const fs::path& path) { return fs::status(path).permissions(); };
  folder.put("f", "old");
  fs::permissions(folder / "f", fs::perms{0640});
  write_file(folder / "f", "new");
  EXPECT_EQ(mode(folder / "f"), fs::perms{0640});
  write_file(folder / "g", "new");
  folder.put("h", "by the standard library");
  EXPECT_EQ(mode(folder / "g"), mode(folder / "h"));
}

TEST(AtomicFile, FollowsASymbolicLink) {
  const Folder folder;
  fs::create_directory(folder / "d");
  folder.put("d/real", "old");
  fs::create_symlink("d/real", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read(folder / "d/real"), "new");
  fs::create_symlink("nowhere", folder / "loose");
  EXPECT_EQ(
      message([&] { write_file(folder / "loose", "new"); }),
      (folder / "loose") + ": is a symbolic link that leads nowhere: No such file or directory");
}

TEST(AtomicFile, WritesToANameWithoutADirectory) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              fs::current_path(folder.path());
              write_file("plain", "new");
              // The directory is held: going elsewhere before commit() does no harm.
              AtomicFile file("held");
              fs::current_path("/");
              file.write("here");
              file.commit();
              return 0;
            }),
            0);
  EXPECT_EQ(folder.names(), (Names{"held", "plain"}));
}

TEST(AtomicFile, WritesToALongName) {
  const Folder folder;
  const std::string name(255, 'n');
  write_file(folder / name, "new");
  EXPECT_EQ(folder.names(), Names{name});
}

TEST(AtomicFile, SaysWhyItCannotWriteThere) {
  const Folder folder;
  folder.put("f", "old");
  const auto refusal = [&](const fs::path& path) {
    const std::string said = message([&] { write_file(path, "new"); });
    EXPECT_TRUE(said.starts_with(path.string() + ": ")) << said;
    return said.substr(std::min(said.size(), path.string().size() + 2));
  };
  EXPECT_EQ(refusal(folder.path()), "is a directory; the name of a file was wanted");
  EXPECT_EQ(refusal(folder / "d/"), "is a directory; the name of a file was wanted");
  EXPECT_EQ(refusal(folder / "none/f"),
            "cannot open the directory '" + (folder / "none") + "': No such file or directory");
  EXPECT_EQ(refusal(folder / "f/g"),
            "cannot open the directory '" + (folder / "f") + "': Not a directory");
  EXPECT_EQ(refusal("/dev/null"),
            "is a device, pipe or socket; only a regular file can be replaced");
  EXPECT_EQ(message([] { write_file("", "new"); }), "cannot write a file: its path is empty");
  EXPECT_EQ(folder.names(), Names{"f"});
  EXPECT_EQ(read(folder / "f"), "old");
}

TEST(AtomicFile, LeavesNothingBehindWhenItCannotRename) {
  const Folder folder;
  AtomicFile file(folder / "f");
  file.write("new");
  fs::create_directory(folder / "f");  // somebody else was quicker
  EXPECT_EQ(message([&] { file.commit(); }),
            (folder / "f") +
                ": cannot rename the temporary file (after 3 bytes): Is a directory; what stood "
                "there before is untouched");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, SaysThatADirectoryIsReadOnly) {
  const Folder folder;
  folder.put("f", "old");
  fs::permissions(folder.path(), fs::perms{0555});
  EXPECT_EQ(in_child([&] {
              // Permissions do not bind root; anybody else will do.
              constexpr id_t kNobody = 65534;
              if (::geteuid() == 0 && ::setuid(kNobody) != 0) return 2;
              const std::string said = message([&] { write_file(folder / "f", "new"); });
              return said.starts_with((folder / "f") + ": cannot ") &&
                             said.ends_with(": Permission denied")
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(read(folder / "f"), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
}

// A limit on the size of files is to the program what a full disk is: a write that takes less than
// it was given, and then one that fails.
TEST(AtomicFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const Folder folder;
  folder.put("m", "old");
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {5000, 5000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              const std::string data(100'000, 'x');
              const std::vector<TensorEntry> tensors = {
                  {"big", StoredDtype::U8, {100'000}, std::as_bytes(std::span(data))}};
              const std::string said = message([&] { write_safetensors(folder / "m", tensors); });
              return said == (folder / "m") +
                                 ": cannot write (after 5000 bytes): File too large; what stood "
                                 "there before is untouched"
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(read(folder / "m"), "old");
  EXPECT_EQ(folder.names(), Names{"m"});
}

TEST(AtomicFile, IsSpentAfterAFailedWrite) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {10, 10};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              AtomicFile file(folder / "f");
              if (message([&] { file.write(std::string(11, 'x')); }).empty()) return 3;
              if (!folder.names().empty()) return 4;
              // A caller that swallowed the error must not put half a file in place.
              return message([&] { file.commit(); }).empty() ? 5 : 0;
            }),
            0);
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, LeavesTheOldFileWhenKilledHalfWay) {
  const Folder folder;
  folder.put("f", "old");
  EXPECT_EQ(in_child([&] {
              AtomicFile file(folder / "f");
              file.write("half of the new");
              ::raise(SIGKILL);
              return 0;
            }),
            128 + SIGKILL);
  EXPECT_EQ(read(folder / "f"), "old");
  // What is left behind is in nobody's way.
  write_file(folder / "f", "new");
  EXPECT_EQ(read(folder / "f"), "new");
}

TEST(AtomicFile, ShowsAWholeFileWheneverTheWriterIsKilled) {
  const Folder folder;
  constexpr std::int64_t kSize = 300'000;
  const auto save = [&](char fill) {
    const std::string data(kSize, fill);
    const std::vector<TensorEntry> tensors = {
        {"w", StoredDtype::U8, {kSize}, std::as_bytes(std::span(data))}};
    write_safetensors(folder / "m", tensors);
  };
  save('a');
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (char fill = 'b';; fill = fill == 'z' ? 'b' : static_cast<char>(fill + 1)) save(fill);
    }
    ::usleep(static_cast<useconds_t>(500 + 1700 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const SafetensorsFile file = SafetensorsFile::open(folder / "m");
    const std::span<const std::byte> seen = file.at("w").bytes;
    EXPECT_EQ(std::ranges::count(seen, seen[0]), kSize);
  }
}

}  // namespace
}  // namespace heed
