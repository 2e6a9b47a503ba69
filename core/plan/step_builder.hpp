// From prepared nodes to steps and slots: copies are inserted where a value is read in a memory space it is not in.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/plan/segment.hpp"

namespace backplane::core {

/// Wishes of a step that aliasing looks at; parallel to Segment::steps, empty for copies.
struct StepWishes {
  std::vector<OutputPlan> outputs;
  std::vector<InsideWish> insides;
  std::vector<bool> strided_inputs;
  std::string kernel;
  std::uint64_t workspace_alignment = 64;
};

/// A segment under construction.
struct SegmentDraft {
  Segment segment;
  std::vector<StepWishes> wishes;  ///< by step
};

/// Makes steps and slots for the nodes of a walk. `fetched[k]`: fetch k was served by an earlier segment.
class StepBuilder {
 public:
  StepBuilder(Program& program, ShapeWalk& walk, const std::vector<Border>& available,
              const std::vector<bool>& fetched);
  SegmentDraft build();

 private:
  using Key = std::pair<ValueId, int>;

  void add_node(PreparedNode& prepared);
  int input_slot(NodeId node, std::size_t index, const PrepareResult& prepared, int space);
  int output_slot(const Node& node, std::size_t index, const PrepareResult& prepared, int space);
  int slot_in(ValueId value, int space, const std::string& cause);
  int constant_slot(ValueId value, int space);
  int copy_to(ValueId value, int space, const std::string& cause);
  int copy_step(int from, int device, int to_space, int to_arena, const std::string& cause);
  int host_copy(int from, Slot to, const std::string& cause);
  int shape_slot(ValueId value);
  int new_slot(Slot slot);
  Slot slot_for(ValueId value, int space) const;
  bool fetch_from_device(ValueId value, int fetch, const std::string& cause);
  void finish_fetches();
  void finish_borders();
  std::int32_t copy_mode(int device, bp_memory_kind from, bp_memory_kind to, int peer) const;
  std::string space_name(int space) const;

  Program& program_;
  const Graph& graph_;
  const DeviceSet& devices_;
  ShapeWalk& walk_;
  const std::vector<bool>& fetched_;
  std::map<Key, int> slots_;      ///< where a value is
  std::map<Key, int> available_;  ///< from outside, not used yet
  std::set<int> direct_fetches_;  ///< fetches that a kernel writes directly
  SegmentDraft draft_;
};

}  // namespace backplane::core
