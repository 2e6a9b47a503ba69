#include "core/plugin_host/plugin_text.hpp"

#include <cstring>

namespace backplane::core {
namespace {

/// The length of the UTF-8 sequence at `text` (RFC 3629: shortest form, no surrogates); 0 when it
/// is none.
std::size_t sequence_length(const unsigned char* text, std::size_t size) {
  const unsigned char lead = text[0];
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > size) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xC0) != 0x80) return 0;
  }
  const unsigned char next = text[1];
  const bool wrong = (lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
                     (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F);
  return wrong ? 0 : length;
}

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7F; }

}  // namespace

void clean_text(char* text, std::size_t size) noexcept {
  std::size_t at = 0;
  while (at < size) {
    const std::size_t length =
        sequence_length(reinterpret_cast<unsigned char*>(text) + at, size - at);
    if (length == 0) text[at] = '?';
    if (length == 1 && is_control(static_cast<unsigned char>(text[at]))) text[at] = ' ';
    at += length == 0 ? 1 : length;
  }
}

std::string plugin_text(const char* text, std::size_t limit) {
  if (text == nullptr) return "";
  std::string copy(text, strnlen(text, limit));
  clean_text(copy.data(), copy.size());
  return copy;
}

bool is_plain_text(const char* text, std::size_t limit) noexcept {
  if (text == nullptr || text[0] == '\0') return false;
  const std::size_t size = strnlen(text, limit);
  if (size == limit) return false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text);
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = sequence_length(bytes + at, size - at);
    if (length == 0 || is_control(bytes[at])) return false;
    at += length;
  }
  return true;
}

}  // namespace backplane::core
