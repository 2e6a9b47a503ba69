#include "core/plan/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace backplane::core {

std::uint64_t plan_memory(std::vector<Interval>& intervals) {
  return plan_memory(intervals, nullptr);
}

std::uint64_t plan_memory(std::vector<Interval>& intervals,
                          const std::function<bool(std::size_t, std::size_t)>& apart) {
  std::vector<std::size_t> by_size(intervals.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return intervals[a].bytes > intervals[b].bytes;
  });

  std::uint64_t block = 0;
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t index : by_size) {
    Interval& interval = intervals[index];
    if (interval.bytes == 0) continue;
    std::uint64_t offset = 0;
    for (const std::size_t other_index : placed) {
      const Interval& other = intervals[other_index];
      const bool in_turn = other.last < interval.first || interval.last < other.first;
      if (in_turn && (apart == nullptr || apart(index, other_index))) continue;
      if (offset + interval.bytes <= other.offset) break;  // the gap before it is large enough
      const std::uint64_t end = other.offset + other.bytes;
      if (end > offset) offset = (end + interval.alignment - 1) & ~(interval.alignment - 1);
    }
    interval.offset = offset;
    block = std::max(block, offset + interval.bytes);
    const auto place = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](std::uint64_t value, std::size_t i) { return value < intervals[i].offset; });
    placed.insert(place, index);
  }
  return block;
}

}  // namespace backplane::core
