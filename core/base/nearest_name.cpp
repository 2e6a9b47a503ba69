#include "core/base/nearest_name.hpp"

#include <algorithm>
#include <utility>

#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

// Longer words are no operators, options or symbols; the distance costs the product of the lengths.
constexpr std::size_t kLongestWord = 100;

std::string lower(std::string_view word) {
  std::string result(word);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest_names(std::string_view word,
                                       const std::vector<std::string>& candidates,
                                       std::size_t limit) {
  if (word.empty() || word.size() > kLongestWord) return {};
  const std::string wanted = lower(word);
  std::vector<std::pair<std::size_t, std::size_t>> found;  // distance, index
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].empty() || candidates[i].size() > kLongestWord) continue;
    const std::string candidate = lower(candidates[i]);
    const std::size_t shorter = std::min(wanted.size(), candidate.size());
    const std::size_t longer = std::max(wanted.size(), candidate.size());
    const bool prefix = shorter >= 3 && wanted.compare(0, shorter, candidate, 0, shorter) == 0;
    if (!prefix && longer - shorter > (longer + 1) / 3) continue;
    const std::size_t distance = edit_distance(wanted, candidate);
    if (prefix || distance <= std::max<std::size_t>(1, (longer + 1) / 3))
      found.emplace_back(distance, i);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [distance, index] : found) {
    if (names.size() == limit) break;
    if (std::find(names.begin(), names.end(), candidates[index]) == names.end())
      names.push_back(candidates[index]);
  }
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string> names = nearest_names(word, candidates);
  if (names.empty()) return {};
  std::string result = "; did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) result += i + 1 == names.size() ? " or " : ", ";
    result += quoted(names[i]);
  }
  return result + "?";
}

}  // namespace backplane::core
