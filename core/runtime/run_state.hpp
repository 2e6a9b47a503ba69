// What one run in flight has, beside the contexts of its segments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/program.hpp"
#include "core/runtime/left_values.hpp"
#include "core/runtime/plan_capture.hpp"
#include "core/runtime/run_arenas.hpp"
#include "core/runtime/run_controls.hpp"
#include "core/runtime/run_streams.hpp"

namespace backplane::core {

/// The same error, met while a run is under way: what then turns out to be wrong are values, not what was asked for.
Error within_run(const Error& error);

/// Threads: one, the run's; members of a parallel group read it.
struct RunState {
  RunState(const Program& of, bp_threads* run_threads, bool of_body, ArenaPool* pool);

  /// Where a value that a segment needs lies: an earlier segment left it, or it is a feed.
  const RuntimeValue& incoming(const LiveValue& live, const RunValues& feeds) const;
  /// The step, for errors: its node, or what it copies.
  std::string describe(const Step& step) const;
  /// Waits for all streams; views are of no more use.
  void give_up();
  /// The same, and throws `status`, which it takes, as the error of a step.
  [[noreturn]] void fail(const Step& step, bp_status* status);
  /// Waits for what a segment put on streams. Throws what that failed with.
  void drain(const Segment& segment);

  const Program& program;
  const DeviceSet& devices;
  bp_threads* const threads;
  const bool is_body;
  std::uint64_t id = 0;  ///< what devices know the run by
  RunControls controls;
  RunStreams streams;
  RunArenas arenas;
  LeftValues left;
  std::vector<std::shared_ptr<HostView>> held;  ///< views of the run in flight
  HostViews own_views;                          ///< of a run whose caller keeps none
  MemoryKey memory_key;                         ///< of the segment that runs
};

}  // namespace backplane::core
