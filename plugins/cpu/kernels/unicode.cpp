#include "plugins/cpu/kernels/unicode.hpp"

namespace backplane::cpu {
namespace {

/// Capital letters [first, last], their small ones `distance` after them; with `pairs`, every second letter
/// of the range is a capital and its small one follows it.
struct CaseRange {
  char32_t first, last;
  std::int32_t distance;
  bool pairs;
};

constexpr CaseRange kRanges[] = {
    {U'A', U'Z', 32, false},   {0xC0, 0xD6, 32, false},     {0xD8, 0xDE, 32, false},
    {0x100, 0x12E, 1, true},   {0x132, 0x136, 1, true},     {0x139, 0x147, 1, true},
    {0x14A, 0x176, 1, true},   {0x178, 0x178, -121, false}, {0x179, 0x17D, 1, true},
    {0x1CD, 0x1DB, 1, true},   {0x1DE, 0x1EE, 1, true},     {0x1F8, 0x21E, 1, true},
    {0x222, 0x232, 1, true},   {0x386, 0x386, 38, false},   {0x388, 0x38A, 37, false},
    {0x38C, 0x38C, 64, false}, {0x38E, 0x38F, 63, false},   {0x391, 0x3A1, 32, false},
    {0x3A3, 0x3AB, 32, false}, {0x3D8, 0x3EE, 1, true},     {0x400, 0x40F, 80, false},
    {0x410, 0x42F, 32, false}, {0x460, 0x480, 1, true},     {0x48A, 0x4BE, 1, true},
    {0x4C1, 0x4CD, 1, true},   {0x4D0, 0x52E, 1, true},     {0x531, 0x556, 48, false},
    {0x1E00, 0x1E94, 1, true}, {0x1EA0, 0x1EFE, 1, true},   {0xFF21, 0xFF3A, 32, false},
};

/// The length of the sequence that starts with `lead`; 0 for none.
int sequence_length(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<std::uint8_t>(text[i]);
    const int length = sequence_length(lead);
    char32_t point = length == 1 ? lead : lead & (0x7FU >> length);
    bool valid = length > 0 && i + static_cast<std::size_t>(length) <= text.size();
    for (int k = 1; valid && k < length; ++k) {
      const auto next = static_cast<std::uint8_t>(text[i + static_cast<std::size_t>(k)]);
      valid = (next & 0xC0U) == 0x80U;
      point = (point << 6) | (next & 0x3FU);
    }
    points.push_back(valid ? point : lead);
    i += valid ? static_cast<std::size_t>(length) : 1;
  }
  return points;
}

std::string encode_utf8(std::u32string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (const char32_t point : text) {
    const auto tail = [&](int shift) {
      bytes.push_back(static_cast<char>(0x80U | ((point >> shift) & 0x3FU)));
    };
    if (point < 0x80) {
      bytes.push_back(static_cast<char>(point));
    } else if (point < 0x800) {
      bytes.push_back(static_cast<char>(0xC0U | (point >> 6)));
      tail(0);
    } else if (point < 0x10000) {
      bytes.push_back(static_cast<char>(0xE0U | (point >> 12)));
      tail(6);
      tail(0);
    } else {
      bytes.push_back(static_cast<char>(0xF0U | (point >> 18)));
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return bytes;
}

char32_t to_lower(char32_t letter) {
  for (const CaseRange& range : kRanges) {
    if (letter < range.first || letter > range.last) continue;
    if (range.pairs && (letter - range.first) % 2 != 0) return letter;
    return static_cast<char32_t>(static_cast<std::int32_t>(letter) + range.distance);
  }
  return letter;
}

char32_t to_upper(char32_t letter) {
  for (const CaseRange& range : kRanges) {
    const auto capital = static_cast<char32_t>(static_cast<std::int32_t>(letter) - range.distance);
    if (capital < range.first || capital > range.last) continue;
    if (!range.pairs || (capital - range.first) % 2 == 0) return capital;
  }
  return letter;
}

}  // namespace backplane::cpu
