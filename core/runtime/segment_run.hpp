// The steps of a segment, done once: plainly, watched, by groups that run side by side, or as devices have recorded them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/runtime/run_state.hpp"
#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// One run of a segment whose context is bound. Every failure is thrown when all streams are drained.
///
/// Lifetime: borrows what it is made of.
/// Threads:  one, the run's; it calls others for parallel groups.
class SegmentRun {
 public:
  SegmentRun(RunState& run, SegmentContext& context, const RunValues& feeds,
             const RunValues& fetches)
      : run_(run), context_(context), feeds_(feeds), fetches_(fetches) {}

  /// Does all steps; some may go on, on streams. `depth` is that of its arenas.
  void execute(std::size_t depth);
  /// Throws where the run is to end, as the error of the last step.
  void fail_if_stopped();
  /// Makes fetches of what nobody knew the size of before, when all steps are done.
  void take_dynamic_fetches();
  /// The view that a step hands over, made and kept for the run.
  HostView& take_view(const Step& step);

 private:
  // segment_run.cpp
  const Step& step_at(int index) const { return context_.segment().step(index); }
  void execute_plainly();
  void execute_range(std::size_t begin, std::size_t end);
  void execute_special(const Operation& operation);
  void execute_control(const Operation& operation);
  void execute_group(ParallelRun& group);
  bp_status* execute_in_group(int step);
  void fail_if_stopped(const Step& step);
  void hold_back(int device, const Step& step, std::size_t steps);
  void wait_for(const Step& step);
  void copy(const Step& step);
  bp_status* put_copy(const Step& step);
  bp_tensor end_of_copy(const Step& step, int slot);
  void signal(const Step& step, std::uint64_t& mark);
  std::size_t index_of(const Step& step) const {
    return static_cast<std::size_t>(&step - context_.segment().steps.data());
  }
  void release_dead(const Step& step) {
    for (const int slot : step.dead) context_.give_back(slot);
  }

  // piecewise_copy.cpp
  class DevicePieces;
  class HostPieces;
  void copy_half(const Step& step);
  void upload_in_pieces(const Step& host, const Step& device);
  void download_in_pieces(const Step& device);
  void fetch_in_pieces(const Step& host, const Step& device);

  // captured_run.cpp
  void execute_captured(std::size_t depth);
  bool read_memory_key(std::size_t depth);
  bool replay(RangeCapture& capture);
  const bp_recording* record(RangeCapture& capture);
  bp_status* record_steps(const CaptureRange& range, const Step*& failed);
  void refuse_capture(RangeCapture& capture, const Step& step, bp_status* status);

  // watched_run.cpp
  void execute_watched(std::size_t begin, std::size_t end);
  void observe(const Step& step, bool done);
  Span span_of(const Step& step) const;
  void add_device_spans(const Step& step);

  // run_views.cpp
  void hand_over(const Step& step);
  void hand_back(const Step& step);
  [[noreturn]] void refuse_view(const Step& step, bp_status* status);

  RunState& run_;
  SegmentContext& context_;
  const RunValues& feeds_;
  const RunValues& fetches_;
};

}  // namespace backplane::core
