// The arenas of a session: lent to runs, so that plans that do not run at the same time share memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// The arenas of one run in flight. By depth, since what a segment leaves must outlive the next one's work.
struct ArenaSet {
  struct Depth {
    std::vector<Arena> arenas;     ///< as Segment::arena_bytes counts them
    std::uint64_t generation = 0;  ///< no two states of any arenas in the process have the same
  };
  std::vector<Depth> depths;
  std::atomic<std::uint64_t> bytes{0};  ///< of all arenas

  /// Makes room for `depth` depths of `count` arenas.
  void reserve(std::size_t depth, std::size_t count);
  /// Arenas of a depth moved: everything that points into them must be bound again.
  void touch(std::size_t depth);
};

/// Keeps sets nobody uses.
///
/// Threads: all functions may run concurrently; taking and giving back is an exchange each.
class ArenaPool {
 public:
  ArenaPool() = default;
  ~ArenaPool();
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  /// A set: the preferred one if nobody else has it, else any, else a new one.
  ArenaSet* take(const ArenaSet* preferred);
  void give(ArenaSet* set) noexcept;
  /// Frees the memory of the sets that nobody uses.
  void shrink() noexcept;

  /// Sets that there are, their bytes, and the most bytes that a run left behind it.
  std::uint64_t set_count() const { return sets_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  /// A set grew or shrank.
  void account(ArenaSet& set) noexcept;

 private:
  std::array<std::atomic<ArenaSet*>, 32> idle_{};
  std::atomic<std::uint64_t> sets_{0}, bytes_{0}, peak_bytes_{0};
};

}  // namespace backplane::core
