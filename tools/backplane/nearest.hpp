// Suggestions for misspelt names.
#pragma once

#include <string>
#include <vector>

namespace backplane::cli {

/// "; did you mean 'NAME'?", or "" when no candidate is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace backplane::cli
