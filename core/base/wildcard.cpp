#include "core/base/wildcard.hpp"

#include <cctype>

namespace backplane::core {
namespace {

bool same(char a, char b, LetterCase letters) {
  if (letters == LetterCase::Matters) return a == b;
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

}  // namespace

bool fits_wildcard(std::string_view pattern, std::string_view name, LetterCase letters) {
  std::size_t at = 0, star = std::string_view::npos, after_star = 0;
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || same(pattern[at], name[i], letters))) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace backplane::core
