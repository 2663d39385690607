// A file that is written whole or not at all.
//
// The bytes go to a temporary file in the target's own directory; commit() brings them to the
// disk, renames the temporary file over the target and brings the directory to the disk. Whoever
// opens the target, at any moment and after any crash, sees the old file or the new one, and a
// mapping of the old one stays whole. What a killed process leaves behind is a file named
// "<target>.tmp-<process>-<number>", which nobody reads and anybody may delete.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heed {

class AtomicFile {
 public:
  // Opens the temporary file. A symbolic link is followed, as by open(); an existing file's
  // permissions are kept. The target must be a regular file or nothing yet, and its directory
  // must exist.
  explicit AtomicFile(std::filesystem::path target);

  // Removes the temporary file, unless commit() has put it in place.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Nothing is buffered: one call is one write to the system, or a few. On failure the
  // temporary file is removed at once, the target is as it was, and this object is spent.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Over as many bytes that were written before, from byte `at` on.
  void overwrite(std::uint64_t at, std::string_view text);

  // Puts the new file in place; nothing may be written afterwards. On failure as write(), with
  // one exception that cannot be undone and says so: the new file stands, but the system did not
  // promise that it outlives a power cut.
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  // Closes what it holds.
  class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int value) : value_(value) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    void reset(int value);
    int release();
    int get() const { return value_; }

   private:
    int value_ = -1;
  };

  void create_temporary();
  void discard() noexcept;
  [[noreturn]] void give_up(std::string_view doing, int error);

  std::filesystem::path target_;  // as the caller named it, for messages
  std::string name_;              // within the directory, links followed
  std::string temporary_;         // within the directory; empty once renamed or removed
  Descriptor directory_;          // held, so that a change of working directory does no harm
  Descriptor file_;
  std::uint64_t written_ = 0;
};

// Of the name of such a temporary file that of its target: of "m.tmp-12-0", "m". Nothing of another
// name.
std::optional<std::string> target_of_temporary(const std::string& name);

// Writes `text` to `target`, whole or not at all.
void write_file(const std::filesystem::path& target, std::string_view text);

// Throws Error unless a file of this name can be written, before there is anything to write; "" is
// none.
void want_writable(const std::filesystem::path& target);

// All of a file; nothing if it is not there. Throws Error with the system's words if it cannot be
// read.
std::optional<std::string> read_file(const std::filesystem::path& file);

}  // namespace heed
