#include "core/plan/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace backplane::core {

namespace {

using Apart = std::function<bool(std::size_t, std::size_t)>;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

/// Fills in the offsets, and the sizes of blocks of at most `most` bytes.
void place(std::vector<Interval>& intervals, const Apart& apart, std::uint64_t most,
           MemoryBlocks& blocks) {
  std::vector<std::size_t> by_size(intervals.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return intervals[a].bytes > intervals[b].bytes;
  });

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
      if (end <= offset) continue;
      offset = (end + interval.alignment - 1) & ~(interval.alignment - 1);
      const std::uint64_t within = offset % blocks.span;
      if (within > 0 && interval.bytes > most - std::min(most, within))
        offset += blocks.span - within;
    }
    interval.offset = offset;
    const auto block = static_cast<std::size_t>(offset / blocks.span);
    if (blocks.bytes.size() <= block) blocks.bytes.resize(block + 1);
    blocks.bytes[block] = std::max(blocks.bytes[block], offset % blocks.span + interval.bytes);
    const auto position = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](std::uint64_t value, std::size_t i) { return value < intervals[i].offset; });
    placed.insert(position, index);
  }
}

}  // namespace

std::uint64_t plan_memory(std::vector<Interval>& intervals) {
  return plan_memory(intervals, nullptr);
}

std::uint64_t plan_memory(std::vector<Interval>& intervals, const Apart& apart) {
  const MemoryBlocks block = plan_memory(intervals, apart, kNoLimit);
  return block.bytes.empty() ? 0 : block.bytes.front();
}

MemoryBlocks plan_memory(std::vector<Interval>& intervals, const Apart& apart, std::uint64_t most) {
  MemoryBlocks blocks;
  place(intervals, apart, kNoLimit, blocks);
  if (blocks.bytes.empty() || blocks.bytes.front() <= most) return blocks;
  std::uint64_t alignment = 1;
  for (const Interval& interval : intervals) alignment = std::max(alignment, interval.alignment);
  blocks.span = (most + alignment - 1) & ~(alignment - 1);
  blocks.bytes.clear();
  place(intervals, apart, most, blocks);
  return blocks;
}

}  // namespace backplane::core
