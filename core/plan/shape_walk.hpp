// Finding all shapes: kernels are prepared in order until something is not known before a run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/program.hpp"
#include "core/plan/value_state.hpp"

namespace backplane::core {

/// A node with what its kernel said, or how the core runs it.
struct PreparedNode {
  NodeId id;
  std::shared_ptr<PreparedKernel> kernel;      ///< null of a node that the core runs itself
  std::shared_ptr<const ControlPlan> control;  ///< of a node that the core runs itself
};

/// What a walk found. `values` carries over to the next segment.
struct ShapeWalk {
  ValueStates values;
  std::vector<PreparedNode> nodes;
  std::vector<NodeId> evaluated;     ///< on the host
  std::size_t end = 0;               ///< position in the program's order where the walk stopped
  std::vector<ValueId> wants_shape;  ///< pending values that the next node needs the shape of
  std::vector<ValueId> wants_value;  ///< values whose elements the next node needs on the host
};

/// What is known of a constant, found once a program. For the thread that plans.
SharedState state_of_constant(Program& program, ValueId id);

/// Walks the program's order from `begin`, given what is known of feeds and of earlier segments' values. Throws
/// KernelRefused when the last candidate kernel of a node refuses its shapes, and Error naming the node for everything
/// else that goes wrong.
ShapeWalk walk_shapes(Program& program, std::size_t begin, ValueStates values);

/// Visits one node as walk_shapes does: sets its outputs in `walk.values`, which has its inputs, and appends it to
/// `nodes` or `evaluated`. False where it cannot be prepared before a run.
bool visit_node(Program& program, ShapeWalk& walk, NodeId id);

/// Whether kernels that prepare find no difference between two values.
bool tells_the_same(const ValueState& a, const ValueState& b);

}  // namespace backplane::core
