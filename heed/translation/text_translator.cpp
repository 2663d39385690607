#include "heed/translation/text_translator.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/text/characters.h"
#include "heed/text/document.h"

namespace heed {
namespace {

// Whether a tokenizer has a piece for a character, or only bytes or none.
class Alphabet {
 public:
  explicit Alphabet(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  bool knows(char32_t c) {
    const auto [found, is_new] = known_.try_emplace(c, true);
    if (is_new) {
      const std::vector<Id> ids = tokenizer_.encode(encode_utf8(std::u32string(1, c))).ids;
      found->second = std::none_of(ids.begin(), ids.end(), [&](Id id) {
        return id == tokenizer_.special().unknown || tokenizer_.piece(id).starts_with("<0x");
      });
    }
    return found->second;
  }

 private:
  const Tokenizer& tokenizer_;
  std::unordered_map<char32_t, bool> known_;
};

// A part of a text, and where its lines are among those of all.
struct Asked {
  size_t text = 0, part = 0, first = 0, count = 0;
};

// What a model wrote, as a line of text: pieces can be drawn that write a newline, or bytes that
// are no character.
std::string as_line(const std::string& written) {
  std::string text = repaired_utf8(written);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

TextTranslator::TextTranslator(Translator translator) : translator_(std::move(translator)) {
  const Tokenizer& source = *translator_.model().tokenizers.source;
  if (source.kind() != "words") return;
  for (Id id = 0; id < source.size(); ++id)
    for (const char32_t c : decode_utf8(repaired_utf8(source.piece(id)))) letters_.insert(c);
}

std::vector<TranslatedText> TextTranslator::translate(const std::vector<std::string>& texts,
                                                      const TextOptions& options) const {
  require(options.alternatives >= 0, "translate: alternatives are 0 or more, given ",
          options.alternatives);
  require(options.longest_part > 0, "translate: a part has at least one piece, given ",
          options.longest_part);
  require(options.translate.search.prefixes.empty(),
          "translate: a prefix is of a line; a text has none");
  const TokenizerPair& tokenizers = translator_.model().tokenizers;
  const bool by_word = tokenizers.source->kind() == "words";
  const bool attends = has_attention(translator_.model().config);
  TranslateOptions o = options.translate;
  Alphabet alphabet(*tokenizers.source);
  DocumentOptions how{
      .html = options.format == TextOptions::Format::html,
      .language = options.source_language,
      .longest = static_cast<size_t>(std::min(options.longest_part, translator_.longest(o))),
      .count_pieces =
          [&](std::string_view text) { return tokenizers.source->encode(text).ids.size(); },
      .knows = {}};
  // A model by words copies those that its vocabulary does not have, if it writes one for them at
  // all: what it could not even spell is kept.
  if (by_word)
    how.knows = [&](char32_t c) { return !is_letter(c) || letters_.contains(c); };
  else
    how.knows = [&](char32_t c) { return alphabet.knows(c); };
  // All lines of all texts at once. What is drawn depends on a line's place in its own text.
  std::vector<Document> documents;
  std::vector<Asked> asked;
  std::vector<std::string> lines;
  o.search.numbers.clear();
  for (size_t n = 0; n < texts.size(); ++n) {
    if (const auto trouble = encoding_trouble(texts[n])) fail("text ", n + 1, ": ", *trouble);
    documents.emplace_back(texts[n], how);
    int64_t number = o.first_line;
    for (size_t p = 0; p < documents[n].parts().size(); ++p) {
      const std::vector<std::string>& own = documents[n].parts()[p].lines;
      asked.push_back({n, p, lines.size(), own.size()});
      lines.insert(lines.end(), own.begin(), own.end());
      for (size_t k = 0; k < own.size(); ++k) o.search.numbers.push_back(number++);
    }
  }
  // Weights are always wanted, so that a text's translation does not depend on what others need.
  o.search.want_weights = attends;
  o.replace_unknown = attends && (tokenizers.target->kind() == "words" ||
                                  tokenizers.target->kind() == "characters");
  o.search.best = std::max<int64_t>(o.search.best, options.alternatives + 1);
  o.search.beam = std::max(o.search.beam, o.search.best);
  // Of the lines of a part the first is told of, by the part's number in its text.
  if (options.translate.partial) {
    std::map<size_t, size_t> part_of;
    for (const Asked& a : asked)
      if (a.count > 0) part_of[a.first] = a.part;
    o.partial = [&, part_of](size_t line, const std::string& so_far, const auto& grown) {
      if (const auto at = part_of.find(line); at != part_of.end())
        options.translate.partial(at->second, so_far, grown);
    };
  }
  std::vector<Translation> found = translator_.translate(lines, o);

  // The k-best of every part; the best of those that have fewer.
  const auto written = [&](size_t rank) {
    std::vector<std::vector<std::string>> parts(texts.size());
    std::vector<std::vector<size_t>> chosen(texts.size());
    for (const Asked& a : asked) {
      std::string& out = parts[a.text].emplace_back();
      size_t& line = chosen[a.text].emplace_back(0);
      if (a.count == 0) continue;
      std::vector<const Translation::Candidate*> candidates;
      std::vector<std::string> own;
      for (size_t k = 0; k < a.count; ++k) {
        const auto& all = found[a.first + k].candidates;
        candidates.push_back(&all[rank < all.size() ? rank : 0]);
        own.push_back(as_line(candidates.back()->text));
      }
      line = documents[a.text].choose(a.part, {own.begin(), own.end()});
      const Translation::Candidate& c = *candidates[line];
      const Links links = word_alignment(translator_.model(), found[a.first + line].source,
                                         c.target, c.weights, o.extract);
      out = documents[a.text].write(a.part, line, own[line], links);
    }
    std::vector<Document::Joined> joined;
    for (size_t n = 0; n < texts.size(); ++n) joined.push_back(documents[n].join(parts[n]));
    return std::pair(std::move(joined), std::move(chosen));
  };
  std::vector<TranslatedText> out(texts.size());
  auto [best, chosen] = written(0);
  for (const Asked& a : asked) {
    const TextSpan& source = documents[a.text].parts()[a.part].source;
    const TextSpan& target = best[a.text].places[a.part];
    TranslatedText::Part& part = out[a.text].parts.emplace_back();
    part.source_begin = source.begin, part.source_end = source.end;
    part.target_begin = target.begin, part.target_end = target.end;
  }
  for (size_t n = 0; n < texts.size(); ++n) out[n].text = std::move(best[n].text);
  for (int64_t k = 1; k <= std::min(options.alternatives, o.search.best - 1); ++k) {
    auto next = written(static_cast<size_t>(k)).first;
    for (size_t n = 0; n < texts.size(); ++n) {
      auto& all = out[n].alternatives;
      if (next[n].text != out[n].text &&
          std::find(all.begin(), all.end(), next[n].text) == all.end())
        all.push_back(std::move(next[n].text));
    }
  }
  for (const Asked& a : asked) {
    if (a.count == 0) continue;
    TranslatedText::Part& part = out[a.text].parts[a.part];
    part.translation = std::move(found[a.first + chosen[a.text][a.part]]);
    part.score = part.translation.best().score;
  }
  return out;
}

}  // namespace heed
