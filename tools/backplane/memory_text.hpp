// The memory report as tables.
#pragma once

#include <string>

#include "tools/backplane/json.hpp"

namespace backplane::cli {

/// See backplane_session_memory for the form of the report.
std::string memory_text(const Json& memory);

}  // namespace backplane::cli
