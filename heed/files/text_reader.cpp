#include "heed/files/text_reader.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "heed/base/check.h"
#include "heed/files/checksum.h"

namespace heed {
namespace {

// What is unpacked at most to come to a position.
constexpr uint64_t kFar = uint64_t{16} << 20;

// Size and time; the lines are not known yet.
TextIndex::File file_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0)
    fail(path, ": cannot be read: ", std::generic_category().message(errno));
  return {.size = static_cast<uint64_t>(status.st_size),
          .modified = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                      static_cast<uint64_t>(status.st_mtim.tv_nsec)};
}

}  // namespace

std::string Paths::name() const {
  if (all_.empty()) return {};
  if (all_.size() == 1) return all_.front();
  return all_.front() + " … " + all_.back() + " (" + std::to_string(all_.size()) + " files)";
}

Paths expanded(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    if (std::filesystem::exists(word) || word.find_first_of("*?[") == word.npos) {
      all.push_back(word);
      continue;
    }
    glob_t found = {};
    const int code = ::glob(word.c_str(), 0, nullptr, &found);  // sorted by bytes, as here it is C
    for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) all.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    require(code == 0, word, ": no file has such a name");
  }
  return Paths(std::move(all));
}

// ---- reading

TextReader::TextReader(Paths paths, const Position& position)
    : paths_(std::move(paths)), file_(position.file), line_(position.line) {
  require(!paths_.empty(), "cannot read a text file: its path is empty");
  if (file_ < paths_.size()) reader_.emplace(paths_[file_], position.in_file);
}

// False after the last one.
bool TextReader::next_file() {
  if (file_ + 1 >= paths_.size()) return false;
  reader_.emplace(paths_[++file_]);
  return true;
}

std::optional<std::string> TextReader::next() {
  do {
    if (auto line = reader_->next()) {
      ++line_;
      return line;
    }
  } while (next_file());
  return std::nullopt;
}

uint64_t TextReader::skip(uint64_t count) {
  uint64_t skipped = 0;
  do skipped += reader_->skip(count - skipped);
  while (skipped < count && next_file());
  line_ += skipped;
  return skipped;
}

TextReader::Position TextReader::position() const {
  return {.file = file_, .in_file = reader_->position(), .line = line_};
}

// ---- the index

TextIndex::TextIndex(const Paths& paths) {
  for (const std::string& path : paths) {
    want_file(path);
    data_.files.push_back(file_of(path));
  }
  std::string block;
  std::vector<uint64_t> checksums;
  const auto end_block = [&] {
    checksums.push_back(xxh64(std::as_bytes(std::span(block))));
    block.clear();
  };
  uint64_t line = 0;
  for (size_t f = 0; f < paths.size(); ++f) {
    LineReader reader(paths[f]);
    const auto position = [&] {
      return TextReader::Position{.file = f, .in_file = reader.position(), .line = line};
    };
    for (TextReader::Position here = position();; here = position()) {
      const std::optional<std::string> text = reader.next();
      if (!text) break;
      if (line++ % kEvery == 0) {
        if (line > 1) end_block();
        data_.positions.push_back(here);
      }
      block.append(*text) += '\n';
    }
    data_.files[f].lines = reader.position().line;
    data_.files[f].packed = reader.packed();
  }
  if (line > 0) end_block();
  data_.checksum = xxh64(std::as_bytes(std::span(checksums)));
}

TextIndex::TextIndex(Data data) : data_(std::move(data)) {
  std::vector<uint64_t> before{0};  // lines of the files before each
  for (const File& file : data_.files) {
    constexpr uint64_t kMost = uint64_t{1} << 60;  // so that no sum is too large
    require(file.lines <= kMost && before.back() <= kMost && file.packed <= 1, "index: a file of ",
            file.lines, " lines");
    before.push_back(before.back() + file.lines);
  }
  const uint64_t count = (before.back() + kEvery - 1) / kEvery;
  require(data_.positions.size() == count, "index: ", data_.positions.size(), " positions of ",
          before.back(), " lines");
  for (uint64_t i = 0; i < count; ++i) {
    const TextReader::Position& p = data_.positions[i];
    const LineReader::Position& in = p.in_file;
    require(p.line == i * kEvery && p.file < data_.files.size(), "index: position ", i,
            " is of another line");
    const File& file = data_.files[p.file];
    require(in.line < file.lines && before[p.file] + in.line == p.line && in.byte >= in.line &&
                in.member.text <= in.byte && in.member.file <= file.size &&
                (file.packed || (in.byte <= file.size && in.member == ByteInput::Member{})),
            "index: position ", i, " is nowhere in its file");
  }
}

uint64_t TextIndex::lines() const {
  uint64_t lines = 0;
  for (const File& file : data_.files) lines += file.lines;
  return lines;
}

TextReader::Position TextIndex::before(uint64_t line) const {
  if (data_.positions.empty()) return {};
  return data_.positions[std::min<size_t>(line / kEvery, data_.positions.size() - 1)];
}

bool TextIndex::anywhere() const {
  return std::ranges::all_of(data_.positions, [&](const TextReader::Position& p) {
    return !data_.files[p.file].packed || p.in_file.byte - p.in_file.member.text <= kFar;
  });
}

bool TextIndex::is_of(const Paths& paths) const {
  if (paths.size() != data_.files.size()) return false;
  for (size_t f = 0; f < paths.size(); ++f) {
    const File now = file_of(paths[f]), &then = data_.files[f];
    if (now.size != then.size || now.modified != then.modified) return false;
  }
  return true;
}

}  // namespace heed
