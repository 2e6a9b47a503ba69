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

#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// Spans of a run, for traces. Times are steady-clock nanoseconds.
struct Span {
  std::string name;
  std::string lane;
  std::string detail;
  std::uint64_t begin_ns = 0, end_ns = 0;
};

/// A feed or fetch of a run.
using RunValues = std::vector<RuntimeValue*>;

/// Threads: one run at a time.
class RunContext {
 public:
  /// `is_body`: devices are told of the run that it is part of, not of it.
  RunContext(const Program& program, bp_threads* threads, std::size_t max_contexts, bool is_body);
  ~RunContext();
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  /// Starts a run: forgets what the last one left. Tells the devices; ends by finish(). With `resize_fetches`, values
  /// for outputs of a size found by running are made to fit where they own their memory.
  void start(std::uint64_t run_id, const std::atomic<bool>* cancel_flag, std::vector<Span>* spans,
             bool resize_fetches = false);
  /// Tells devices that the run ended. Never throws.
  void finish() noexcept;

  /// Runs a segment, `depth` segments having run before it. Feeds are by Program::feeds, fetches by Program::fetches;
  /// those that the segment writes have memory. Throws what failed, after draining all streams.
  void run(const std::shared_ptr<const Segment>& segment, std::size_t depth, const RunValues& feeds,
           const RunValues& fetches);

  /// Where a value of an earlier segment of this run lies; null when no segment left it in that space.
  const RuntimeValue* left_value(ValueId value, int space) const;
  /// What is left, for planning the next segment.
  std::vector<Border> left() const;

  const std::vector<std::uint64_t>& arena_bytes() const { return arena_bytes_; }

 private:
  SegmentContext& context_of(const std::shared_ptr<const Segment>& segment, std::size_t depth);
  void make_streams(const Segment& segment);
  void execute(SegmentContext& context);
  void execute_range(SegmentContext& context, std::size_t begin, std::size_t end);
  void execute_special(SegmentContext& context, const Operation& operation);
  void execute_traced(SegmentContext& context, std::size_t begin, std::size_t end);
  void execute_group(SegmentContext& context, ParallelRun& group);
  bp_status* execute_in_group(SegmentContext& context, int step);
  Span span_of(const Step& step) const;
  void execute_control(SegmentContext& context, const Operation& operation);
  void wait_for(SegmentContext& context, const Step& step);
  void copy(SegmentContext& context, const Step& step);
  void drain(const Segment& segment);
  [[noreturn]] void fail(const Step& step, bp_status* status);
  const RuntimeValue* incoming_value(const Border& border, const RunValues& feeds) const;
  void take_dynamic(SegmentContext& context, const RunValues& feeds, const RunValues& fetches);

  struct Cached {
    std::shared_ptr<const Segment> segment;
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
  std::vector<std::vector<Arena>> arenas_;  ///< by depth and arena
  std::vector<std::uint64_t> generations_;  ///< by depth: raised when an arena moves
  std::vector<std::uint64_t> arena_bytes_;  ///< by arena, of the last run
  std::vector<Cached> cached_;
  std::uint64_t use_count_ = 0, used_before_run_ = 0;
  std::map<std::pair<ValueId, int>, const RuntimeValue*> left_;
  std::vector<int> begun_;  ///< devices that were told of the run
  std::uint64_t run_id_ = 0;
  const std::atomic<bool>* cancel_flag_ = nullptr;
  std::vector<Span>* spans_ = nullptr;
  bool is_body_ = false;
  bool tells_devices_ = false;
  bool resize_fetches_ = false;
};

}  // namespace backplane::core
