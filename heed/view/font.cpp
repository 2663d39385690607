#include "heed/view/font.h"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <optional>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/view/embedded.h"
#include "heed/view/label.h"

namespace heed {
namespace {

constexpr int kScale = 2;     // dots of a picture for each of the font's
constexpr size_t kRows = 12;  // of a glyph
constexpr size_t kPitch = 6;  // from one glyph of a band to the next
constexpr int kLowering = 2;  // of accents over small letters

using Glyph = std::array<uint8_t, kRows>;  // 5 bits a row, the leftmost is 16

struct Font {
  std::map<char32_t, Glyph> letters, marks;  // marks: combining accents
};

Glyph with_mark(Glyph letter, const Glyph& mark) {
  const bool small = letter[3] == 0 && letter[4] == 0;
  for (size_t row = 0; row < kRows; ++row) {
    const bool above = row < 3;
    if (mark[row]) letter[row + (small && above ? kLowering : 0)] |= mark[row];
  }
  return letter;
}

std::vector<std::u32string> lines_of(std::string_view text) {
  std::vector<std::u32string> lines(1);
  for (const char32_t c : decode_utf8(text)) {
    if (c == U'\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  return lines;
}

bool is_art(const std::u32string& line) {
  return !line.empty() && line.find_first_not_of(U".# ") == line.npos;
}

Font read_font() {
  const std::vector<std::u32string> lines = lines_of(kFontTxt);
  Font font;
  for (size_t i = 0; i + kRows < lines.size(); ++i) {
    if (is_art(lines[i]) || !is_art(lines[i + 1])) continue;
    for (size_t at = 0; at < lines[i].size(); at += kPitch) {
      Glyph& glyph = font.letters[lines[i][at]];
      for (size_t row = 0; row < kRows; ++row)
        for (size_t x = 0; x < 5; ++x)
          if (lines[i + 1 + row][at + x] == U'#') glyph[row] |= static_cast<uint8_t>(16 >> x);
    }
  }
  font.letters[U' '] = font.letters[0xA0] = {};
  // "ˊ 0301 ÁA áa"
  for (const std::u32string& line : lines) {
    if (line.size() < 7 || line[1] != U' ' || line[2] != U'0' || line[6] != U' ') continue;
    const Glyph mark = font.letters.at(line[0]);
    font.marks[static_cast<char32_t>(std::stoi(encode_utf8(line.substr(2, 4)), nullptr, 16))] =
        mark;
    for (size_t at = 7; at + 1 < line.size(); at += 3)
      font.letters[line[at]] = with_mark(font.letters.at(line[at + 1]), mark);
  }
  return font;
}

// What is drawn for a letter and the accents after it; nothing if one of them is not known.
std::optional<Glyph> find_glyph(std::u32string_view cluster) {
  static const Font font = read_font();
  const auto letter = font.letters.find(cluster[0]);
  if (letter == font.letters.end()) return {};
  Glyph glyph = letter->second;
  for (const char32_t c : cluster.substr(1)) {
    const auto mark = font.marks.find(c);
    if (mark == font.marks.end()) return {};
    glyph = with_mark(glyph, mark->second);
  }
  return glyph;
}

// A digit of 3 times 5 dots is five octal digits.
constexpr int kHexDigits[] = {075557, 026227, 071747, 071717, 055711, 074717, 074757, 071122,
                              075757, 075717, 075755, 065656, 074447, 065556, 074747, 074744};

// The code in two rows of digits, framed; it has `width` dots.
void draw_box(Picture& picture, int left, int width, char32_t code) {
  const int across = code > 0xFFFF ? 3 : 2, box = std::min(width - 1, 4 * across + 3);
  const int top = 4, height = 15;
  for (int x = 0; x < box; ++x)
    picture.at(left + x, top) = picture.at(left + x, top + height - 1) = 1;
  for (int y = 0; y < height; ++y)
    picture.at(left, top + y) = picture.at(left + box - 1, top + y) = 1;
  for (int digit = 0; digit < 2 * across; ++digit) {
    const int value = static_cast<int>(code >> (4 * (2 * across - 1 - digit)) & 15);
    for (int bit = 0; bit < 15; ++bit)
      if (kHexDigits[value] >> (14 - bit) & 1)
        picture.at(left + 2 + digit % across * 4 + bit % 3,
                   top + 2 + digit / across * 6 + bit / 3) = 1;
  }
}

void draw_glyph(Picture& picture, int left, const Glyph& glyph) {
  for (int y = 0; y < kGlyphHeight; ++y)
    for (int x = 0; x < 5 * kScale; ++x)
      if (glyph[static_cast<size_t>(y / kScale)] >> (4 - x / kScale) & 1)
        picture.at(left + x, y) = 1;
}

// The characters of a text from left to right. One that reads from the right begins with its last,
// but numbers and foreign words within keep their order.
std::vector<std::string> in_drawn_order(std::string_view text) {
  std::vector<std::string> pieces = clusters(text);
  if (!reads_right_to_left(text)) return pieces;
  std::ranges::reverse(pieces);
  const auto turned = [](const std::string& piece) {
    return has_right_to_left(piece) || is_white_space(decode_utf8(piece)[0]);
  };
  for (auto begin = pieces.begin(); begin != pieces.end();) {
    begin = std::find_if_not(begin, pieces.end(), turned);
    const auto end = std::find_if(begin, pieces.end(), turned);
    std::reverse(begin, end);
    begin = end;
  }
  return pieces;
}

void put_number(std::string& out, size_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xFF);
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put_number(out, data.size());
  const std::string checked = std::string(type) + std::string(data);
  out += checked;
  put_number(out, crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                        static_cast<uInt>(checked.size())));
}

}  // namespace

Picture draw_text(std::string_view text) {
  const std::vector<std::string> pieces = in_drawn_order(text);
  struct Piece {
    std::u32string cluster;
    int columns;
  };
  std::vector<Piece> drawn;
  int columns = 0;
  for (const std::string& piece : pieces) {
    const std::u32string cluster = decode_utf8(piece);
    // Codes beyond U+FFFF have six digits.
    const int wide = std::max({1, columns_of(cluster[0]), cluster[0] > 0xFFFF ? 2 : 1});
    drawn.push_back({cluster, wide});
    columns += wide;
  }
  Picture picture(columns * kGlyphWidth, kGlyphHeight);
  int left = 0;
  for (const auto& [cluster, wide] : drawn) {
    if (const std::optional<Glyph> glyph = find_glyph(cluster))
      draw_glyph(picture, left, *glyph);
    else
      draw_box(picture, left, wide * kGlyphWidth, cluster[0]);
    left += wide * kGlyphWidth;
  }
  return picture;
}

std::string encode_png(const Picture& picture, std::span<const Rgb> palette) {
  std::string header, colors, rows;
  put_number(header, static_cast<size_t>(picture.width));
  put_number(header, static_cast<size_t>(picture.height));
  header += std::string("\x08\x03\0\0\0", 5);  // 8 bits a dot, a palette; nothing else is special
  for (const Rgb& color : palette)
    for (const uint8_t part : {color.red, color.green, color.blue})
      colors += static_cast<char>(part);
  for (int y = 0; y < picture.height; ++y) {
    rows += '\0';  // no filter
    const auto row = picture.dots.begin() + static_cast<ptrdiff_t>(y) * picture.width;
    rows.append(row, row + picture.width);
  }
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  const int result = compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                              reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  if (result != Z_OK) fail("PNG: zlib cannot compress the picture: ", zError(result));
  packed.resize(size);
  std::string out = "\x89PNG\r\n\x1a\n";
  put_chunk(out, "IHDR", header);
  put_chunk(out, "PLTE", colors);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", "");
  return out;
}

}  // namespace heed
