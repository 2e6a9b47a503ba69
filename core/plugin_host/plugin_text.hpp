// Text that plugins wrote: bounded, and made fit to be shown.
#pragma once

#include <cstddef>
#include <string>

namespace backplane::core {

/// Replaces, in place and at the same length, bytes that are no UTF-8 by '?' and control characters
/// by spaces.
void clean_text(char* text, std::size_t size) noexcept;

/// A terminated string of a plugin, cleaned, cut at `limit` bytes; "" for null.
std::string plugin_text(const char* text, std::size_t limit = 1024);

/// True for UTF-8 without control characters that ends within `limit` bytes and is not empty.
bool is_plain_text(const char* text, std::size_t limit = 1024) noexcept;

}  // namespace backplane::core
