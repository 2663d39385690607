#include "heed/serve/languages.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "heed/base/unicode.h"

namespace heed::serve {
namespace {

const std::map<std::string_view, std::string_view> kAliases = {{"zh", "zh-Hans"},
                                                               {"zh-cn", "zh-Hans"},
                                                               {"zh-sg", "zh-Hans"},
                                                               {"zh-hans", "zh-Hans"},
                                                               {"zt", "zh-Hant"},
                                                               {"zh-tw", "zh-Hant"},
                                                               {"zh-hk", "zh-Hant"},
                                                               {"zh-hant", "zh-Hant"},
                                                               {"pb", "pt-BR"},
                                                               {"pt-br", "pt-BR"},
                                                               {"no", "nb"},
                                                               {"iw", "he"},
                                                               {"zh-hant-tw", "zh-Hant"},
                                                               {"zh-hans-cn", "zh-Hans"}};

const std::map<std::string_view, std::string_view> kNames = {{"af", "Afrikaans"},
                                                             {"am", "Amharic"},
                                                             {"ar", "Arabic"},
                                                             {"az", "Azerbaijani"},
                                                             {"be", "Belarusian"},
                                                             {"bg", "Bulgarian"},
                                                             {"bn", "Bengali"},
                                                             {"br", "Breton"},
                                                             {"bs", "Bosnian"},
                                                             {"ca", "Catalan"},
                                                             {"cs", "Czech"},
                                                             {"cy", "Welsh"},
                                                             {"da", "Danish"},
                                                             {"de", "German"},
                                                             {"el", "Greek"},
                                                             {"en", "English"},
                                                             {"eo", "Esperanto"},
                                                             {"es", "Spanish"},
                                                             {"et", "Estonian"},
                                                             {"eu", "Basque"},
                                                             {"fa", "Persian"},
                                                             {"fi", "Finnish"},
                                                             {"fo", "Faroese"},
                                                             {"fr", "French"},
                                                             {"fy", "Frisian"},
                                                             {"ga", "Irish"},
                                                             {"gd", "Scottish Gaelic"},
                                                             {"gl", "Galician"},
                                                             {"gu", "Gujarati"},
                                                             {"ha", "Hausa"},
                                                             {"he", "Hebrew"},
                                                             {"hi", "Hindi"},
                                                             {"hr", "Croatian"},
                                                             {"ht", "Haitian Creole"},
                                                             {"hu", "Hungarian"},
                                                             {"hy", "Armenian"},
                                                             {"id", "Indonesian"},
                                                             {"ig", "Igbo"},
                                                             {"is", "Icelandic"},
                                                             {"it", "Italian"},
                                                             {"ja", "Japanese"},
                                                             {"jv", "Javanese"},
                                                             {"ka", "Georgian"},
                                                             {"kab", "Kabyle"},
                                                             {"kk", "Kazakh"},
                                                             {"km", "Khmer"},
                                                             {"kn", "Kannada"},
                                                             {"ko", "Korean"},
                                                             {"ku", "Kurdish"},
                                                             {"ky", "Kyrgyz"},
                                                             {"la", "Latin"},
                                                             {"lb", "Luxembourgish"},
                                                             {"lo", "Lao"},
                                                             {"lt", "Lithuanian"},
                                                             {"lv", "Latvian"},
                                                             {"mg", "Malagasy"},
                                                             {"mi", "Maori"},
                                                             {"mk", "Macedonian"},
                                                             {"ml", "Malayalam"},
                                                             {"mn", "Mongolian"},
                                                             {"mr", "Marathi"},
                                                             {"ms", "Malay"},
                                                             {"mt", "Maltese"},
                                                             {"my", "Burmese"},
                                                             {"nb", "Norwegian"},
                                                             {"ne", "Nepali"},
                                                             {"nl", "Dutch"},
                                                             {"nn", "Norwegian Nynorsk"},
                                                             {"oc", "Occitan"},
                                                             {"pa", "Punjabi"},
                                                             {"pl", "Polish"},
                                                             {"ps", "Pashto"},
                                                             {"pt", "Portuguese"},
                                                             {"pt-BR", "Portuguese (Brazil)"},
                                                             {"ro", "Romanian"},
                                                             {"ru", "Russian"},
                                                             {"sd", "Sindhi"},
                                                             {"si", "Sinhala"},
                                                             {"sk", "Slovak"},
                                                             {"sl", "Slovenian"},
                                                             {"so", "Somali"},
                                                             {"sq", "Albanian"},
                                                             {"sr", "Serbian"},
                                                             {"su", "Sundanese"},
                                                             {"sv", "Swedish"},
                                                             {"sw", "Swahili"},
                                                             {"ta", "Tamil"},
                                                             {"te", "Telugu"},
                                                             {"tg", "Tajik"},
                                                             {"th", "Thai"},
                                                             {"tk", "Turkmen"},
                                                             {"tl", "Tagalog"},
                                                             {"tr", "Turkish"},
                                                             {"tt", "Tatar"},
                                                             {"ug", "Uyghur"},
                                                             {"uk", "Ukrainian"},
                                                             {"ur", "Urdu"},
                                                             {"uz", "Uzbek"},
                                                             {"vi", "Vietnamese"},
                                                             {"xh", "Xhosa"},
                                                             {"yi", "Yiddish"},
                                                             {"yo", "Yoruba"},
                                                             {"zh-Hans", "Chinese"},
                                                             {"zh-Hant", "Chinese (traditional)"},
                                                             {"zu", "Zulu"}};

}  // namespace

std::string language_code(std::string_view given) {
  std::string code(given);
  for (char& c : code) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  const auto alias = kAliases.find(code);
  return alias == kAliases.end() ? code : std::string(alias->second);
}

std::string language_name(std::string_view code) {
  const auto at = kNames.find(code);
  return std::string(at == kNames.end() ? code : at->second);
}

std::vector<Detected> detect_languages(std::string_view text,
                                       const std::vector<std::string>& known) {
  if (text.size() > std::numeric_limits<int>::max() / 2) text = text.substr(0, 1 << 20);
  std::array<CLD2::Language, 3> found{};
  std::array<int, 3> percent{};
  std::array<double, 3> scores{};
  CLD2::CLDHints hints{nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  int bytes = 0, valid = 0;
  bool reliable = false;
  const std::string whole(text);  // it looks at the byte after the last
  // Short texts too, of which the best guess is better than none (kCLDFlagBestEffort).
  CLD2::ExtDetectLanguageSummaryCheckUTF8(whole.c_str(), static_cast<int>(whole.size()),
                                          /*is_plain_text=*/true, &hints, CLD2::kCLDFlagBestEffort,
                                          found.data(), percent.data(), scores.data(), nullptr,
                                          &bytes, &reliable, &valid);
  const auto has = [&](const std::string& code) {
    return std::find(known.begin(), known.end(), code) != known.end();
  };
  std::vector<Detected> out;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == CLD2::UNKNOWN_LANGUAGE || percent[i] <= 0) continue;
    std::string code = language_code(CLD2::LanguageCode(found[i]));
    // Those of one language that are not told apart stand for each other.
    for (const auto& [a, b] : {std::pair("pt", "pt-BR"), std::pair("zh-Hans", "zh-Hant"),
                               std::pair("pt-BR", "pt"), std::pair("zh-Hant", "zh-Hans")})
      if (code == a && !has(a) && has(b)) {
        code = b;
        break;
      }
    if (!has(code)) continue;
    const bool twice =
        std::any_of(out.begin(), out.end(), [&](const Detected& d) { return d.language == code; });
    if (!twice) out.push_back({code, double(percent[i])});
  }
  return out;
}

bool has_no_words(std::string_view text) {
  for (const char32_t c : decode_utf8(text)) {
    const bool emoji = (c >= 0x1F000 && c <= 0x1FAFF) || (c >= 0x2600 && c <= 0x27BF) ||
                       (c >= 0x2300 && c <= 0x23FF) || (c >= 0x2B00 && c <= 0x2BFF) ||
                       c == 0x200D || (c >= 0xFE00 && c <= 0xFE0F) ||
                       (c >= 0xE0020 && c <= 0xE007F);
    if (!emoji && !is_white_space(c)) return false;
  }
  return true;
}

}  // namespace heed::serve
