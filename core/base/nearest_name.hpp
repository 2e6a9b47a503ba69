// Suggestions for misspelt names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::core {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// At most `limit` of the candidates, nearest first, equally near ones in their order: those that differ by
/// upper and lower case only, by about a third of their letters at most, or of which one begins with the other.
std::vector<std::string> nearest_names(std::string_view word,
                                       const std::vector<std::string>& candidates,
                                       std::size_t limit = 3);

/// "; did you mean 'a' or 'b'?", or "" when nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace backplane::core
