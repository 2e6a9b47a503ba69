// Offsets for things that live for a while in one block of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace backplane::core {

/// Something that needs `bytes` from step `first` to step `last`, both included.
struct Interval {
  int first = 0;
  int last = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 64;  ///< a power of two
  std::uint64_t offset = 0;      ///< the result
};

/// Gives every interval an offset so that no two that live at the same time overlap, and returns the block's size.
/// Largest first, each at the lowest offset that is free (the greedy-by-size heuristic of Pisarchyk and Lee,
/// "Efficient memory management for deep neural net inference", 2020). Deterministic.
std::uint64_t plan_memory(std::vector<Interval>& intervals);

/// Likewise where steps may run at the same time: `apart(a, b)` says whether intervals a and b, which do not overlap
/// as steps are listed, are apart in every order of the steps that is allowed.
std::uint64_t plan_memory(std::vector<Interval>& intervals,
                          const std::function<bool(std::size_t, std::size_t)>& apart);

/// Several blocks as one range of offsets: block i is from i * span on, which is aligned as all that lies in them.
struct MemoryBlocks {
  std::uint64_t span = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> bytes;  ///< of each, none where nothing needs any
};

/// Likewise in blocks of at most `most` bytes, more than 0: one, or several where that would have more, and no interval lies
/// in two. What has more by itself gets a block that is as large, for its owner to refuse.
MemoryBlocks plan_memory(std::vector<Interval>& intervals,
                         const std::function<bool(std::size_t, std::size_t)>& apart,
                         std::uint64_t most);

}  // namespace backplane::core
