// UTF-8 text by code points, and the case of letters.
// https://www.unicode.org/Public/UCD/latest/ucd/UnicodeData.txt (the simple case mappings)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace backplane::cpu {

/// The code points of UTF-8 text; a byte that is not part of a valid sequence counts as itself.
std::u32string decode_utf8(std::string_view text);

std::string encode_utf8(std::u32string_view text);

/// The other case of one letter, of the Latin, Greek, Cyrillic and Armenian alphabets and of the full-width
/// forms; everything else, and what has no single counterpart, stays.
char32_t to_lower(char32_t letter);
char32_t to_upper(char32_t letter);

}  // namespace backplane::cpu
