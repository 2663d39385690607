#include "heed/ranks/ranks.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "heed/base/check.h"

namespace heed {
namespace {

std::optional<int> number_of(const char* name) {
  const char* const text = std::getenv(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

class Alone : public Ranks {
 public:
  Alone() : Ranks(0, {"this machine"}) {}

 private:
  void move(const std::string&, std::span<const Sent>, std::span<const Received>) override {}
};

}  // namespace

Launch launched() {
  struct Names {
    const char *rank, *count;
  };
  // Slurm's are there for every command of a job, too, but not its step's: only srun sets that.
  const bool step = std::getenv("SLURM_STEP_ID") != nullptr;
  for (const Names& names :
       {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Names{"PMI_RANK", "PMI_SIZE"},
        Names{step ? "SLURM_PROCID" : "", step ? "SLURM_STEP_NUM_TASKS" : ""}}) {
    const auto rank = number_of(names.rank), count = number_of(names.count);
    if (rank && count && *rank >= 0 && *rank < *count) return {*rank, *count};
  }
  return {};
}

Ranks::Ranks(int rank, std::vector<std::string> hosts)
    : rank_(rank),
      count_(static_cast<int>(hosts.size())),
      on_this_machine_(static_cast<int>(
          std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(rank)]))),
      hosts_(std::move(hosts)) {}

int Ranks::order_on_machine() const {
  const auto own = hosts_.begin() + rank_;
  return static_cast<int>(std::count(hosts_.begin(), own, *own));
}

int Ranks::on_each_machine() const {
  const int each = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_.front()));
  if (count_ % each != 0) return 1;
  std::set<std::string> names;
  for (auto of = hosts_.begin(); of != hosts_.end(); of += each)
    if (!names.insert(*of).second || std::count(of, of + each, *of) != each) return 1;
  return each;
}

std::string Ranks::name(int rank) const {
  return "rank " + std::to_string(rank) + " (" + hosts_[static_cast<size_t>(rank)] + ")";
}

void Ranks::exchange(const std::string& what, std::span<const Sent> to,
                     std::span<const Received> from) {
  const auto n = static_cast<size_t>(count_), own = static_cast<size_t>(rank_);
  require(to.size() == n && from.size() == n && to[own].size() == from[own].size(),
          "ranks: one span to each and one from each of ", n, " are wanted, given ", to.size(),
          " and ", from.size());
  if (!to[own].empty()) std::memmove(from[own].data(), to[own].data(), to[own].size());
  if (n == 1) return;
  const auto begin = std::chrono::steady_clock::now();
  move(what, to, from);
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Ranks::broadcast(const std::string& what, std::span<std::byte> bytes) {
  const auto n = static_cast<size_t>(count_);
  std::vector<Sent> to(n);
  std::vector<Received> from(n);
  if (first()) {
    std::fill(to.begin() + 1, to.end(), bytes);
  } else {
    from[0] = bytes;
  }
  exchange(what, to, from);
}

void Ranks::gather_bytes(const std::string& what, Sent mine, Received all) {
  const std::vector<Sent> to(static_cast<size_t>(count_), mine);
  std::vector<Received> from;
  for (int r = 0; r < count_; ++r)
    from.push_back(all.subspan(static_cast<size_t>(r) * mine.size(), mine.size()));
  exchange(what, to, from);
}

std::vector<std::string> Ranks::gather(const std::string& what, const std::string& mine) {
  const std::vector<size_t> sizes = gather(what, mine.size());
  std::vector<std::string> all;
  for (const size_t size : sizes) all.emplace_back(size, '\0');
  const std::vector<Sent> to(sizes.size(), std::as_bytes(std::span(mine)));
  std::vector<Received> from;
  for (std::string& text : all) from.push_back(std::as_writable_bytes(std::span(text)));
  exchange(what, to, from);
  return all;
}

std::vector<std::vector<std::string>> Ranks::gather(const std::string& what,
                                                    const std::vector<std::string>& mine) {
  // Each text's size before it: it may have any bytes.
  std::string packed;
  for (const std::string& text : mine) {
    const size_t size = text.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  }
  std::vector<std::vector<std::string>> all;
  for (const std::string& theirs : gather(what, packed)) {
    std::vector<std::string>& texts = all.emplace_back();
    for (size_t at = 0, size = 0; at < theirs.size(); at += size) {
      std::memcpy(&size, theirs.data() + at, sizeof size);
      texts.push_back(theirs.substr(at += sizeof size, size));
    }
  }
  return all;
}

std::string Ranks::scatter(const std::string& what, const std::vector<std::string>& texts) {
  const auto n = static_cast<size_t>(count_);
  require(!first() || texts.size() == n, "ranks: ", what, ": a text for each of ", n,
          " ranks is wanted, given ", texts.size());
  std::vector<size_t> sizes(n);
  for (size_t r = 0; r < texts.size(); ++r) sizes[r] = texts[r].size();
  broadcast(what, std::as_writable_bytes(std::span(sizes)));
  std::string mine(sizes[static_cast<size_t>(rank_)], '\0');
  std::vector<Sent> to(n);
  std::vector<Received> from(n);
  for (size_t r = 0; first() && r < n; ++r) to[r] = std::as_bytes(std::span(texts[r]));
  from[0] = std::as_writable_bytes(std::span(mine));
  exchange(what, to, from);
  return mine;
}

std::vector<std::string> Ranks::collect(const std::string& what, const std::string& mine) {
  const std::vector<size_t> sizes = gather(what, mine.size());
  std::vector<std::string> all(sizes.size());
  std::vector<Sent> to(sizes.size());
  std::vector<Received> from(sizes.size());
  to[0] = std::as_bytes(std::span(mine));
  for (size_t r = 0; first() && r < sizes.size(); ++r) {
    all[r].resize(sizes[r]);
    from[r] = std::as_writable_bytes(std::span(all[r]));
  }
  exchange(what, to, from);
  return all;
}

void Ranks::want_same(const std::string& what, const std::string& mine) {
  const std::vector<std::string> all = gather(what, mine);
  for (size_t r = 1; r < all.size(); ++r)
    require(all[r] == all[0], name(static_cast<int>(r)), ": ", what, " must be the same on all ",
            all.size(), " ranks; here it is [", all[r], "], on ", name(0), " [", all[0], "]");
}

std::shared_ptr<Ranks> alone() { return std::make_shared<Alone>(); }

}  // namespace heed
