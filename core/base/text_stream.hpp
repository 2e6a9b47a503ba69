// Text with numbers in it, made and read.
#pragma once

#include <locale>
#include <sstream>
#include <string>

namespace backplane::core {

/// Streams whose numbers are C's ("1234.5"), whatever locale the program has set: what is written goes into names, keys
/// and files, and is read again by others.
class TextOutput : public std::ostringstream {
 public:
  TextOutput() { imbue(std::locale::classic()); }
};

class TextInput : public std::istringstream {
 public:
  explicit TextInput(const std::string& text) : std::istringstream(text) {
    imbue(std::locale::classic());
  }
};

}  // namespace backplane::core
