#include "heed/data/opus_text.h"

#include <algorithm>
#include <utility>

#include "heed/base/unicode.h"

namespace heed {
namespace {

// As the script has them, its oddity (１) included.
constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
    {"，", ","}, {"。", ". "}, {"、", ","},  {"”", "\""},  {"“", "\""},  {"∶", ":"},
    {"：", ":"}, {"？", "?"},  {"《", "\""}, {"》", "\""}, {"）", ")"},  {"！", "!"},
    {"（", "("}, {"；", ";"},  {"１", "\""}, {"」", "\""}, {"「", "\""}, {"０", "0"},
    {"３", "3"}, {"２", "2"},  {"５", "5"},  {"６", "6"},  {"９", "9"},  {"７", "7"},
    {"８", "8"}, {"４", "4"},  {"．", ". "}, {"～", "~"},  {"’", "'"},   {"…", "..."},
    {"━", "-"},  {"〈", "<"},  {"〉", ">"},  {"【", "["},  {"】", "]"},  {"％", "%"}};

// Category C: control, format and private characters (those that Unicode has not assigned change
// from version to version, and are left).
constexpr std::pair<char32_t, char32_t> kOther[] = {
    {0x0, 0x1F},        {0x7F, 0x9F},        {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},      {0x70F, 0x70F},     {0x890, 0x891},
    {0x8E2, 0x8E2},     {0x180E, 0x180E},    {0x200B, 0x200F},   {0x202A, 0x202E},
    {0x2060, 0x2064},   {0x2066, 0x206F},    {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
    {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},  {0x110CD, 0x110CD}, {0x13430, 0x1343F},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},  {0xE0001, 0xE0001}, {0xE0020, 0xE007F},
    {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD}};

bool is_other(char32_t c) {
  return std::ranges::any_of(kOther, [&](const auto& r) { return c >= r.first && c <= r.second; });
}

}  // namespace

PlainText opus_text(std::string_view text) {
  PlainText out;
  const auto add = [&](std::string_view part, size_t at) {
    for (const char c : part) {
      if (c == ' ' && (out.text.empty() || out.text.back() == ' ')) continue;
      out.text += c;
      out.from.push_back(at);
    }
  };
  for (size_t at = 0; at < text.size();) {
    const size_t n = std::max<size_t>(1, character_bytes(text.substr(at)));
    const std::string_view character = text.substr(at, n);
    const auto* const found = std::ranges::find(
        kReplaced, character, &std::pair<std::string_view, std::string_view>::first);
    if (found != std::end(kReplaced))
      add(found->second, at);
    else if (const std::u32string code = decode_utf8(character);
             code.size() == 1 && code[0] != U'\n' && is_other(code[0]))
      add(" ", at);
    else
      add(character, at);
    at += n;
  }
  while (out.text.ends_with(' ')) out.text.pop_back(), out.from.pop_back();
  out.from.push_back(text.size());
  return out;
}

}  // namespace heed
