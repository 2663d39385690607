#include "heed/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr std::string_view kTemporary = ".tmp-";

std::string system_words(int error) { return std::generic_category().message(error); }

// Repeats a system call for as long as a signal interrupts it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// fsync(), where a file system that has no such thing is not an error. 0, or the error's number.
int sync_to_disk(int descriptor) {
  if (uninterrupted([&] { return ::fsync(descriptor); }) == 0) return 0;
  return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

std::filesystem::path follow_link(const std::filesystem::path& target) {
  std::error_code error;
  if (!std::filesystem::is_symlink(target, error)) return target;
  std::filesystem::path resolved = std::filesystem::canonical(target, error);
  if (error) fail(target.string(), ": is a symbolic link that leads nowhere: ", error.message());
  return resolved;
}

}  // namespace

AtomicFile::Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

void AtomicFile::Descriptor::reset(int value) {
  if (value_ >= 0) ::close(value_);
  value_ = value;
}

int AtomicFile::Descriptor::release() { return std::exchange(value_, -1); }

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  require(!target_.empty(), "cannot write a file: its path is empty");
  const std::filesystem::path resolved = follow_link(target_);
  name_ = resolved.filename().string();
  const std::string parent = resolved.has_parent_path() ? resolved.parent_path().string() : ".";

  struct stat existing = {};
  const bool exists = ::stat(resolved.c_str(), &existing) == 0;
  require(!(exists && S_ISDIR(existing.st_mode)) && !name_.empty(), target_.string(),
          ": is a directory; the name of a file was wanted");
  // Renaming over a device would put a plain file in its place.
  require(!exists || S_ISREG(existing.st_mode), target_.string(),
          ": is a device, pipe or socket; only a regular file can be replaced");

  directory_.reset(
      uninterrupted([&] { return ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (directory_.get() < 0) {
    const int error = errno;
    fail(target_.string(), ": cannot open the directory '", parent, "': ", system_words(error));
  }
  create_temporary();
  // Best effort: a file system without permissions still gets its file.
  if (exists) (void)!::fchmod(file_.get(), existing.st_mode & 0777);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::create_temporary() {
  static std::atomic<unsigned> counter{0};
  // The suffix must fit into the 255 bytes that file systems allow a name.
  const std::string stem =
      name_.substr(0, 200) + std::string(kTemporary) + std::to_string(::getpid()) + "-";
  constexpr int kTries = 1000;  // more leftovers of one process number than anybody has
  for (int i = 0; i < kTries && file_.get() < 0; ++i) {
    temporary_ = stem + std::to_string(counter++);
    // Mode 0666 less the umask, as for any other new file.
    file_.reset(uninterrupted([&] {
      return ::openat(directory_.get(), temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                      0666);
    }));
    if (file_.get() < 0 && errno != EEXIST) break;
  }
  if (file_.get() >= 0) return;
  const int error = errno;
  // Not ours: it must not be removed.
  const std::string temporary = std::exchange(temporary_, "");
  fail(target_.string(), ": cannot create the temporary file '", temporary,
       "' beside it: ", system_words(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(file_.get() >= 0, target_.string(), ": write after commit() or after a failed write");
  while (!bytes.empty()) {
    // The system takes at most 2^31 - 4096 bytes at once, and may take fewer than it was given.
    const std::size_t chunk = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    const ssize_t taken = uninterrupted([&] { return ::write(file_.get(), bytes.data(), chunk); });
    if (taken < 0) give_up("cannot write", errno);
    if (taken == 0) give_up("cannot write", ENOSPC);
    written_ += static_cast<std::uint64_t>(taken);
    bytes = bytes.subspan(static_cast<std::size_t>(taken));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::overwrite(std::uint64_t at, std::string_view text) {
  require(file_.get() >= 0 && at + text.size() <= written_, target_.string(), ": bytes ", at,
          " to ", at + text.size(), " were not written before");
  while (!text.empty()) {
    const ssize_t taken = uninterrupted(
        [&] { return ::pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(at)); });
    if (taken <= 0) give_up("cannot write", taken < 0 ? errno : ENOSPC);
    at += static_cast<std::uint64_t>(taken);
    text.remove_prefix(static_cast<std::size_t>(taken));
  }
}

void AtomicFile::commit() {
  require(file_.get() >= 0, target_.string(), ": commit() after commit() or after a failed write");
  if (const int error = sync_to_disk(file_.get())) give_up("cannot bring to the disk", error);
  // Network file systems report a full disk only here. After EINTR the descriptor is closed all
  // the same, and fsync() has already vouched for the bytes.
  if (::close(file_.release()) != 0 && errno != EINTR) give_up("cannot close", errno);
  if (::renameat(directory_.get(), temporary_.c_str(), directory_.get(), name_.c_str()) != 0)
    give_up("cannot rename the temporary file", errno);
  temporary_.clear();
  if (const int error = sync_to_disk(directory_.get()))
    fail(target_.string(), ": is written, but may not outlive a power cut: ",
         "cannot bring its directory to the disk: ", system_words(error));
}

void AtomicFile::discard() noexcept {
  file_.reset(-1);
  if (!temporary_.empty()) ::unlinkat(directory_.get(), temporary_.c_str(), 0);
  temporary_.clear();
}

void AtomicFile::give_up(std::string_view doing, int error) {
  discard();
  fail(target_.string(), ": ", doing, " (after ", written_, " bytes): ", system_words(error),
       "; what stood there before is untouched");
}

std::optional<std::string> target_of_temporary(const std::string& name) {
  const std::size_t suffix = name.rfind(kTemporary);
  if (suffix == name.npos || suffix == 0) return std::nullopt;
  const std::string numbers = name.substr(suffix + kTemporary.size());
  const std::size_t dash = numbers.find('-');
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  };
  if (dash == numbers.npos || !is_number(numbers.substr(0, dash)) ||
      !is_number(numbers.substr(dash + 1)))
    return std::nullopt;
  return name.substr(0, suffix);
}

void write_file(const std::filesystem::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

void want_writable(const std::filesystem::path& target) {
  if (target.empty()) return;
  std::error_code error;
  require(!std::filesystem::is_directory(target, error), target.string(),
          ": is a directory; the name of a file was wanted");
  const std::filesystem::path folder = std::filesystem::absolute(target).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    fail(target.string(), ": cannot be written: ", folder.string(), ": ", system_words(errno));
}

std::optional<std::string> read_file(const std::filesystem::path& file) {
  const auto refuse = [&](int error) {
    fail(file.string(), ": cannot be read: ", system_words(error));
  };
  const int opened = uninterrupted([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC); });
  if (opened < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (opened < 0) refuse(errno);
  struct Close {
    int descriptor;
    ~Close() { ::close(descriptor); }
  } const close{opened};
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t got = uninterrupted([&] { return ::read(opened, part, sizeof part); });
    if (got < 0) refuse(errno);
    if (got == 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace heed
