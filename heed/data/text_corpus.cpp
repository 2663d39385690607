#include "heed/data/text_corpus.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/base/unicode.h"
#include "heed/data/piece_hash.h"
#include "heed/data/text.h"

namespace heed {
namespace {

constexpr size_t kBlock = 8192;  // lines encoded at a time
constexpr int64_t kGrain = 64;   // lines a thread takes at a time

// Where the rows of a window begin: at 0 in the first epoch, then drawn.
size_t first_cut(uint64_t seed, int64_t epoch, int64_t window, int64_t context) {
  if (epoch == 0) return 0;
  const auto bits = philox({static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                            static_cast<uint32_t>(window), 0x74657874},
                           {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<size_t>(bits[0] % static_cast<uint32_t>(context));
}

}  // namespace

std::pair<TextPart, TextPart> split_text(const std::string& path, double share) {
  require(share > 0 && share < 1, path, ": the share to split off wants a number between 0 and 1, ",
          "given ", share);
  want_file(path);
  std::vector<uint64_t> ends;
  for (LineReader reader(path); reader.skip(1) == 1;) ends.push_back(reader.position().byte);
  require(ends.size() >= 2, path, ": has ", ends.size(), " lines, too few to split");
  const double place = (1 - share) * double(ends.back());
  const auto at = std::lower_bound(ends.begin(), ends.end(), place,
                                   [](uint64_t end, double p) { return double(end) < p; });
  const auto count =
      std::clamp<int64_t>(at - ends.begin() + 1, 1, static_cast<int64_t>(ends.size()) - 1);
  return {{.path = path, .first = 0, .count = count}, {.path = path, .first = count}};
}

TextStream texts(const TextPart& part) {
  auto reader = std::make_shared<LineReader>(part.path);
  reader->skip(static_cast<uint64_t>(part.first));
  return [reader, left = part.count]() mutable -> std::optional<std::string> {
    if (left == 0) return std::nullopt;
    if (left > 0) --left;
    return reader->next();
  };
}

TextCorpus::TextCorpus(TextPart part, std::shared_ptr<const Tokenizer> tokenizer,
                       TextCorpusOptions options)
    : part_(std::move(part)), tokenizers_{tokenizer, tokenizer}, options_(options) {
  require(tokenizer != nullptr, part_.path, ": no tokenizer was given");
  require(options_.context > 0 && options_.window > 0, part_.path, ": context (", options_.context,
          ") and window (", options_.window, ") must be positive");
  want_file(part_.path);
  LineReader reader(part_.path);
  reader.skip(static_cast<uint64_t>(part_.first));
  starts_.push_back(reader.position());
  const auto most =
      part_.count < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(part_.count);
  lines_ = static_cast<int64_t>(reader.skip(most));
  require(lines_ > 0, part_.path, ": has no text");
  if (windows() > 1) return;
  only_ = encode(0, Threads::all, false);
  require(!only_->ids.empty(), "nothing is left to learn from:\n", summary());
}

int64_t TextCorpus::windows() const { return (lines_ + options_.window - 1) / options_.window; }

std::shared_ptr<const CorpusWindow> TextCorpus::window_of(int64_t epoch, int64_t n,
                                                          const std::atomic<bool>& stop) {
  require(n >= 0 && n < windows(), part_.path, ": no window ", n, "; there are ", windows());
  if (only_) return cut(*only_, epoch, n);
  const std::lock_guard lock(reading_);
  // On this thread alone: while a model trains, the pool is its own.
  const auto text = encode(n, Threads::one, stop);
  return text ? cut(*text, epoch, n) : nullptr;
}

std::shared_ptr<const TextCorpus::Encoded> TextCorpus::encode(int64_t n, Threads threads,
                                                              const std::atomic<bool>& stop) {
  const Tokenizer& tokenizer = *tokenizers_.target;
  const int64_t known = std::min(n, static_cast<int64_t>(starts_.size()) - 1);
  LineReader reader(part_.path, starts_[static_cast<size_t>(known)]);
  reader.skip(static_cast<uint64_t>((n - known) * options_.window));
  auto out = std::make_shared<Encoded>();
  Findings found;
  int64_t left = std::min(options_.window, lines_ - n * options_.window);
  while (left > 0) {
    if (stop) return nullptr;
    std::vector<std::string> block;
    std::vector<int64_t> numbers;
    for (; block.size() < kBlock && left > 0; --left) {
      auto line = reader.next();
      if (!line) fail(part_.path, ": has become shorter while it was being read");
      ++found.lines;
      numbers.push_back(static_cast<int64_t>(reader.position().line));
      block.push_back(std::move(*line));
    }
    std::vector<std::vector<Id>> ids(block.size());
    const auto encode_some = [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        if (!encoding_trouble(block[i])) ids[i] = tokenizer.encode(block[i]).ids;
    };
    const auto size = static_cast<int64_t>(block.size());
    if (threads == Threads::all)
      parallel_for(size, kGrain, encode_some);
    else
      encode_some(0, size);
    for (size_t i = 0; i < block.size(); ++i) {
      const bool bad = encoding_trouble(block[i]).has_value();
      found.not_utf8 += bad;
      if (bad) continue;
      if (options_.lines) {
        const bool too_long = static_cast<int64_t>(ids[i].size()) > options_.context;
        found.empty += ids[i].empty(), found.too_long += too_long;
        if (ids[i].empty() || too_long) continue;
      } else if (const auto newline = tokenizer.newline()) {
        ids[i].push_back(*newline);
      }
      out->ids.insert(out->ids.end(), ids[i].begin(), ids[i].end());
      out->ends.push_back(out->ids.size());
      out->numbers.push_back(numbers[i]);
    }
  }
  found.pieces = static_cast<int64_t>(out->ids.size());
  if (static_cast<int64_t>(starts_.size()) == n + 1) starts_.push_back(reader.position());
  if (n == reported_) {  // and not a second time in the next epoch
    ++reported_;
    const std::lock_guard lock(reporting_);
    found_.lines += found.lines, found_.pieces += found.pieces, found_.not_utf8 += found.not_utf8;
    found_.empty += found.empty, found_.too_long += found.too_long;
  }
  return out;
}

std::shared_ptr<const CorpusWindow> TextCorpus::cut(const Encoded& text, int64_t epoch,
                                                    int64_t n) const {
  auto window = std::make_shared<CorpusWindow>();
  const std::span<const Id> all(text.ids);
  const auto add = [&](size_t begin, size_t end, int64_t line) {
    const auto row = all.subspan(begin, end - begin);
    window->add({.source = options_.with_sources ? row : std::span<const Id>(),
                 .target = row,
                 .line = line,
                 .goes_on = !options_.lines});
  };
  if (options_.lines) {
    for (size_t i = 0; i < text.numbers.size(); ++i)
      add(text.ends[i], text.ends[i + 1], text.numbers[i]);
    return window;
  }
  const auto context = static_cast<size_t>(options_.context);
  size_t line = 0;
  for (size_t begin = 0, end = first_cut(options_.seed, epoch, n, options_.context);
       begin < all.size(); begin = end, end += context) {
    end = std::min(end, all.size());
    if (end == begin) continue;  // the first cut is at the beginning
    while (text.ends[line + 1] <= begin) ++line;
    add(begin, end, text.numbers[line]);
  }
  return window;
}

std::string TextCorpus::identity() const {
  std::ostringstream out;
  out << lines_ << " lines" << (options_.lines ? "" : " in a stream") << ", context of "
      << options_.context;
  if (!only_) return out.str();
  PieceHash hash;
  hash.add(only_->ids);
  if (options_.lines)
    for (const size_t end : only_->ends) hash.add(end);
  out << ", " << only_->ids.size() << " pieces, " << hash.text();
  return out.str();
}

std::string TextCorpus::summary() const {
  Findings f;
  {
    const std::lock_guard lock(reporting_);
    f = found_;
  }
  std::string out = part_.path + ": " + grouped(lines_) + " lines";
  if (f.lines == 0) return out + ", streamed\n";
  if (f.lines < lines_) out += ", streamed; of the first " + grouped(f.lines);
  out += ", " + grouped(f.pieces) + (options_.lines ? " pieces\n" : " pieces in a stream\n");
  const auto tell = [&](int64_t count, const std::string& what) {
    if (count > 0) out += "  " + grouped(count) + (count == 1 ? " line " : " lines ") + what + "\n";
  };
  tell(f.not_utf8, "not UTF-8: left out");
  tell(f.empty, "empty: left out");
  tell(f.too_long, "longer than " + grouped(options_.context) + " pieces: left out");
  return out;
}

}  // namespace heed
