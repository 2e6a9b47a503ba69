// Names from outside, made fit for messages.
#pragma once

#include <string>
#include <string_view>

namespace backplane::core {

/// `name` in single quotes, on one line: control characters as \xNN, cut with "..." after 120 bytes. Names in
/// models and on command lines come from strangers, and every message is one line.
std::string quoted(std::string_view name);
// For a string or literal, std::quoted would be the better match wherever <iomanip> is seen.
inline std::string quoted(const std::string& name) { return quoted(std::string_view(name)); }
inline std::string quoted(const char* name) { return quoted(std::string_view(name)); }

/// The text on one line: line breaks and what is around them become one space, other control characters go,
/// cut with "..." after `limit` bytes. For messages of other libraries.
std::string single_line(std::string_view message, std::size_t limit = 1000);

}  // namespace backplane::core
