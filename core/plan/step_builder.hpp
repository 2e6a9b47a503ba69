// From prepared nodes to steps and slots: copies are inserted where a value is read in a memory space it is not in.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/segment.hpp"

namespace backplane::core {

/// Wishes of a step that aliasing looks at; parallel to Segment::steps, empty for what is no kernel's.
struct StepWishes {
  std::shared_ptr<const PrepareResult> said;
  const char* kernel = "";
};

/// Why a value is read in a memory space: put into words only where it has to be copied there.
struct ReadCause {
  const char* before;
  const std::string& name;
  const char* after;
  std::string describe() const { return before + name + after; }
};

/// Numbers by value and memory space; -1 where there is none.
class PlaceTable {
 public:
  PlaceTable(std::size_t values, std::size_t spaces)
      : spaces_(spaces), numbers_(values * spaces, -1) {}
  int& at(ValueId value, int space) { return numbers_[index(value, space)]; }
  int at(ValueId value, int space) const { return numbers_[index(value, space)]; }
  bool contains(ValueId value, int space) const { return at(value, space) >= 0; }

 private:
  std::size_t index(ValueId value, int space) const {
    return value.index() * spaces_ + static_cast<std::size_t>(space);
  }
  std::size_t spaces_;
  std::vector<int> numbers_;
};

/// A segment under construction.
struct SegmentDraft {
  Segment segment;
  std::vector<StepWishes> wishes;       ///< by step
  const ValueStates* before = nullptr;  ///< see plan_segment
};

/// What is asked of a segment: `fetched[k]`: fetch k was served by an earlier segment; the others as
/// plan_segment's.
struct SegmentRequest {
  const std::vector<bool>& fetched;
  const std::vector<int>& fetch_spaces;
  const HostViewWishes& views;
};

/// The memory of a value that is known, in a space. Throws DeviceFull or OutOfMemory where a limit is too small for it.
WeightPtr weight_of(Program& program, ValueId value, const ValueState& state, int space);

/// Makes steps and slots for the nodes of a walk.
class StepBuilder {
 public:
  StepBuilder(Program& program, ShapeWalk& walk, const std::vector<LiveValue>& available,
              const SegmentRequest& request);
  SegmentDraft build();

 private:
  void add_node(const PreparedNode& prepared);
  void add_packs(const Node& node, PreparedKernel& kernel, int space, Step& step);
  void add_control(PreparedNode& planned);
  std::vector<int> control_inputs(const Node& node, const ControlPlan& plan);
  int control_output(const Node& node, std::size_t index, const ControlPlan& plan);
  int input_slot(NodeId node, std::size_t index, const PrepareResult& prepared, int space);
  int output_slot(const Node& node, std::size_t index, const PrepareResult& prepared, int space);
  int slot_in(ValueId value, int space, const ReadCause& cause);
  int constant_slot(ValueId value, int space);
  int copy_to(ValueId value, int space, const ReadCause& cause);
  /// How a copy is done and why: for the explanation.
  struct Reason {
    const char* route;
    const ReadCause& cause;
  };
  int copy_step(int from, int device, int to_space, int to_arena, const Reason& reason);
  int host_copy(int from, Slot to, const ReadCause& cause);
  int shape_slot(ValueId value);
  int new_slot(Slot slot);
  int fetch_space(std::size_t fetch) const {
    return request_.fetch_spaces.empty() ? kHostSpace : request_.fetch_spaces[fetch];
  }
  void place_as_fetch(Slot& slot);
  bool may_view(int device, const Slot& slot) const;
  int view_of_feed(ValueId value, int source, int space, const ReadCause& cause);
  void place_as_view(Slot& slot);
  int add_view(const PlannedView& view, const std::string& cause);
  void hand_views_back();
  std::set<ValueId> needed_later() const;
  int keep_output(Slot slot);
  Slot slot_for(ValueId value, int space) const;
  bool fetch_from_device(ValueId value, int fetch, const ReadCause& cause);
  void leave_on_device(ValueId value, int space, const ReadCause& cause);
  bool must_wait(ValueId value, int space) const;
  void finish_fetches();
  void finish_fetch(std::size_t fetch, const ReadCause& cause);
  void copy_host_fetches();
  void finish_outgoing();
  std::string space_name(int space) const;

  Program& program_;
  const Graph& graph_;
  const DeviceSet& devices_;
  ShapeWalk& walk_;
  const SegmentRequest request_;
  PlaceTable slots_;             ///< where a value is
  PlaceTable available_;         ///< from outside: 0
  std::vector<LiveValue> left_;  ///< by earlier segments
  PerValue<bool> is_fetched_;
  std::set<int> direct_fetches_;                   ///< fetches that a kernel writes directly
  std::vector<std::pair<int, int>> host_fetches_;  ///< (fetch, slot): copied on the host, last
  std::set<ValueId>
      later_fetches_;  ///< values of unknown size that are to be copied to where they are fetched
  std::vector<Step> first_steps_;  ///< that go before all others
  SegmentDraft draft_;
};

}  // namespace backplane::core
