// What is used of NVIDIA's NCCL, by its C interface, declared as nccl.h of 2.14 does, which later
// ones keep. It is 218 MB, and one GPU needs none: it is loaded when ranks first meet on GPUs.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
#include <climits>
#include <cstddef>

struct CUstream_st;

namespace heed::nccl {

using Stream = CUstream_st*;  // CUDA's
using Result = int;
inline constexpr Result kSuccess = 0, kInProgress = 7;
inline constexpr int kBytes = 0;  // ncclInt8
struct Comm;
struct Id {
  std::array<char, 128> bytes{};
};
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
  int unset = INT_MIN;  // of later versions: their default
};

struct Library {
  Result (*get_unique_id)(Id*);
  Result (*init_rank)(Comm**, int ranks, Id, int rank, Config*);
  Result (*get_async_error)(Comm*, Result*);
  Result (*finalize)(Comm*);
  Result (*destroy)(Comm*);
  Result (*abort)(Comm*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, size_t, int type, int peer, Comm*, Stream);
  Result (*receive)(void*, size_t, int type, int peer, Comm*, Stream);
  const char* (*error_string)(Result);
};

// Throws Error that says what to install where there is no such file, or it has no such functions.
Library load(const char* file);
// libnccl.so.2, loaded once.
const Library& library();

}  // namespace heed::nccl
