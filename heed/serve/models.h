// The models of a server, by the languages that they translate between: loaded when they are first
// asked for, dropped when nobody has for a while, replaced when their folder has changed. Whoever
// is translating goes on with the one that he has.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "heed/translation/text_translator.h"

namespace heed::serve {

struct LanguagePair {
  std::string source, target;  // codes (languages.h)
  std::filesystem::path folder;
};

// "en-fr=folder", or where a code has a dash itself "zh-Hans:en=folder". Throws Error.
LanguagePair parse_pair(const std::string& text);

class Models {
 public:
  struct Options {
    LoadedModel::Options load = {};
    std::chrono::milliseconds unload_after{0};  // 0: never
    std::string pivot = {};  // a language over which others are reached; none: ""
    std::function<void(const std::string&)> told = {};  // what happens to models, for a log
  };
  // Of several models of a pair the first translates; the others are there for who names them
  // (POST /v1/translate, `model`). Throws Error if a folder is not there.
  Models(std::vector<LanguagePair> pairs, Options options);
  ~Models();

  // All languages, by name; and those that one is translated into, itself among them, by code.
  std::vector<std::string> languages() const;
  std::vector<std::string> targets(const std::string& source) const;
  // The served language that a code means: "en-US" is "en" where that is all there is. Nothing if
  // it is not served.
  std::optional<std::string> find(const std::string& code) const;

  // Which models lead from one language to another: one, two by the pivot, none within a language.
  // Nothing if there is no way.
  std::optional<std::vector<size_t>> way(const std::string& source,
                                         const std::string& target) const;
  // Loads it if it is not. Throws Error that says what is wrong with it.
  std::shared_ptr<const TextTranslator> use(size_t model);
  // The one that is loaded, if it is; nothing is counted as a use.
  std::shared_ptr<const TextTranslator> loaded(size_t model) const;
  const std::vector<LanguagePair>& pairs() const { return pairs_; }

  void load_all();
  // Loads again what is loaded, then drops the old. What cannot be loaded stays as it was.
  void reload();
  // Now and then: drops what is not used, and loads again what has changed on the disk.
  void tend();

 private:
  struct Entry;
  void load(size_t model, Entry& entry);
  void tell(const std::string& words) const;

  const std::vector<LanguagePair> pairs_;
  const Options options_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace heed::serve
