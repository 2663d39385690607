#include "heed/alignment/added_counts.h"

#include <algorithm>
#include <cmath>

namespace heed {
namespace {

enum Form : uint8_t { kAlike, kAll, kSome };

// kSome: how many zeros come before a code, then the code; kGap: so many zeros and no code. Zeros
// at the end are followed by a code of 0.
constexpr uint8_t kGap = 255;

}  // namespace

PosteriorCode::PosteriorCode(uint32_t unit) {
  for (uint32_t code = 1; code <= kLast; ++code) {
    posterior_[code] = std::bit_cast<float>((code - 1 + kFirst) << 19);
    units_[code] = std::max<uint32_t>(
        1, static_cast<uint32_t>(std::lround(posterior_[code] * static_cast<float>(unit))));
  }
}

void pack(std::span<const uint8_t> codes, std::vector<uint8_t>& bytes) {
  const size_t begin = bytes.size();
  if (std::ranges::all_of(codes, [&](uint8_t code) { return code == codes[0]; })) {
    bytes.insert(bytes.end(), {kAlike, codes.empty() ? uint8_t{0} : codes[0]});
    return;
  }
  bytes.push_back(kSome);
  size_t zeros = 0;
  for (const uint8_t code : codes) {
    if (code == 0) {
      if (++zeros == kGap) bytes.push_back(kGap), zeros = 0;
    } else {
      bytes.insert(bytes.end(), {static_cast<uint8_t>(zeros), code});
      zeros = 0;
    }
    if (bytes.size() - begin <= codes.size()) continue;
    bytes.resize(begin);
    bytes.push_back(kAll);
    bytes.insert(bytes.end(), codes.begin(), codes.end());
    return;
  }
  if (zeros > 0) bytes.insert(bytes.end(), {static_cast<uint8_t>(zeros), 0});
}

const uint8_t* unpack(const uint8_t* bytes, std::span<uint8_t> codes) {
  const uint8_t form = *bytes++;
  if (form == kAlike) {
    std::ranges::fill(codes, *bytes);
    return bytes + 1;
  }
  if (form == kAll) {
    std::copy_n(bytes, codes.size(), codes.begin());
    return bytes + codes.size();
  }
  std::ranges::fill(codes, uint8_t{0});
  for (size_t at = 0; at < codes.size();) {
    const uint8_t zeros = *bytes++;
    at += zeros;
    if (zeros == kGap) continue;
    if (const uint8_t code = *bytes++) codes[at++] = code;
  }
  return bytes;
}

}  // namespace heed
