#include "heed/training/learnt_links.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <system_error>
#include <utility>

#include "heed/base/unicode.h"
#include "heed/files/atomic_file.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

// Each of a process has a file of its own: one that was given up may end late.
std::string file_in(const std::filesystem::path& folder) {
  static std::atomic<int> number = 0;
  return (folder / kLearntLinks).string() + ".tmp-" + std::to_string(::getpid()) + "-" +
         std::to_string(number++);
}

}  // namespace

LearntLinks::LearntLinks(const CorpusFiles& files, const CorpusIndex* valid,
                         const std::filesystem::path& folder, const Shown& progress)
    : path_(file_in(folder)) {
  std::vector<std::string> sources, targets;
  PairReader reader({.source = files.source, .target = files.target, .alignment = {}});
  while (std::optional<TextPair> pair = reader.next()) {
    const bool whole = !pair->torn && is_utf8(pair->source) && is_utf8(pair->target);
    sources.push_back(whole ? std::move(pair->source) : "");
    targets.push_back(whole ? std::move(pair->target) : "");
  }
  const size_t pairs = sources.size();
  if (valid) held_out_ = given_links(*valid, nullptr);
  sources.insert(sources.end(), held_out_.sources.begin(), held_out_.sources.end());
  targets.insert(targets.end(), held_out_.targets.begin(), held_out_.targets.end());
  LearntAlignment learnt = WordAligner::learn(
      sources, targets, {.threshold = 0.1f, .want_probabilities = true, .progress = progress});
  for (size_t i = pairs; i < learnt.links.size(); ++i)
    held_out_.links[i - pairs] = likely_links(std::move(learnt.links[i]));
  learnt.links.resize(pairs);
  AtomicFile file(path_);
  std::string text;
  double links = 0;
  for (const Links& of_pair : learnt.links) {
    for (const Link& link : of_pair) links += double(link.weight);
    text += to_pharaoh(of_pair) + '\n';
    if (text.size() > (1 << 20)) file.write(text), text.clear();
  }
  file.write(text);
  file.commit();
  char each[32];
  std::snprintf(each, sizeof each, "%.1f", links / double(std::max<size_t>(1, pairs)));
  told_ = "aligned " + std::to_string(pairs) + " pairs: " + each + " links each";
  if (learnt.too_long > 0)
    told_ += '\n' + std::to_string(learnt.too_long) +
             " lines are too long to be aligned; they teach nothing";
}

LearntLinks::~LearntLinks() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace heed
