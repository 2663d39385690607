#include "heed/ranks/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "heed/base/check.h"

namespace heed::nccl {

Library load(const char* file) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail("ranks: GPUs exchange by NVIDIA's NCCL (", file,
         ", 2.14 or newer), which cannot be loaded: ", dlerror(),
         "; install it, or say by LD_LIBRARY_PATH where it is");
  const auto get = [&](const char* name, auto& function) {
    void* const found = dlsym(handle, name);
    require(found, "ranks: this ", file, " has no ", name, "; take NCCL 2.14 or newer");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  Library out{};
  get("ncclGetUniqueId", out.get_unique_id);
  get("ncclCommInitRankConfig", out.init_rank);
  get("ncclCommGetAsyncError", out.get_async_error);
  get("ncclCommFinalize", out.finalize);
  get("ncclCommDestroy", out.destroy);
  get("ncclCommAbort", out.abort);
  get("ncclGroupStart", out.group_start);
  get("ncclGroupEnd", out.group_end);
  get("ncclSend", out.send);
  get("ncclRecv", out.receive);
  get("ncclGetErrorString", out.error_string);
  return out;
}

const Library& library() {
  static const Library loaded = load("libnccl.so.2");
  return loaded;
}

}  // namespace heed::nccl
