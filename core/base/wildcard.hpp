// Names by patterns.
#pragma once

#include <string_view>

namespace backplane::core {

enum class LetterCase { Matters, Ignored };

/// Whether the whole of `name` fits: '*' is any text, '?' any one character. Takes no more than the product of the
/// lengths.
bool fits_wildcard(std::string_view pattern, std::string_view name,
                   LetterCase letters = LetterCase::Matters);

}  // namespace backplane::core
