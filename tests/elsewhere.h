// A process of its own for what cannot be taken back, such as limits.
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace heed {

// True if `body` returned true there.
template <class Body>
bool elsewhere(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    bool holds = false;
    try {
      holds = body();
    } catch (...) {
    }
    _exit(holds ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// From here on this process gets so many bytes of addresses more, and no others: ulimit -v.
inline void limit_addresses(int64_t more) {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages;
  const auto all = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more);
  const rlimit both{all, all};
  setrlimit(RLIMIT_AS, &both);
}

// Not by qemu-user, which has a machine's whole memory for the program that it runs.
inline bool addresses_can_be_limited() {
  return elsewhere([] {
    limit_addresses(64 << 20);
    return mmap(nullptr, size_t{1} << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
           MAP_FAILED;
  });
}

}  // namespace heed
