// The arenas of a run: borrowed from the session's pool, grown to what its segments need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/program.hpp"
#include "core/runtime/arena_pool.hpp"

namespace backplane::core {

/// Threads: one, the run's.
class RunArenas {
 public:
  /// From `pool`, which outlives it; null: from a pool of its own.
  RunArenas(const Program& program, ArenaPool* pool);
  RunArenas(const RunArenas&) = delete;
  RunArenas& operator=(const RunArenas&) = delete;

  /// A run begins: takes arenas, those of the run before where nobody else has them.
  void take() { set_ = pool_.take(last_); }
  /// The run has ended.
  void give() noexcept;

  /// Those of a depth, with room for a segment. Throws what the device or the session's budget says; OutOfMemory names
  /// the largest value.
  const ArenaSet::Depth& make(const Segment& segment, std::size_t depth);

  const std::vector<ArenaSet::Depth>& depths() const { return set_->depths; }
  bool holds(const bp_buffer* buffer) const;
  /// `tensor`, which lies in a pinned arena, by the buffer that it lies in: what a device's copy can read and write by itself.
  void point_into_buffer(int arena, bp_tensor& tensor) const;
  /// By arena: what the segments of the last run needed.
  const std::vector<std::uint64_t>& bytes() const { return bytes_; }

 private:
  void grow(const Segment& segment, std::size_t depth, std::size_t arena);
  bool allocate(const Segment& segment, std::size_t depth, std::size_t arena,
                const std::vector<std::uint64_t>& sizes, bool is_least);
  void charge(const Segment& segment, std::size_t arena, std::uint64_t bytes, Arena& charged) const;
  std::string describe(const Segment& segment, std::size_t arena) const;

  const Program& program_;
  const DeviceSet& devices_;
  std::unique_ptr<ArenaPool> own_pool_;
  ArenaPool& pool_;
  ArenaSet* set_ = nullptr;         ///< of a run in flight
  const ArenaSet* last_ = nullptr;  ///< of the run before: what contexts point into
  std::vector<std::uint64_t> bytes_;
  std::vector<std::vector<std::uint64_t>> most_bytes_;  ///< by depth and arena, of the last run
};

}  // namespace backplane::core
