#include "heed/serve/counters.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace heed::serve {

void Counters::answered(const std::string& route, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, status}];
  Latency& latency = latencies_[route];
  size_t bucket = 0;
  while (bucket < kEnds.size() && seconds > kEnds[bucket]) ++bucket;
  ++latency.buckets[bucket];
  latency.sum += seconds;
  ++latency.count;
}

void Counters::translated(int64_t characters, int64_t source_tokens, int64_t target_tokens) {
  const std::lock_guard lock(mutex_);
  characters_ += characters, source_tokens_ += source_tokens, target_tokens_ += target_tokens;
}

std::string Counters::text(const std::vector<Gauge>& gauges) const {
  std::ostringstream out;
  const auto head = [&](const std::string& name, const char* type, const std::string& help) {
    out << "# HELP " << name << ' ' << help << "\n# TYPE " << name << ' ' << type << '\n';
  };
  {
    const std::lock_guard lock(mutex_);
    head("heed_http_requests_total", "counter", "Requests answered, by route and status.");
    for (const auto& [what, count] : requests_)
      out << "heed_http_requests_total{code=\"" << what.second << "\",route=\"" << what.first
          << "\"} " << count << '\n';
    head("heed_http_request_duration_seconds", "histogram", "From the request to its answer.");
    for (const auto& [route, latency] : latencies_) {
      uint64_t sum = 0;
      for (size_t i = 0; i <= kEnds.size(); ++i) {
        sum += latency.buckets[i];
        out << "heed_http_request_duration_seconds_bucket{route=\"" << route << "\",le=\"";
        i < kEnds.size() ? out << kEnds[i] : out << "+Inf";
        out << "\"} " << sum << '\n';
      }
      out << "heed_http_request_duration_seconds_sum{route=\"" << route << "\"} " << latency.sum
          << "\nheed_http_request_duration_seconds_count{route=\"" << route << "\"} "
          << latency.count << '\n';
    }
    head("heed_characters_total", "counter", "Characters of the texts that were translated.");
    out << "heed_characters_total " << characters_ << '\n';
    head("heed_tokens_total", "counter", "Tokens that were read and written.");
    out << "heed_tokens_total{side=\"source\"} " << source_tokens_
        << "\nheed_tokens_total{side=\"target\"} " << target_tokens_ << '\n';
  }
  std::string before;
  for (const Gauge& g : gauges) {
    if (g.name != before) head(g.name, g.counts ? "counter" : "gauge", g.help);
    before = g.name;
    out << g.name << g.labels << ' ';
    const auto precision = out.precision(17);
    out << g.value << '\n';
    out.precision(precision);
  }
  return out.str();
}

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace heed::serve
