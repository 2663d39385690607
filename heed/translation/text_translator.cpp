#include "heed/translation/text_translator.h"

#include <algorithm>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

struct Piece {
  size_t text = 0, begin = 0, end = 0;  // bytes of text number `text`
};

}  // namespace

TextTranslator::TextTranslator(Translator translator) : translator_(std::move(translator)) {}

std::vector<TranslatedText> TextTranslator::translate(const std::vector<std::string>& texts,
                                                      const TextOptions& options) const {
  std::vector<Piece> pieces;
  std::vector<std::string> lines;
  TranslateOptions o = options.translate;
  for (size_t n = 0; n < texts.size(); ++n) {
    const std::string& text = texts[n];
    if (const auto trouble = encoding_trouble(text)) fail("text ", n + 1, ": ", *trouble);
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find('\n', at), text.size());
      const size_t next = end + 1;
      while (at < end && is_space(text[at])) ++at;
      while (end > at && is_space(text[end - 1])) --end;
      if (end > at) {
        pieces.push_back({n, at, end});
        lines.push_back(text.substr(at, end - at));
      }
      at = next;
    }
  }
  o.search.best = std::max<int64_t>(o.search.best, options.alternatives + 1);
  o.search.beam = std::max(o.search.beam, o.search.best);
  std::vector<Translation> found = translator_.translate(lines, o);
  std::vector<TranslatedText> out(texts.size());
  const auto whole = [&](size_t rank) {
    std::vector<std::string> written(texts.size());
    std::vector<size_t> done(texts.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& p = pieces[i];
      std::string& text = written[p.text];
      text += texts[p.text].substr(done[p.text], p.begin - done[p.text]);
      const auto& all = found[i].candidates;
      const size_t begin = text.size();
      text += all[std::min(rank, all.size() - 1)].text;
      done[p.text] = p.end;
      if (rank == 0)
        out[p.text].parts.push_back({p.begin, p.end, begin, text.size(), found[i], all[0].score});
    }
    for (size_t n = 0; n < texts.size(); ++n) written[n] += texts[n].substr(done[n]);
    return written;
  };
  std::vector<std::string> best = whole(0);
  for (size_t n = 0; n < texts.size(); ++n) out[n].text = std::move(best[n]);
  for (int64_t k = 1; k <= options.alternatives; ++k) {
    std::vector<std::string> next = whole(static_cast<size_t>(k));
    for (size_t n = 0; n < texts.size(); ++n) {
      auto& all = out[n].alternatives;
      if (next[n] != out[n].text && std::find(all.begin(), all.end(), next[n]) == all.end())
        all.push_back(std::move(next[n]));
    }
  }
  return out;
}

}  // namespace heed
