// Runs, one after the other: each has arenas, streams, and contexts of the segments it runs, kept for the next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/runtime/run_state.hpp"
#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// Threads: one run at a time.
class RunContext {
 public:
  /// `is_body`: devices are told of the run that it is part of, not of it. Takes its arenas from `pool`, which outlives
  /// it; without one, from a pool of its own. `max_contexts` as `given` of kept_plans.
  RunContext(const Program& program, bp_threads* threads, std::size_t max_contexts,
             bool is_body = false, ArenaPool* pool = nullptr);
  ~RunContext();
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  /// Starts a run: forgets what the last one left. Tells the devices; ends by finish(), also when this throws.
  void start(std::uint64_t run_id, const RunControls& controls);
  /// Gives the arenas back and tells devices that the run ended; after a run that was not synchronized, synchronize()
  /// does so. Never throws.
  void finish() noexcept;
  /// Waits for what a run left going on. Throws what that failed with.
  void synchronize();

  /// Runs a segment in the arenas of a depth, in which nothing that earlier segments of the run left lies. Feeds are by
  /// Program::feeds, fetches by Program::fetches; those that the segment writes have memory. Throws what failed, after
  /// draining all streams.
  void run(const std::shared_ptr<const Segment>& segment, std::size_t depth, const RunValues& feeds,
           const RunValues& fetches);

  /// Instead of a run: makes memory, streams, contexts and views that running the first segment needs. Ends by finish().
  void prepare(const std::shared_ptr<const Segment>& segment, const RunValues& feeds,
               const RunValues& fetches, HostViews* views);

  /// What earlier segments of this run left, for planning the next one.
  const LeftValues& left() const { return state_.left; }

  /// What is ready for a first segment; null: nothing is. Between runs.
  SegmentContext* find_context(const Segment& segment);
  /// Ends what is ready for a segment.
  void forget(const Segment& segment);

  const std::vector<std::uint64_t>& arena_bytes() const { return state_.arenas.bytes(); }

 private:
  struct Cached {
    const Segment* segment;  ///< the context's: hundreds are looked through
    std::size_t depth;
    std::uint64_t used;
    std::unique_ptr<SegmentContext> context;
  };

  SegmentContext& context_of(const std::shared_ptr<const Segment>& segment, std::size_t depth);
  SegmentContext& bound_context(const std::shared_ptr<const Segment>& segment, std::size_t depth,
                                const RunValues& feeds, const RunValues& fetches);
  void end_run() noexcept;

  RunState state_;
  std::size_t max_contexts_;
  std::vector<Cached> cached_;
  std::uint64_t use_count_ = 0, used_before_run_ = 0;
  std::vector<SegmentContext*> dynamic_;     ///< of the run, with slots that own memory
  std::vector<int> begun_;                   ///< devices that were told of the run
  std::shared_ptr<const Segment> going_on_;  ///< the segment whose work nobody has waited for
  std::size_t stream_count_ = 0;             ///< that contexts point into
  bool tells_devices_ = false;
};

}  // namespace backplane::core
