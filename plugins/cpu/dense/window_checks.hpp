// Errors of the attributes of windows, whichever operator has them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// Where an attribute that may be left out does not have `expected` entries.
inline void check_count(const char* what, const std::vector<int64_t>& values,
                        std::size_t expected) {
  if (!values.empty() && values.size() != expected) {
    sdk::invalid("attribute '", what, "' has ", values.size(), " entries, the input needs ",
                 expected);
  }
}

/// Where `auto_pad` is none of ONNX's words, or what is to be positive is not.
inline void check_window(const std::string& auto_pad,
                         std::initializer_list<const std::vector<int64_t>*> positive) {
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" &&
      auto_pad != "SAME_LOWER") {
    sdk::invalid("attribute 'auto_pad' is '", auto_pad,
                 "'; it may be NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  }
  for (const auto* values : positive) {
    for (const int64_t value : *values) {
      if (value < 1)
        sdk::invalid("kernel_shape, strides and dilations must be positive, got ", value);
    }
  }
}

}  // namespace backplane::cpu
