#include "tools/backplane/nearest.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace backplane::cli {
namespace {

std::string lower(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

/// Insertions, deletions and replacements that turn one word into the other.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string wanted = lower(word).substr(0, 200);
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::string known = lower(candidate).substr(0, 200);
    const std::size_t longer = std::max(wanted.size(), known.size());
    const std::size_t distance = edit_distance(wanted, known);
    const bool begins = wanted.size() > 2 && known.compare(0, wanted.size(), wanted) == 0;
    const std::size_t near = std::max<std::size_t>(longer * 2 / 5, longer > 1 ? 1 : 0);
    if (distance > near && !begins) continue;
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : "; did you mean '" + *best + "'?";
}

}  // namespace backplane::cli
