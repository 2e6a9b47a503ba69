#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

constexpr std::size_t kLongestName = 120;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// At most `limit` bytes of `text`, not ending inside a UTF-8 sequence.
std::string_view cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

std::string quoted(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::string_view shown = cut(name, kLongestName);
  std::string result = "'";
  for (const char c : shown) {
    if (is_control(c)) {
      const auto byte = static_cast<unsigned char>(c);
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += c;
    }
  }
  if (shown.size() < name.size()) result += "...";
  return result + "'";
}

std::string single_line(std::string_view message, std::size_t limit) {
  std::string result;
  bool space = false;
  for (const char c : message) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      space = true;
    } else if (!is_control(c)) {
      if (space && !result.empty()) result += ' ';
      space = false;
      result += c;
    }
  }
  const std::size_t size = result.size();
  result.resize(cut(result, limit).size());
  if (result.size() < size) result += "...";
  return result;
}

}  // namespace backplane::core
