#include "heed/files/unpack.h"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

#include "heed/base/check.h"

namespace heed {
namespace {

class Gzip : public Unpacker {
 public:
  Gzip() { require(inflateInit2(&stream_, 15 + 16) == Z_OK, "no memory for unpacking"); }
  ~Gzip() override { inflateEnd(&stream_); }
  Step step(std::span<const char> in, std::span<char> out) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    require(code == Z_OK || code == Z_BUF_ERROR || code == Z_STREAM_END,
            stream_.msg ? stream_.msg : "unpacking failed");
    return {in.size() - stream_.avail_in, out.size() - stream_.avail_out, code == Z_STREAM_END};
  }
  void begin_again() override { inflateReset(&stream_); }
  bool can_begin(char first) const override { return first == '\x1f'; }
  const char* name() const override { return "gzip"; }

 private:
  z_stream stream_ = {};
};

class Zstd : public Unpacker {
 public:
  Zstd() : stream_(ZSTD_createDStream()) { require(stream_, "no memory for unpacking"); }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Step step(std::span<const char> in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t hint = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(hint)) fail(ZSTD_getErrorName(hint));
    return {from.pos, to.pos, hint == 0};
  }
  void begin_again() override { ZSTD_DCtx_reset(stream_, ZSTD_reset_session_only); }
  // A frame, or one that is skipped.
  bool can_begin(char first) const override {
    return first == '\x28' || (static_cast<unsigned char>(first) & 0xF0) == 0x50;
  }
  const char* name() const override { return "zstd"; }

 private:
  ZSTD_DStream* stream_;
};

class Xz : public Unpacker {
 public:
  Xz() { begin_again(); }
  ~Xz() override { lzma_end(&stream_); }
  Step step(std::span<const char> in, std::span<char> out) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret code = lzma_code(&stream_, LZMA_RUN);
    require(code == LZMA_OK || code == LZMA_BUF_ERROR || code == LZMA_STREAM_END,
            code == LZMA_MEMLIMIT_ERROR ? "it wants more than a GiB of memory" : "corrupt data");
    return {in.size() - stream_.avail_in, out.size() - stream_.avail_out, code == LZMA_STREAM_END};
  }
  void begin_again() override {
    constexpr uint64_t kMemory = uint64_t{1} << 30;
    require(lzma_stream_decoder(&stream_, kMemory, 0) == LZMA_OK, "no memory for unpacking");
  }
  bool can_begin(char first) const override { return first == '\xFD'; }
  const char* name() const override { return "xz"; }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

template <class Kind>
std::unique_ptr<Unpacker> make() {
  return std::make_unique<Kind>();
}
constexpr struct {
  std::string_view magic;
  std::unique_ptr<Unpacker> (*make)();
} kKinds[] = {{{"\x1f\x8b", 2}, make<Gzip>},
              {{"\x28\xB5\x2F\xFD", 4}, make<Zstd>},
              {{"\xFD\x37\x7A\x58\x5A\x00", 6}, make<Xz>}};

}  // namespace

std::unique_ptr<Unpacker> unpacker_for(std::string_view begin) {
  for (const auto& kind : kKinds)
    if (begin.starts_with(kind.magic)) return kind.make();
  return nullptr;
}

bool could_be_packed(std::string_view begin) {
  for (const auto& kind : kKinds)
    if (begin.size() < kind.magic.size() && kind.magic.starts_with(begin)) return true;
  return false;
}

}  // namespace heed
