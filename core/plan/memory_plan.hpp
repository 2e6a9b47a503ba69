// Offsets for things that live for a while in one block of memory.
#pragma once

#include <cstdint>
#include <functional>
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

}  // namespace backplane::core
