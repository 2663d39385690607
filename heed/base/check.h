// Errors, and the checks that raise them.
//
// Three kinds, told apart by whose fault they are (docs/architecture.md, "Errors"):
//   the caller's: require(holds, parts...) throws Error, in every build;
//   the world's (a file, memory, a device): fail(parts...) throws Error with the path or the
//     system's own words;
//   ours: HEED_ASSERT aborts with file and line, in debug builds only.
// A message says who complains, what was given, what was wanted and, where it helps, what to do.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// What the library throws. It never prints and never exits.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where a device, or what the process may use of it, has no more memory: who asked for much can say
// what to make smaller.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// Throws Error, or what is named; its message is the parts, written one after the other.
template <class What = Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw What(message.str());
}

// Throws Error unless `holds`. The parts are only put together when it fails.
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail(parts...);
}

// The name among `known` that is nearest to `given` by edit distance, or "" if none is near.
std::string nearest(std::string_view given, const std::vector<std::string>& known);

// "unknown score 'cosin'; did you mean 'cosine'? have: additive, dot, ...": the message for a name
// that is not in a table of names.
std::string unknown_name(std::string_view kind, std::string_view given,
                         const std::vector<std::string>& known);

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace heed

#ifdef NDEBUG
#define HEED_ASSERT(condition) ((void)0)
#else
#define HEED_ASSERT(condition) \
  ((condition) ? (void)0 : ::heed::assertion_failed(#condition, __FILE__, __LINE__))
#endif
