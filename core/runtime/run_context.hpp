// What one run in flight owns: arenas, streams, and contexts of the segments it has run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/stop_signal.hpp"
#include "core/runtime/arena_pool.hpp"
#include "core/runtime/device_times.hpp"
#include "core/runtime/host_views.hpp"
#include "core/runtime/run_options.hpp"
#include "core/runtime/segment_context.hpp"
#include "core/runtime/trace_log.hpp"
#include "core/runtime/work_in_flight.hpp"

namespace backplane::core {

/// A feed or fetch of a run.
using RunValues = std::vector<RuntimeValue*>;

/// What a run was asked for.
struct RunControls {
  std::uint64_t run = 0;  ///< of a body: the run that it is part of
  StopSignal stop;
  std::vector<Span>* spans = nullptr;  ///< not null: every step is timed, which makes streams wait
  const NodeObserver* observer = nullptr;  ///< not null: sees every node, which makes streams wait
  const std::vector<bool>* resizable =
      nullptr;  ///< by fetch: made to fit a size found by running, where it owns its memory; null: none
  bool synchronize = true;     ///< false: the last segment's work may go on after finish()
  HostViews* views = nullptr;  ///< that are kept for the next run; null: none are
};

/// The same error, met while a run is under way: what then turns out to be wrong are values, not what was asked for.
Error within_run(const Error& error);

/// Threads: one run at a time.
class RunContext {
 public:
  /// `is_body`: devices are told of the run that it is part of, not of it. Takes its arenas from `pool`, which outlives
  /// it; without one, from a pool of its own.
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

  /// Where a value of an earlier segment of this run lies; null when no segment left it in that space.
  const RuntimeValue* left_value(ValueId value, int space) const;
  /// What is left, for planning the next segment.
  std::vector<Border> left() const;

  /// What is ready for a first segment; null: nothing is. Between runs.
  SegmentContext* find_context(const Segment& segment);
  /// Ends what is ready for a segment.
  void forget(const Segment& segment);

  const std::vector<std::uint64_t>& arena_bytes() const { return arena_bytes_; }

 private:
  SegmentContext& context_of(const std::shared_ptr<const Segment>& segment, std::size_t depth);
  void make_streams(const Segment& segment);
  bool make_arena(const Segment& segment, std::size_t depth, std::size_t arena,
                  const std::vector<std::uint64_t>& sizes, bool is_least);
  void grow_arena(const Segment& segment, std::size_t depth, std::size_t arena);
  void make_arenas(const Segment& segment, std::size_t depth);
  SegmentContext& ready_context(const std::shared_ptr<const Segment>& segment, std::size_t depth);
  void end_run() noexcept;
  void fail_if_stopped(const Step& step);
  /// Before `steps` of a run that may be ended, `step` the first, go to a device's stream: waits where much is on it.
  void hold_back(int device, const Step& step, std::size_t steps);
  /// "the memory of a run (its largest value is ...)": for errors.
  std::string arena_words(const Segment& segment, std::size_t arena) const;
  /// Takes an arena's bytes from the session's budget; throws OutOfMemory.
  void charge_arena(const Segment& segment, std::size_t arena, std::uint64_t bytes,
                    Arena& charged) const;
  void execute(SegmentContext& context);
  void execute_range(SegmentContext& context, std::size_t begin, std::size_t end);
  void execute_special(SegmentContext& context, const Operation& operation);
  void execute_watched(SegmentContext& context, std::size_t begin, std::size_t end);
  void observe(SegmentContext& context, const Step& step, bool done);
  void execute_captured(SegmentContext& context, std::size_t depth, const RunValues& feeds,
                        const RunValues& fetches);
  bool read_memory_key(const CapturePlan& plan, const Segment& segment, std::size_t depth,
                       const RunValues& feeds, const RunValues& fetches);
  bool is_in_arena(const bp_buffer* buffer) const;
  bool replay(SegmentContext& context, RangeCapture& capture);
  const bp_recording* record(SegmentContext& context, RangeCapture& capture);
  bp_status* record_steps(SegmentContext& context, const CaptureRange& range, const Step*& failed);
  void refuse_capture(RangeCapture& capture, const Step& step, bp_status* status);
  void execute_group(SegmentContext& context, ParallelRun& group);
  bp_status* execute_in_group(SegmentContext& context, int step);
  Span span_of(const Step& step) const;
  /// Adds what the step's device says of its work, which has been waited for, to the spans.
  void add_device_spans(const Step& step);
  void execute_control(SegmentContext& context, const Operation& operation);
  SegmentContext& bound_context(const std::shared_ptr<const Segment>& segment, std::size_t depth,
                                const RunValues& feeds, const RunValues& fetches);
  HostView& take_view(SegmentContext& context, const Step& step);
  void hand_over(SegmentContext& context, const Step& step);
  void hand_back(SegmentContext& context, const Step& step);
  [[noreturn]] void refuse_view(const Step& step, bp_status* status);
  void wait_for(SegmentContext& context, const Step& step);
  void copy(SegmentContext& context, const Step& step);
  bp_status* put_copy(SegmentContext& context, const Step& step);
  void drain(const Segment& segment);
  [[noreturn]] void fail(const Step& step, bp_status* status);
  const RuntimeValue* incoming_value(const Border& border, const RunValues& feeds) const;
  void take_dynamic(SegmentContext& context, const RunValues& feeds, const RunValues& fetches);
  void leave(SegmentContext& context);
  void forget_left(const Border& border);
  static void forget_spent(SegmentContext& context, const Step& step) {
    for (const int slot : step.spent) context.give_back(slot);
  }

  struct Cached {
    std::size_t depth;
    std::uint64_t used;
    std::unique_ptr<SegmentContext> context;
  };

  const Program& program_;
  const DeviceSet& devices_;
  bp_threads* threads_;
  std::size_t max_contexts_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< by device; null until first used
  std::vector<bp_stream*> raw_streams_;
  std::vector<DeviceTimes> times_;       ///< by device
  std::vector<WorkInFlight> in_flight_;  ///< by device
  std::unique_ptr<ArenaPool> own_pool_;
  ArenaPool& pool_;
  ArenaSet* arenas_ = nullptr;              ///< from start() until the run has ended
  const ArenaSet* last_arenas_ = nullptr;   ///< of the run before: what contexts point into
  std::vector<std::uint64_t> arena_bytes_;  ///< by arena, of the last run
  std::vector<Cached> cached_;
  std::uint64_t use_count_ = 0, used_before_run_ = 0;
  /// What a segment left for later ones.
  struct Left {
    const RuntimeValue* value;
    SegmentContext*
        owner;  ///< whose slot `slot` owns the memory that the value lies in; null: nobody's does
    int slot;
  };
  std::map<std::pair<ValueId, int>, Left> left_;
  std::vector<SegmentContext*> dynamic_;                ///< of the run, with slots that own memory
  std::vector<std::vector<std::uint64_t>> most_bytes_;  ///< by depth and arena, of the last run
  std::vector<int> begun_;                              ///< devices that were told of the run
  std::vector<std::shared_ptr<HostView>> held_;         ///< views of the run in flight
  HostViews own_views_;                                 ///< of a run whose caller keeps none
  std::uint64_t run_id_ = 0;
  RunControls controls_;
  std::shared_ptr<const Segment> going_on_;  ///< the segment whose work nobody has waited for
  bool is_body_ = false;
  bool tells_devices_ = false;
  MemoryKey memory_key_;  ///< of the segment that runs
};

}  // namespace backplane::core
