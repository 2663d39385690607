#include "heed/data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/unicode.h"
#include "heed/data/piece_hash.h"
#include "heed/data/stream.h"
#include "heed/data/text.h"

namespace heed {
namespace {

constexpr size_t kShownLines = 5;  // numbers of lines in a report
constexpr int64_t kBlock = 8192;   // pairs encoded at a time
constexpr int64_t kDrawn = 512;    // pairs drawn at a time
constexpr int64_t kGrain = 64;     // pairs a thread takes at a time

std::string several(int64_t count, const std::string& one, const std::string& many) {
  return grouped(count) + " " + (count == 1 ? one : many);
}

}  // namespace

// ---- what is held out

HeldOut::HeldOut(const CorpusIndex& index, int64_t each) : each_(each) {
  require(each >= 2, name_of(index.files()), ": of every ", each, " lines none can be held out");
  PairReader reader = index.at(0);
  const std::hash<std::string> hash;
  for (int64_t line = first(); line <= index.lines(); line += each) {
    index.go(reader, line - 1);
    const std::optional<TextPair> pair = reader.next();
    if (!pair) fail(name_of(index.files()), ": has become shorter while it was being read");
    sources_.insert(hash(pair->source)), targets_.insert(hash(pair->target));
  }
  require(!sources_.empty(), name_of(index.files()), ": has fewer than ", each / 2,
          " lines; of every ", each, " none is there to be held out");
}

bool HeldOut::leaks(const TextPair& pair) const {
  const std::hash<std::string> hash;
  return chosen(pair.line) || sources_.contains(hash(pair.source)) ||
         targets_.contains(hash(pair.target));
}

// ---- the report

void CleaningReport::add(Flaw flaw, int64_t line, int64_t count) {
  Finding& finding = findings[static_cast<size_t>(flaw)];
  finding.count += count;
  if (finding.lines.size() < kShownLines) finding.lines.push_back(line);
}

void CleaningReport::add(const CleaningReport& other) {
  read += other.read, kept += other.kept, identical += other.identical;
  source.all += other.source.all, source.unknown += other.source.unknown;
  target.all += other.target.all, target.unknown += other.target.unknown;
  for (size_t i = 0; i < kFlaws; ++i) {
    findings[i].count += other.findings[i].count;
    for (const int64_t line : other.findings[i].lines)
      if (findings[i].lines.size() < kShownLines) findings[i].lines.push_back(line);
  }
}

std::string CleaningReport::text() const {
  const auto what = [&](Flaw flaw) -> std::string {
    switch (flaw) {
      case Flaw::torn: return "without a tab between source and target: left out";
      case Flaw::not_utf8: return "not UTF-8: left out";
      case Flaw::empty: return "empty on one side: left out";
      case Flaw::too_long: return "longer than " + grouped(limits.max_length) + " pieces: left out";
      case Flaw::wild_ratio: {
        std::ostringstream ratio;
        ratio << "one side more than " << limits.max_ratio << " times the other: left out";
        return ratio.str();
      }
      case Flaw::bad_links: return "with links that do not fit the sentences: kept without them";
      case Flaw::surplus: return "in one file more than in the other: left out, from the end";
      case Flaw::held_out: return "held out to validate on, or the same as what is";
    }
    return {};
  };
  std::string text = name + ": ";
  if (read < pairs) text += several(pairs, "pair", "pairs") + ", streamed; of ";
  text += several(read, "pair", "pairs") + (read < pairs ? " here and there " : " read, ") +
          grouped(kept) + " kept\n";
  for (size_t i = 0; i < kFlaws; ++i) {
    const Finding& finding = findings[i];
    if (finding.count == 0) continue;
    text += "  " + several(finding.count, "line ", "lines ") + what(static_cast<Flaw>(i)) + " (";
    for (size_t k = 0; k < finding.lines.size(); ++k)
      text += (k                   ? ", "
               : finding.count > 1 ? "lines "
                                   : "line ") +
              std::to_string(finding.lines[k]);
    const bool more = finding.count > static_cast<int64_t>(finding.lines.size());
    text += more ? (static_cast<Flaw>(i) == Flaw::surplus ? " on)\n" : ", …)\n") : ")\n";
  }
  return text;
}

// ---- a window

PairView CorpusWindow::operator[](int64_t i) const {
  HEED_ASSERT(i >= 0 && i < size());
  const auto n = static_cast<size_t>(i);
  const Ends &from = ends_[n], &to = ends_[n + 1];
  const auto part = [](const auto& all, size_t begin, size_t end) {
    return std::span(all).subspan(begin, end - begin);
  };
  return {.source = part(source_, from.source, to.source),
          .target = part(target_, from.target, to.target),
          .links = part(links_, from.links, to.links),
          .line = lines_[n],
          .goes_on = goes_on_[n]};
}

// ---- cleaning and encoding

namespace {

struct Encoded {
  Sentence source, target;
  Links links;
  std::optional<Flaw> flaw;  // bad_links: the pair is good but for them
};

Encoded encode(const TextPair& text, const TokenizerPair& tokenizers,
               const CorpusOptions& options) {
  Encoded pair;
  const auto flawed = [&](Flaw flaw) {
    pair.flaw = flaw;
    return pair;
  };
  if (text.torn) return flawed(Flaw::torn);
  if (encoding_trouble(text.source) || encoding_trouble(text.target)) return flawed(Flaw::not_utf8);
  const size_t source_words = split_words(text.source).size();
  const size_t target_words = split_words(text.target).size();
  if (source_words == 0 || target_words == 0) return flawed(Flaw::empty);
  if (options.held_out && options.part == CorpusOptions::Part::training &&
      options.held_out->leaks(text))
    return flawed(Flaw::held_out);
  // A word is a piece at least: no need to encode a novel to see that it is too long.
  const auto limit = static_cast<size_t>(options.max_length);
  if (source_words > limit || target_words > limit) return flawed(Flaw::too_long);
  pair.source = tokenizers.source->encode(text.source);
  pair.target = tokenizers.target->encode(text.target);
  const size_t source = pair.source.ids.size(), target = pair.target.ids.size();
  if (source == 0 || target == 0) return flawed(Flaw::empty);
  if (source > limit || target > limit) return flawed(Flaw::too_long);
  if (static_cast<double>(std::max(source, target)) >
      options.max_ratio * static_cast<double>(std::min(source, target)))
    return flawed(Flaw::wild_ratio);

  const std::optional<Links> words = parse_pharaoh(text.alignment);
  if (!words) return flawed(Flaw::bad_links);
  for (const Link& link : *words)
    if (static_cast<size_t>(link.source) >= source_words ||
        static_cast<size_t>(link.target) >= target_words)
      return flawed(Flaw::bad_links);
  pair.links = to_pieces(*words, pair.source.word, pair.target.word);
  return pair;
}

bool is_kept(const Encoded& pair) { return !pair.flaw || pair.flaw == Flaw::bad_links; }

}  // namespace

// Some lines, as they were read and as they were encoded.
struct Corpus::Block {
  std::vector<TextPair> texts;
  std::vector<Encoded> pairs;

  void report(const TokenizerPair& tokenizers, CleaningReport& found) const {
    const auto count = [](const Sentence& s, const Tokenizer& tokenizer, auto& pieces) {
      pieces.all += std::ssize(s.ids);
      pieces.unknown += std::ranges::count(s.ids, tokenizer.special().unknown);
    };
    for (size_t i = 0; i < pairs.size(); ++i) {
      ++found.read;
      if (pairs[i].flaw) found.add(*pairs[i].flaw, texts[i].line);
      if (!is_kept(pairs[i])) continue;
      ++found.kept;
      found.identical += texts[i].source == texts[i].target;
      count(pairs[i].source, *tokenizers.source, found.source);
      count(pairs[i].target, *tokenizers.target, found.target);
    }
  }
};

// ---- the corpus

Corpus::Corpus(std::shared_ptr<const CorpusIndex> index, TokenizerPair tokenizers,
               CorpusOptions options)
    : index_(std::move(index)), tokenizers_(std::move(tokenizers)), options_(std::move(options)) {
  report_.name = name_of(files()) + (is_held_out() ? ", held out" : "");
  report_.limits = options_;
  require(options_.max_length > 0 && options_.max_ratio >= 1 && options_.window > 0, report_.name,
          ": max_length (", options_.max_length, ") and window (", options_.window,
          ") must be positive and max_ratio (", options_.max_ratio, ") at least 1");
  require(tokenizers_.source && tokenizers_.target, report_.name, ": no tokenizers were given");
  require(options_.sampling >= 0, report_.name, ": sampling wants a number of at least 0, given ",
          options_.sampling);
  if (options_.sampling > 0) {
    source_sampler_ = tokenizers_.source->sampler(options_.sampling);
    target_sampler_ = tokenizers_.source == tokenizers_.target
                          ? source_sampler_
                          : tokenizers_.target->sampler(options_.sampling);
    require(source_sampler_ && target_sampler_, report_.name, ": sampling draws other subwords, ",
            "and the ", source_sampler_ ? "target" : "source", "'s vocabulary is one of words or ",
            "characters; take one of the kind bpe or unigram, or no sampling");
    // One number would be the p of one side and the alpha of the other: little here, much there.
    const auto source = tokenizers_.source->kind(), target = tokenizers_.target->kind();
    require(source == target, report_.name, ": sampling of ", options_.sampling,
            " means one thing for bpe and another for unigram, and the source's vocabulary is ",
            source, ", the target's ", target, "; take two of one kind, or no sampling");
  }
  report_.pairs = lines();
  if (index_->surplus() > 0) report_.add(Flaw::surplus, lines() + 1, index_->surplus());
  if (is_held_out()) {
    const HeldOut& held_out = *options_.held_out;
    report_.pairs = (lines() - held_out.first() + held_out.each()) / held_out.each();
  }
  if (windows() > 1) return;
  PairReader reader = index_->at(0);
  only_ = read_window({{0, lines()}}, reader, Threads::all, false, report_);
  if (only_->size() == 0)
    fail("nothing is left to learn from:\n", report_.text(), first_bad_line(files()).value_or(""));
}

bool Corpus::is_held_out() const {
  return options_.held_out && options_.part == CorpusOptions::Part::held_out;
}

// Of a corpus that is streamed the pieces are not known yet: what is told apart are the limits.
std::string Corpus::identity() const {
  std::ostringstream out;
  out << lines() << " lines";
  if (only_) {
    PieceHash hash;
    for (int64_t i = 0; i < only_->size(); ++i)
      hash.add((*only_)[i].source), hash.add((*only_)[i].target);
    out << ", " << only_->size() << " kept, " << hash.text();
    if (options_.sampling > 0) out << ", drawn up to " << options_.max_length << " pieces";
  } else {
    out << " of at most " << options_.max_length << " pieces, ratio " << options_.max_ratio
        << ", in windows of " << options_.window << (index_->anywhere() ? "" : " in turn") << ", "
        << index_->checksum();
    if (options_.held_out) out << ", one of " << options_.held_out->each() << " held out";
  }
  return out.str();
}

// ---- windows

namespace {

// A window of several has `each` runs of so many lines: enough of them to mix what stands far
// apart, long enough that going there costs little, and few enough that to go on within a window,
// which takes all of it, takes seconds.
struct Runs {
  int64_t lines, each;
  explicit Runs(int64_t window)
      : lines(std::clamp<int64_t>(window / 16, 1, TextIndex::kEvery)),
        each(std::min<int64_t>(window / lines, 32)) {}
  int64_t of(int64_t all) const { return (all + lines - 1) / lines; }
};

}  // namespace

int64_t Corpus::windows() const {
  if (lines() <= options_.window) return 1;
  const Runs runs(options_.window);
  return (runs.of(lines()) + runs.each - 1) / runs.each;
}

std::vector<LineRun> Corpus::lines_of(int64_t epoch, int64_t n) const {
  const Runs runs(options_.window);
  std::vector<int64_t> order(static_cast<size_t>(runs.of(lines())));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (index_->anywhere() && !is_held_out()) {
    Random random = stream_of(options_.seed, {static_cast<uint32_t>(epoch),
                                              static_cast<uint32_t>(epoch >> 32), 0, 0x72756e73});
    shuffle(order, random);
  }
  const auto begin = order.begin() + n * runs.each;
  const auto end = order.begin() + std::min((n + 1) * runs.each, std::ssize(order));
  std::sort(begin, end);
  std::vector<LineRun> out;
  std::transform(begin, end, std::back_inserter(out), [&](int64_t run) {
    return LineRun{run * runs.lines, std::min(runs.lines, lines() - run * runs.lines)};
  });
  return out;
}

std::shared_ptr<const CorpusWindow> Corpus::plain_window(int64_t epoch, int64_t n,
                                                         const std::atomic<bool>& stop) {
  require(n >= 0 && n < windows(), name_of(files()), ": no window ", n, "; there are ", windows());
  if (only_) return only_;
  const std::lock_guard lock(reading_);
  CleaningReport found;
  // The first one is waited for. Later the pool is the model's that trains.
  const Threads threads = reader_ ? Threads::one : Threads::all;
  const std::vector<LineRun> runs = lines_of(epoch, n);
  PairReader reader = reader_ ? std::move(*reader_) : index_->at(runs.front().first);
  reader_.reset();
  auto window = read_window(runs, reader, threads, stop, found);
  reader_ = std::move(reader);
  if (window && epoch == 0 && n == reported_) {
    ++reported_;
    const std::lock_guard reporting(reporting_);
    report_.add(found);
  }
  return window;
}

std::shared_ptr<const CorpusWindow> Corpus::window_of(int64_t epoch, int64_t n,
                                                      const std::atomic<bool>& stop) {
  auto plain = plain_window(epoch, n, stop);
  return plain && source_sampler_ ? drawn(*plain, epoch, stop) : plain;
}

std::shared_ptr<const CorpusWindow> Corpus::drawn(const CorpusWindow& plain, int64_t epoch,
                                                  const std::atomic<bool>& stop) const {
  const auto draw = [&](std::span<const Id> ids, int64_t line, Side side) {
    Random random =
        stream_of(options_.seed, {static_cast<uint32_t>(epoch), static_cast<uint32_t>(line),
                                  static_cast<uint32_t>(line >> 32),
                                  side == Side::source ? 0x73726365u : 0x74726774u});
    DrawnPieces pieces =
        (side == Side::source ? source_sampler_ : target_sampler_)->draw(ids, random);
    if (static_cast<int64_t>(pieces.ids.size()) > options_.max_length) {
      pieces.ids.assign(ids.begin(), ids.end());
      pieces.from.resize(ids.size());
      std::iota(pieces.from.begin(), pieces.from.end(), 0);
    }
    return pieces;
  };
  auto window = std::make_shared<CorpusWindow>();
  for (int64_t first = 0; first < plain.size(); first += kDrawn) {
    if (stop) return nullptr;
    const int64_t count = std::min(kDrawn, plain.size() - first);
    std::vector<DrawnPieces> source(static_cast<size_t>(count)), target(source.size());
    // By all threads where they are free, as while a GPU trains; else by this one alone. A model
    // that wants them meanwhile gets one, for as long as a block takes.
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const PairView pair = plain[first + i];
        source[static_cast<size_t>(i)] = draw(pair.source, pair.line, Side::source);
        target[static_cast<size_t>(i)] = draw(pair.target, pair.line, Side::target);
      }
    });
    for (size_t i = 0; i < source.size(); ++i) {
      const PairView pair = plain[first + static_cast<int64_t>(i)];
      // All pieces of a word have its links, so each has those of the plain one that it begins in.
      const Links links = to_pieces(pair.links, source[i].from, target[i].from);
      window->add(
          {.source = source[i].ids, .target = target[i].ids, .links = links, .line = pair.line});
    }
  }
  return window;
}

void Corpus::encode(Block& block, Threads threads) const {
  const auto size = static_cast<int64_t>(block.texts.size());
  block.pairs.resize(block.texts.size());
  const auto encode_some = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      block.pairs[i] = heed::encode(block.texts[i], tokenizers_, options_);
  };
  if (threads == Threads::all)
    parallel_for(size, kGrain, encode_some);
  else
    encode_some(0, size);
}

CleaningReport Corpus::look(int64_t most) const {
  if (only_) return report();
  CleaningReport found;
  found.name = report_.name, found.limits = options_, found.pairs = report_.pairs;
  const int64_t each = options_.held_out ? options_.held_out->each() : 1;
  const std::vector<LineRun> runs = here_and_there(report_.pairs, most, is_held_out() ? 1 : each);
  PairReader reader = index_->at(0);
  Block block;
  const auto flush = [&] {
    encode(block, Threads::all);
    block.report(tokenizers_, found);
    block = {};
  };
  for (const LineRun& run : runs)
    for (int64_t i = run.first; i < run.first + run.count; ++i) {
      index_->go(reader, is_held_out() ? options_.held_out->first() - 1 + i * each : i);
      if (auto pair = reader.next()) block.texts.push_back(std::move(*pair));
      if (std::ssize(block.texts) == kBlock) flush();
    }
  flush();
  return found;
}

std::shared_ptr<const CorpusWindow> Corpus::read_window(const std::vector<LineRun>& lines,
                                                        PairReader& reader, Threads threads,
                                                        const std::atomic<bool>& stop,
                                                        CleaningReport& found) const {
  auto window = std::make_shared<CorpusWindow>();
  Block block;
  const auto flush = [&] {
    encode(block, threads);
    block.report(tokenizers_, found);
    for (size_t i = 0; i < block.pairs.size(); ++i)
      if (const Encoded& pair = block.pairs[i]; is_kept(pair))
        window->add({.source = pair.source.ids,
                     .target = pair.target.ids,
                     .links = pair.links,
                     .line = block.texts[i].line});
    block = {};
  };
  const int64_t each = is_held_out() ? options_.held_out->each() : 1;
  const int64_t first = is_held_out() ? options_.held_out->first() : 1;
  for (const LineRun& run : lines) {
    // The first line of it that is wanted, and then every one.
    int64_t line = first + std::max<int64_t>(0, run.first + each - first) / each * each;
    for (; line <= run.first + run.count; line += each) {
      index_->go(reader, line - 1);
      auto pair = reader.next();
      if (!pair) fail(name_of(files()), ": has become shorter while it was being read");
      block.texts.push_back(std::move(*pair));
      if (std::ssize(block.texts) < kBlock) continue;
      if (stop) return nullptr;
      flush();
    }
  }
  flush();
  return window;
}

CleaningReport Corpus::report() const {
  const std::lock_guard lock(reporting_);
  return report_;
}

}  // namespace heed
