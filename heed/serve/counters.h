// What a server has done so far, as Prometheus reads it (text format 0.0.4).
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace heed::serve {

class Counters {
 public:
  // A request of a route ("/translate"; "other" for paths that are none) was answered.
  void answered(const std::string& route, int status, double seconds);
  void translated(int64_t characters, int64_t source_tokens, int64_t target_tokens);

  struct Gauge {
    std::string name, help;
    double value = 0;
    bool counts = false;  // only ever grows: a counter
    std::string labels = {};
  };
  // Everything, with what others know at this moment.
  std::string text(const std::vector<Gauge>& gauges) const;

 private:
  // Upper ends of the latency histogram's buckets, in seconds; the last is infinity.
  static constexpr std::array<double, 12> kEnds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                   0.5,   1,    2.5,   5,    10,  30};
  struct Latency {
    std::array<uint64_t, kEnds.size() + 1> buckets{};
    double sum = 0;
    uint64_t count = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  std::map<std::string, Latency> latencies_;
  int64_t characters_ = 0, source_tokens_ = 0, target_tokens_ = 0;
};

int64_t resident_bytes();  // of this process

}  // namespace heed::serve
