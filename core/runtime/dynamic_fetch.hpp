// Fetches of a size that nobody knew before the run: they are taken over, or copied, when it is there.
#pragma once

#include <string>

#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// Where a value goes that a kernel or a body made.
struct DynamicFetch {
  const std::string& output;
  bool resize;    ///< a value that owns its memory is made to fit
  bool is_body;   ///< the value is the core's own: only memory that was placed binds
  bool is_spare;  ///< nobody else will read what it is made from
};

/// Throws that the value given for an output has another type or other dims than the run makes. `where` ends the sentence.
[[noreturn]] void refuse_fetch(const RuntimeValue& given, const RuntimeValue& made,
                               const std::string& output, const char* where = "");

/// Moves or copies `from` into `to`. A value that is there must fit, unless it may be made to; throws InvalidArgument.
void take_contents(RuntimeValue& from, RuntimeValue& to, const DynamicFetch& fetch);

}  // namespace backplane::core
