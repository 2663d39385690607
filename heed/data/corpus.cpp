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

std::string name_of(const CorpusFiles& files) {
  return files.target.empty() ? files.source : files.source + ", " + files.target;
}

std::string several(int64_t count, const std::string& one, const std::string& many) {
  return grouped(count) + " " + (count == 1 ? one : many);
}

}  // namespace

std::optional<std::string> first_bad_line(const CorpusFiles& files) {
  for (const std::string& path : {files.source, files.target})
    if (!path.empty())
      if (const std::optional<std::string> bad = first_bad_line(path)) return bad;
  return {};
}

PairReader::PairReader(const CorpusFiles& files, const Position& position)
    : source_(files.source, position.source) {
  if (!files.target.empty()) target_.emplace(files.target, position.target);
  if (!files.alignment.empty()) alignment_.emplace(files.alignment, position.alignment);
}

std::optional<TextPair> PairReader::next() {
  auto source = source_.next();
  if (!source) return std::nullopt;
  TextPair pair;
  pair.line = static_cast<int64_t>(source_.position().line);
  if (target_) {
    auto target = target_->next();
    if (!target) return std::nullopt;
    pair.source = std::move(*source);
    pair.target = std::move(*target);
  } else {
    const std::vector<std::string_view> columns = split_fields(*source, '\t');
    pair.torn = columns.size() < 2;
    pair.source = columns[0];
    if (!pair.torn) pair.target = columns[1];
  }
  if (alignment_) {
    auto alignment = alignment_->next();
    if (!alignment) return std::nullopt;
    pair.alignment = std::move(*alignment);
  }
  return pair;
}

void PairReader::skip(uint64_t count) {
  source_.skip(count);
  if (target_) target_->skip(count);
  if (alignment_) alignment_->skip(count);
}

PairReader::Position PairReader::position() const {
  Position position{.source = source_.position(), .target = {}, .alignment = {}};
  if (target_) position.target = target_->position();
  if (alignment_) position.alignment = alignment_->position();
  return position;
}

TextStream texts(const CorpusFiles& files, Side side) {
  // Shared, because a std::function must be copyable.
  auto reader = std::make_shared<PairReader>(
      CorpusFiles{.source = files.source, .target = files.target, .alignment = {}});
  return [reader, side, held = std::optional<std::string>()]() mutable {
    if (held) return std::exchange(held, std::nullopt);
    auto pair = reader->next();
    if (!pair) return std::optional<std::string>();
    if (side == Side::both) held = std::move(pair->target);
    return std::optional(std::move(side == Side::target ? pair->target : pair->source));
  };
}

// ---- what is held out

HeldOut::HeldOut(const CorpusFiles& files, int64_t each) : each_(each) {
  require(each >= 2, name_of(files), ": of every ", each, " lines none can be held out");
  PairReader reader({.source = files.source, .target = files.target, .alignment = {}});
  const std::hash<std::string> hash;
  while (const std::optional<TextPair> pair = reader.next())
    if (chosen(pair->line))
      sources_.insert(hash(pair->source)), targets_.insert(hash(pair->target));
  require(!sources_.empty(), name_of(files), ": has fewer than ", each / 2, " lines; of every ",
          each, " none is there to be held out");
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

CorpusLength compare_lengths(const CorpusFiles& files, CorpusOptions::Surplus surplus) {
  struct Counted {
    std::string path;
    int64_t lines;
  };
  std::vector<Counted> counted;
  for (const std::string& path : {files.source, files.target, files.alignment})
    if (!path.empty()) counted.push_back({path, count_lines(path)});
  require(!counted.empty(), "corpus: no files were given");
  const auto by_lines = [](const Counted& a, const Counted& b) { return a.lines < b.lines; };
  const auto [fewest, most] = std::minmax_element(counted.begin(), counted.end(), by_lines);
  require(most->lines > 0, name_of(files), ": empty; one sentence a line was wanted");
  const CorpusLength length{.lines = fewest->lines, .surplus = most->lines - fewest->lines};
  require(length.surplus == 0 || surplus == CorpusOptions::Surplus::cut, most->path, " has ",
          grouped(most->lines), " lines and ", fewest->path, " ", grouped(fewest->lines),
          ": they are no translations of each other line by line; mend the files, or have the ",
          "surplus cut (--cut)");
  require(length.lines > 0, fewest->path, ": empty; one sentence a line was wanted");
  return length;
}

Corpus::Corpus(CorpusFiles files, TokenizerPair tokenizers, CorpusOptions options)
    : files_(std::move(files)), tokenizers_(std::move(tokenizers)), options_(options) {
  report_.name = name_of(files_) + (is_held_out() ? ", held out" : "");
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
  const CorpusLength length = compare_lengths(files_, options_.surplus);
  report_.pairs = lines_ = length.lines;
  if (length.surplus > 0) report_.add(Flaw::surplus, lines_ + 1, length.surplus);
  if (is_held_out()) {
    const HeldOut& held_out = *options_.held_out;
    report_.pairs = (lines_ - held_out.first() + held_out.each()) / held_out.each();
  }
  starts_.push_back(PairReader(files_).position());
  if (windows() > 1) return;
  only_ = read_window(0, Threads::all, false);
  if (only_->size() == 0)
    fail("nothing is left to learn from:\n", report_.text(), first_bad_line(files_).value_or(""));
}

bool Corpus::is_held_out() const {
  return options_.held_out && options_.part == CorpusOptions::Part::held_out;
}

// Of a corpus that is streamed the pieces are not known yet: what is told apart are the limits.
std::string Corpus::identity() const {
  std::ostringstream out;
  out << lines_ << " lines";
  if (only_) {
    PieceHash hash;
    for (int64_t i = 0; i < only_->size(); ++i)
      hash.add((*only_)[i].source), hash.add((*only_)[i].target);
    out << ", " << only_->size() << " kept, " << hash.text();
    if (options_.sampling > 0) out << ", drawn up to " << options_.max_length << " pieces";
  } else {
    out << " of at most " << options_.max_length << " pieces, ratio " << options_.max_ratio
        << ", in windows of " << options_.window;
    if (options_.held_out) out << ", one of " << options_.held_out->each() << " held out";
  }
  return out.str();
}

std::shared_ptr<const CorpusWindow> Corpus::window(int64_t n, const std::atomic<bool>& stop) {
  require(n >= 0 && n < windows(), name_of(files_), ": no window ", n, "; there are ", windows());
  if (only_) return only_;
  const std::lock_guard lock(reading_);
  // On this thread alone: while a model trains, the pool is its own.
  return read_window(n, Threads::one, stop);
}

std::shared_ptr<const CorpusWindow> Corpus::window_of(int64_t epoch, int64_t n,
                                                      const std::atomic<bool>& stop) {
  auto plain = window(n, stop);
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
  int64_t line = 1, every = std::max<int64_t>(1, report_.pairs / most);
  if (is_held_out())
    line = options_.held_out->first(), every *= options_.held_out->each();
  else if (options_.held_out)  // as many of those as there are, neither all nor none
    while (std::gcd(every, options_.held_out->each()) > 1) ++every;
  PairReader reader(files_);
  reader.skip(static_cast<uint64_t>(line - 1));
  while (line <= lines_) {
    Block block;
    for (; line <= lines_ && static_cast<int64_t>(block.texts.size()) < kBlock; line += every) {
      if (auto pair = reader.next()) block.texts.push_back(std::move(*pair));
      reader.skip(static_cast<uint64_t>(every - 1));
    }
    encode(block, Threads::all);
    block.report(tokenizers_, found);
  }
  return found;
}

std::shared_ptr<const CorpusWindow> Corpus::read_window(int64_t n, Threads threads,
                                                        const std::atomic<bool>& stop) {
  const int64_t known = std::min(n, static_cast<int64_t>(starts_.size()) - 1);
  PairReader reader(files_, starts_[static_cast<size_t>(known)]);
  reader.skip(static_cast<uint64_t>((n - known) * options_.window));

  CleaningReport found;
  auto window = std::make_shared<CorpusWindow>();
  int64_t left = std::min(options_.window, lines_ - n * options_.window);
  while (left > 0) {
    if (stop) return nullptr;
    Block block;
    while (static_cast<int64_t>(block.texts.size()) < kBlock && left > 0) {
      auto pair = reader.next();
      if (!pair) fail(name_of(files_), ": has become shorter while it was being read");
      --left;
      if (is_held_out() && !options_.held_out->chosen(pair->line)) continue;
      block.texts.push_back(std::move(*pair));
    }
    encode(block, threads);
    block.report(tokenizers_, found);
    for (size_t i = 0; i < block.pairs.size(); ++i)
      if (const Encoded& pair = block.pairs[i]; is_kept(pair))
        window->add({.source = pair.source.ids,
                     .target = pair.target.ids,
                     .links = pair.links,
                     .line = block.texts[i].line});
  }
  if (static_cast<int64_t>(starts_.size()) == n + 1) starts_.push_back(reader.position());
  if (n == reported_) {  // and not a second time in the next epoch
    ++reported_;
    const std::lock_guard lock(reporting_);
    report_.add(found);
  }
  return window;
}

CleaningReport Corpus::report() const {
  const std::lock_guard lock(reporting_);
  return report_;
}

}  // namespace heed
