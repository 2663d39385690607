// Whole texts, as people have them: cut into sentences, translated, and put together again with
// their own spaces and line breaks. What must not change comes through unchanged: addresses,
// placeholders, emoji, numbers, and in HTML every tag (docs/text.md).
//
//   const TextTranslator translator{Translator("model")};
//   std::cout << translator.translate({"Hello. How are you?\n"})[0].text;
//
// All functions may be called from any number of threads at once, as those of Translator: sentences
// of all callers share its batches. The result of a text depends neither on the other texts nor on
// other callers. A copy shares the model.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "heed/translation/translator.h"

namespace heed {

struct TextOptions {
  // As for lines; there is no prefix. Progress counts what the model reads, which is more than the
  // parts where something is to be kept (text/document.h).
  TranslateOptions translate = {};
  enum class Format { text, html } format = Format::text;
  // Further whole translations, at most so many: number k has the (k+1)-best of every sentence.
  int64_t alternatives = 0;
  std::string source_language = {};  // "en", "pt-BR": whose abbreviations; empty: general rules
  // Pieces: a sentence that has more, or more than the model takes, is translated in parts. Models
  // are seldom good beyond what they were trained on.
  int64_t longest_part = 200;
};

struct TranslatedText {
  std::string text;
  std::vector<std::string> alternatives;  // best first, each once

  // A sentence, or a part of one that is longer than the model reads at once.
  struct Part {
    size_t source_begin = 0, source_end = 0;  // bytes of the text that was given
    size_t target_begin = 0, target_end = 0;  // bytes of `text`
    Translation translation = {};  // as Translator gives it; has no candidates if nothing was asked
    double score = 0;              // of its best candidate; 0 if the model was not asked
  };
  std::vector<Part> parts = {};  // in the order of the text
};

class TextTranslator {
 public:
  explicit TextTranslator(Translator translator);

  // In the order of the texts. Throws Error for a text that is not UTF-8.
  std::vector<TranslatedText> translate(const std::vector<std::string>& texts,
                                        const TextOptions& options = {}) const;

  const Translator& translator() const { return translator_; }

 private:
  Translator translator_;
  std::unordered_set<char32_t> letters_;  // of the words of a model by words
};

}  // namespace heed
