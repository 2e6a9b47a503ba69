// A segment: the steps between two points where shapes become known, with memory and order decided.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/capture_ranges.hpp"
#include "core/plan/host_views.hpp"
#include "core/plan/memory_plan.hpp"
#include "core/plan/shape_walk.hpp"
#include "core/plan/weight_store.hpp"
#include "core/plugin_host/host_memory.hpp"

namespace backplane::core {

/// Where a slot's memory is.
enum class Place {
  Nowhere,   ///< type and dims alone: nobody reads elements
  Arena,     ///< in an arena of the run, at `offset`
  Incoming,  ///< in value `number` that comes from outside (a feed, an earlier segment), at `offset`
  Fetch,     ///< in fetch `number`, at `offset`
  Weight,    ///< constant, at `offset` of `weight`
  View,      ///< in host memory that a device views: of Segment::views[`number`], at `offset`
  Dynamic,  ///< of a size that its kernel tells; strings; sequences, optionals, maps: owned by the slot
};

/// A value in one memory space.
struct Slot {
  ValueId value;
  int space = kHostSpace;
  Place place = Place::Nowhere;
  int number = -1;  ///< of an incoming value, fetch or view
  int arena = -1;   ///< see arena_count
  std::uint64_t offset = 0;
  std::uint64_t room = 0;  ///< in an arena: bytes from `offset` on that nothing else has meanwhile
  int first = -1, last = -1;  ///< in an arena: the steps from and to which its memory is in use
  SharedState state;          ///< type, dims, format, bytes
  std::optional<std::vector<std::int64_t>> strides;
  WeightPtr weight;
};

/// Bytes from a tensor's first element to behind its last one, where it lies with such strides.
std::uint64_t extent(const ValueState& state,
                     const std::optional<std::vector<std::int64_t>>& strides);
inline std::uint64_t extent(const Slot& slot) { return extent(*slot.state, slot.strides); }

/// Whether the value is handed on as a whole, and not by the memory of its elements: of unknown size, strings, sequences,
/// optionals, maps.
inline bool is_whole(const Slot& slot) {
  return slot.state->kind != ValueState::Kind::Tensor || slot.state->type == DataType::String;
}

/// Somebody must wait until a stream has passed a step.
struct Wait {
  int stream;  ///< index of the device whose stream it is
  int step;
  bool operator==(const Wait&) const = default;
};

enum class StepKind {
  Compute,
  Copy,      ///< between a device and the host, or two devices: by `device`
  HostCopy,  ///< from host memory to host memory
  Control,   ///< If, Loop, Scan: bodies run, and the host waits for each
  HandOver,  ///< a view becomes its device's: outputs[0]; of a feed, inputs[0] is where that lies
  HandBack,  ///< a view becomes the host's: inputs[0]; of a fetch, outputs[0] is where that lies
};

/// One thing to do.
struct Step {
  StepKind kind = StepKind::Compute;
  NodeId node;              ///< of Compute and Control
  int device = -1;          ///< that executes it; -1: the host (HostCopy)
  bool on_stream = false;   ///< put on the device's stream; else done when it returns
  std::vector<int> inputs;  ///< slots; -1: left out
  std::vector<int> outputs;
  std::vector<std::uint32_t> input_state;
  std::shared_ptr<PreparedKernel> kernel;  ///< of Compute
  std::shared_ptr<const ControlPlan>
      control;  ///< of Control; inputs: the node's, then each body's captured values
  std::vector<WeightPtr> packs;
  int workspace_arena = -1;  ///< -1: none
  std::uint64_t workspace_offset = 0;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t workspace_room = 0;  ///< the same or more
  std::vector<Wait> waits;
  bool signals = false;  ///< somebody waits for this step
  /// Of a copy by way of pinned memory that is done piece by piece, the device's and the host's half in turn: the other step.
  int other_half = -1;
  int record = -1;        ///< of Copy: in Segment::copies
  std::vector<int> dead;  ///< slots that own what is in them, which nothing reads after this step
  std::string label;      ///< kernel and variant, or what is copied: for traces and explanations
};

/// A node that needs no step, since all its outputs are views.
struct DroppedNode {
  NodeId node;
  std::string name;  ///< of the kernel
  std::shared_ptr<PreparedKernel> kernel;
};

/// A copy, for the explanation.
struct CopyRecord {
  std::string value, from, to, cause;
  std::uint64_t bytes = 0;  ///< that are moved
  /// "direct", "peer" (from device to device), "staged" (by pinned memory) or "view" (the device works on the host's
  /// memory: no bytes are moved).
  std::string route;
  std::uint64_t value_bytes = 0;
  std::size_t pieces =
      1;  ///< more: copied piece by piece, while the host copies the next one or the one before
};

/// Host memory of a feed or fetch that a device works on instead of a copy.
struct PlannedView {
  int device = -1;
  int host_slot = -1;  ///< the feed or fetch
  int slot = -1;       ///< the same bytes as the device sees them
  ViewAccess access = ViewAccess::Read;
};

/// A value in a space that lives beyond one segment: fed or left by an earlier one, or needed after it.
struct LiveValue {
  ValueId value;
  int space = kHostSpace;
  int slot = -1;
  bool operator<(const LiveValue& other) const {
    return std::pair(value, space) < std::pair(other.value, other.space);
  }
};

/// Consecutive steps of which some may run at the same time. Indices into `steps` where no other thing is said.
struct ParallelGroup {
  std::vector<int> steps;            ///< indices into Segment::steps, ascending, without gaps
  std::vector<int> waits_for;        ///< how many steps of the group must be done before
  std::vector<int> first_successor;  ///< into `successors`; one more than there are steps
  std::vector<int> successors;
};

struct ResizeIndex;

/// Steps, slots and memory of a part of a program for one set of shapes. Immutable, but for resize_segment().
///
/// Lifetime: borrows the program.
struct Segment {
  std::size_t begin = 0, end = 0;  ///< positions in the program's order
  bool is_last = false;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<LiveValue> incoming;
  std::vector<LiveValue> outgoing;  ///< needed after the segment
  std::vector<LiveValue> dead;      ///< left by earlier segments, and not needed after this one
  std::vector<std::pair<int, int>>
      fetches;  ///< (fetch, slot): written by this segment, tensors of known size
  std::vector<std::pair<int, int>>
      dynamic_fetches;  ///< (fetch, slot): the slot's contents become the fetch's
  std::vector<std::uint64_t> arena_bytes;  ///< by arena
  std::map<int, MemoryBlocks>
      split_arenas;  ///< those of several buffers, since one would be too large for its device
  std::vector<bool> used_streams;                 ///< by device
  ValueStates values;                             ///< what is known after it
  std::vector<ValueId> wants_shape, wants_value;  ///< what the next segment needs to know
  std::vector<NodeId> evaluated;                  ///< nodes that were evaluated while planning
  std::vector<std::pair<int, int>>
      over_feeds;  ///< (slot of a fetch, slot of a feed): may be one memory, if their bytes are as many
  std::vector<DroppedNode> dropped;
  std::vector<CopyRecord> copies;
  std::vector<PlannedView> views;
  std::vector<ParallelGroup> groups;  ///< in order; none where execution is sequential
  std::shared_ptr<CapturePlan>
      capture;  ///< null: nothing is recorded. Its tallies are the one thing here that runs change
  std::shared_ptr<ResizeIndex> resize_index;  ///< made when it is first resized

  /// Slots and steps are told by numbers, of which -1 is none.
  Slot& slot(int number) { return slots[static_cast<std::size_t>(number)]; }
  const Slot& slot(int number) const { return slots[static_cast<std::size_t>(number)]; }
  Step& step(int number) { return steps[static_cast<std::size_t>(number)]; }
  const Step& step(int number) const { return steps[static_cast<std::size_t>(number)]; }
};

/// Arenas: one per memory space, then one of pinned memory per device.
inline std::size_t arena_count(const DeviceSet& devices) {
  return devices.space_count() + devices.devices.size();
}
inline int pinned_arena(const DeviceSet& devices, int device) {
  return static_cast<int>(devices.space_count()) + device;
}
/// What a buffer of an arena may have at most.
std::uint64_t most_buffer_bytes(const DeviceSet& devices, int arena);

/// Where in an arena something is.
struct ArenaPlace {
  std::size_t buffer;
  std::uint64_t offset;
};
inline ArenaPlace place_in_arena(const Segment& segment, int arena, std::uint64_t offset) {
  if (segment.split_arenas.empty()) return {0, offset};
  const auto split = segment.split_arenas.find(arena);
  if (split == segment.split_arenas.end()) return {0, offset};
  return {static_cast<std::size_t>(offset / split->second.span), offset % split->second.span};
}

/// Plans the program from `begin` on, given what is known of values, and which of them lie where (`available`: feeds,
/// and what earlier segments left; only value and space count). `fetch_spaces`: where fetches are to be left; empty: on
/// the host. `views`: feeds and fetches that may be viewed where they lie. `before`: what the plan before knew of values
/// (null: there is none); what is a little larger now may go on growing, and gets room. Throws as walk_shapes does.
std::unique_ptr<Segment> plan_segment(Program& program, std::size_t begin, ValueStates values,
                                      const std::vector<LiveValue>& available,
                                      const std::vector<bool>& fetched,
                                      const std::vector<int>& fetch_spaces = {},
                                      const HostViewWishes& views = {},
                                      const ValueStates* before = nullptr);

}  // namespace backplane::core
