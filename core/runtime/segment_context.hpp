// A segment made ready to run: values, pointer tables and contexts, filled in once and patched per run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/plan/compute_context.hpp"
#include "core/plan/memory_budget.hpp"
#include "core/plan/resize_segment.hpp"
#include "core/runtime/parallel_run.hpp"
#include "core/runtime/plan_capture.hpp"

namespace backplane::core {

class ControlStep;

/// Memory of one arena, grown when a plan needs more.
struct Arena {
  std::vector<DeviceBuffer> buffers;  ///< one, but for those of Segment::split_arenas
  MemoryCharge charge;                ///< of the session's budget
  /// An empty one where there are not so many: what lies there has no bytes.
  const DeviceBuffer& buffer(std::size_t index) const {
    static const DeviceBuffer kNoBuffer;
    return index < buffers.size() ? buffers[index] : kNoBuffer;
  }
};

/// One thing to do, flat.
struct Operation {
  bp_status* (*compute)(const bp_prepared* prepared, const bp_kctx* ctx);  ///< null for copies
  const bp_prepared* prepared;
  ComputeContext* ctx;
  bool plain;   ///< nothing to wait for, to signal or to empty: call compute and go on
  bool simple;  ///< takes no turn, and the sizes of all its outputs are known
  std::int32_t step;
  std::mutex* turn;  ///< null where any number of calls may go on at a time
  const Node* node;  ///< null for copies

  bp_status* call() const {
    if (!simple) return call_in_turn();
    return call_for_status([this] { return compute(prepared, ctx); });
  }

 private:
  /// One call at a time where the kernel wants that; a kernel that is to tell sizes must have told them.
  bp_status* call_in_turn() const;
};

/// Everything that a run of a segment touches.
///
/// Lifetime: holds the segment; borrows arenas and streams, which are given to bind_memory.
/// Threads:  one run at a time.
class SegmentContext {
 public:
  SegmentContext(std::shared_ptr<const Segment> segment, const DeviceSet& devices,
                 const Program& program, bp_threads* threads);
  ~SegmentContext();
  SegmentContext(const SegmentContext&) = delete;
  SegmentContext& operator=(const SegmentContext&) = delete;

  const Segment& segment() const { return *segment_; }

  /// Points slots and workspaces at the arenas, and contexts at the streams (null where a device has none). Does
  /// nothing when `generation` is that of the last call.
  void bind_memory(const std::vector<Arena>& arenas, const std::vector<bp_stream*>& streams,
                   std::uint64_t generation);
  /// Follows the segment, which was resized. To be bound anew.
  void resize(const SegmentChange& change);
  /// The next bind_memory() points everything anew.
  void forget_memory() { generation_ = 0; }
  /// Whether there are slots that own what is in them: sequences, strings, outputs of unknown size.
  bool has_dynamic() const { return !dynamic_.empty(); }
  /// Makes all of them ready to be filled by kernels.
  void empty_dynamic();
  /// Lets go of what is in all of them, or in one, but for memory of a device, or of a known size: that is for the next run,
  /// which else would have to allocate it. To be made ready again.
  void give_dynamic_back();
  void give_back(int slot);
  /// Gives an incoming value (index into Segment::incoming).
  void bind_incoming(std::size_t index, const RuntimeValue& value);
  /// Gives the memory of a fetch.
  void bind_fetch(int fetch, const RuntimeValue& value);
  /// Gives a view (index into Segment::views), which stays until it is handed back.
  void bind_view(std::size_t index, HostView& view);
  HostView& view(std::size_t index) { return *current_views_[index]; }

  RuntimeValue& value(int slot) { return values_[static_cast<std::size_t>(slot)]; }
  /// The state of a step that the core runs itself.
  ControlStep& control(std::int32_t step) { return *control_[static_cast<std::size_t>(step)]; }
  /// True for a slot whose contents one fetch takes and nothing reads afterwards.
  bool is_spare(int slot) const { return is_spare_[static_cast<std::size_t>(slot)]; }
  std::vector<Operation>& operations() { return operations_; }
  std::vector<std::uint64_t>& marks() { return marks_; }
  std::vector<std::unique_ptr<ParallelRun>>& parallel_runs() { return parallel_runs_; }
  /// What devices recorded, by CapturePlan::ranges.
  std::vector<RangeCapture>& captures() { return captures_; }
  /// What kernels ask whether they are to stop; null: nothing ends the run. Costs nothing when it is that of the last run.
  void set_stop(const StopSignal* stop);
  /// What the last run took that could be ended and was not; zero: nobody knows.
  std::chrono::nanoseconds took() const { return took_; }
  void set_took(std::chrono::nanoseconds took) { took_ = took; }

 private:
  /// A slot whose memory belongs to something bound from outside.
  struct Bound {
    RuntimeValue* value;
    std::uint64_t offset;
  };

  void make_values();
  void find_spare();
  void make_contexts(const DeviceSet& devices, const Program& program, bp_threads* threads);
  const bp_value* pointer_for(int slot);
  void set_kernel(std::size_t index);
  static void set_offset(std::vector<Bound>& all, const RuntimeValue& value, std::uint64_t offset);

  std::shared_ptr<const Segment> segment_;
  std::unique_ptr<RuntimeValue[]> values_;  // they cannot be moved
  std::vector<const bp_value*> pointers_;
  std::vector<const bp_tensor*> packs_;
  std::vector<bp_tensor> workspaces_;
  std::vector<std::unique_ptr<UnknownOutputs>> unknown_;  ///< by step; null for most
  std::vector<ComputeContext> contexts_;
  std::vector<Operation> operations_;
  std::vector<std::unique_ptr<ControlStep>> control_;        ///< by step; null for others
  std::vector<bool> is_spare_;                               ///< by slot
  std::vector<std::uint64_t> marks_;                         ///< by step: of steps that signal
  std::vector<std::unique_ptr<ParallelRun>> parallel_runs_;  ///< by group
  std::vector<RangeCapture> captures_;
  std::vector<std::vector<Bound>> incoming_, fetches_, views_;
  std::vector<HostView*> current_views_;  ///< of the last run
  std::vector<std::vector<std::size_t>>
      whole_incoming_;                ///< positions in pointers_: values that are no plain tensors
  std::vector<std::size_t> dynamic_;  ///< slots that own what is in them
  std::uint64_t generation_ = 0;
  const StopSignal* stop_ = nullptr;
  std::chrono::nanoseconds took_{0};
};

}  // namespace backplane::core
