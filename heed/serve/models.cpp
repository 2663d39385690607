#include "heed/serve/models.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "heed/base/check.h"
#include "heed/serve/languages.h"

namespace heed::serve {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

// When the files of a folder were written: another one, another model.
std::string version_of(const fs::path& folder) {
  std::string out;
  std::error_code failed;
  for (const char* name : {"config.json", "model.safetensors"}) {
    const fs::path file = folder / name;
    const auto size = fs::file_size(file, failed);
    out += failed ? "-" : std::to_string(size);
    const auto time = fs::last_write_time(file, failed);
    out += failed ? "-" : " " + std::to_string(time.time_since_epoch().count()) + " ";
  }
  return out;
}

}  // namespace

struct Models::Entry {
  std::mutex loading;  // held by who loads it
  mutable std::mutex mutex;
  std::shared_ptr<const TextTranslator> translator;
  std::string version;  // what is loaded
  std::string seen;     // what was there when tend() last looked
  Clock::time_point used = Clock::now();
};

LanguagePair parse_pair(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string languages = text.substr(0, equals);
  const char between = languages.find(':') != std::string::npos ? ':' : '-';
  const size_t at = languages.find(between);
  require(
      equals != std::string::npos && equals + 1 < text.size() && at != std::string::npos &&
          at > 0 && at + 1 < languages.size() &&
          languages.find(between, at + 1) == std::string::npos,
      "serve: a model is given as two languages and a folder, en-fr=FOLDER or zh-Hans:en=FOLDER;"
      " given '",
      text, "'");
  return {language_code(languages.substr(0, at)), language_code(languages.substr(at + 1)),
          text.substr(equals + 1)};
}

Models::Models(std::vector<LanguagePair> pairs, Options options)
    : pairs_(std::move(pairs)), options_(std::move(options)) {
  require(!pairs_.empty(), "serve: at least one model is wanted");
  for (const LanguagePair& p : pairs_) {
    require(p.source != p.target, "serve: a model from ", p.source, " to itself");
    require(fs::exists(p.folder / "config.json"), p.folder.string(),
            ": there is no such model folder");
    entries_.push_back(std::make_unique<Entry>());
  }
}
Models::~Models() = default;

void Models::tell(const std::string& words) const {
  if (options_.told) options_.told(words);
}

std::vector<std::string> Models::languages() const {
  std::set<std::string> codes;
  for (const LanguagePair& p : pairs_) codes.insert({p.source, p.target});
  std::vector<std::string> out(codes.begin(), codes.end());
  std::stable_sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return language_name(a) < language_name(b);
  });
  return out;
}

std::optional<std::string> Models::find(const std::string& given) const {
  const std::vector<std::string> all = languages();
  const auto has = [&](const std::string& code) {
    return std::find(all.begin(), all.end(), code) != all.end();
  };
  const std::string code = language_code(given);
  if (has(code)) return code;
  // Brazil's Portuguese is Portuguese, and English of the States is English.
  const std::string base = language_code(code.substr(0, code.find('-')));
  if (base != code && has(base)) return base;
  if (code == "pt" && has("pt-BR")) return "pt-BR";
  return std::nullopt;
}

std::optional<std::vector<size_t>> Models::way(const std::string& source,
                                               const std::string& target) const {
  if (source == target) return std::vector<size_t>{};
  const auto direct = [&](const std::string& a, const std::string& b) -> std::optional<size_t> {
    for (size_t i = 0; i < pairs_.size(); ++i)
      if (pairs_[i].source == a && pairs_[i].target == b) return i;
    return std::nullopt;
  };
  if (const auto one = direct(source, target)) return std::vector<size_t>{*one};
  if (options_.pivot.empty()) return std::nullopt;
  const std::string pivot = language_code(options_.pivot);
  const auto first = direct(source, pivot), second = direct(pivot, target);
  if (!first || !second) return std::nullopt;
  return std::vector<size_t>{*first, *second};
}

std::vector<std::string> Models::targets(const std::string& source) const {
  std::vector<std::string> out;
  for (const std::string& target : languages())
    if (way(source, target)) out.push_back(target);
  std::sort(out.begin(), out.end());
  return out;
}

// With Entry::loading held.
void Models::load(size_t model, Entry& entry) {
  const auto begin = Clock::now();
  const LanguagePair& p = pairs_[model];
  const std::string version = version_of(p.folder);
  LoadedModel::Options how = options_.load;
  how.own_thread = true;
  auto made = std::make_shared<const TextTranslator>(Translator(LoadedModel::open(p.folder, how)));
  {
    const std::lock_guard lock(entry.mutex);
    entry.translator.swap(made);
    entry.version = entry.seen = version;
    entry.used = Clock::now();
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  tell("model " + p.source + "-" + p.target + (made ? " replaced in " : " loaded in ") +
       std::to_string(took.count()) + " ms from " + p.folder.string());
}

std::shared_ptr<const TextTranslator> Models::loaded(size_t model) const {
  const Entry& entry = *entries_.at(model);
  const std::lock_guard lock(entry.mutex);
  return entry.translator;
}

std::shared_ptr<const TextTranslator> Models::use(size_t model) {
  Entry& entry = *entries_.at(model);
  const auto get = [&] {
    const std::lock_guard lock(entry.mutex);
    entry.used = Clock::now();
    return entry.translator;
  };
  if (auto translator = get()) return translator;
  const std::lock_guard turn(entry.loading);  // of many that ask at once one loads it
  if (auto translator = get()) return translator;
  load(model, entry);
  return get();
}

void Models::load_all() {
  for (size_t i = 0; i < entries_.size(); ++i) use(i);
}

void Models::reload() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    const std::lock_guard turn(entry.loading);
    if (!loaded(i)) continue;
    try {
      load(i, entry);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(entry.mutex);
        entry.version = version_of(pairs_[i].folder);  // not tried again before it changes again
      }
      tell("model " + pairs_[i].source + "-" + pairs_[i].target +
           " stays as it was: " + error.what());
    }
  }
}

void Models::tend() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    std::shared_ptr<const TextTranslator> dropped;  // outside of the lock
    bool changed = false;
    {
      const std::lock_guard lock(entry.mutex);
      if (!entry.translator) continue;
      const bool idle = entry.translator.use_count() == 1;
      if (options_.unload_after.count() > 0 && idle &&
          Clock::now() - entry.used > options_.unload_after) {
        dropped.swap(entry.translator);
      } else {
        // A folder that is being written is left alone until it has rested for one look.
        const std::string now = version_of(pairs_[i].folder);
        changed = now != entry.version && now == entry.seen;
        entry.seen = now;
      }
    }
    const std::string name = "model " + pairs_[i].source + "-" + pairs_[i].target;
    if (dropped) tell(name + " dropped: not used for a while");
    if (!changed) continue;
    const std::lock_guard turn(entry.loading);
    try {
      load(i, entry);
    } catch (const std::exception& error) {
      const std::lock_guard lock(entry.mutex);
      entry.version = entry.seen;
      tell(name + " stays as it was: " + error.what());
    }
  }
}

}  // namespace heed::serve
