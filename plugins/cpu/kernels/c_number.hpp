// Numbers in text, whatever locale the program has set.
#pragma once

#include <clocale>
#include <cstdlib>

namespace backplane::cpu {

/// As std::strtod in the locale "C".
inline double c_number(const char* text, char** end) {
  static const locale_t kLocale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(text, end, kLocale);
}

}  // namespace backplane::cpu
