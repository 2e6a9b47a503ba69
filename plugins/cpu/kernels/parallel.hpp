// When a loop is worth the pool's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// Below this much work a loop stays on the caller's thread: waking and joining the others costs a
/// microsecond, and their caches start cold.
inline constexpr double kParallelNs = 20000;
/// The least work of a part.
inline constexpr double kPartNs = 8000;

/// Calls body(begin, end) over [0, n), on several threads where `ns_each`, the estimated time of one
/// index, makes that pay. Parts begin at multiples of `step`. `body` must not throw.
template <class Body>
void split_loop(const sdk::Threads& threads, std::int64_t n, double ns_each, std::int64_t step,
                const Body& body) {
  if (static_cast<double>(n) * ns_each < kParallelNs || threads.count() == 1) {
    if (n > 0) body(std::int64_t{0}, n);
    return;
  }
  const std::int64_t parts = (n + step - 1) / step;
  const double ns_part = ns_each * static_cast<double>(step);
  const auto least = static_cast<std::uint64_t>(std::max(1.0, kPartNs / ns_part));
  const std::uint64_t fair =
      static_cast<std::uint64_t>(parts) / (4 * std::uint64_t{threads.count()});
  threads.parallel_for(static_cast<std::uint64_t>(parts), std::max(least, fair),
                       [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                         body(static_cast<std::int64_t>(begin) * step,
                              std::min(n, static_cast<std::int64_t>(end) * step));
                       });
}

/// The same with parts of whole cache lines of elements.
template <class Body>
void split_elements(const sdk::Threads& threads, std::int64_t n, double ns_each, const Body& body) {
  split_loop(threads, n, ns_each, 64, body);
}

}  // namespace backplane::cpu
