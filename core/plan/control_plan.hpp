// Planning a control-flow node: what its outputs will be, and where, as far as that does not depend on a run.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/plan/control_flow.hpp"

namespace backplane::core {

/// What the shape walk knows of the values around a control-flow node.
struct ControlInputs {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  /// State of an outer value, constants included.
  std::function<const ValueState&(ValueId)> state;
  /// The elements of a value, if they can be known now; else null.
  std::function<const RuntimeValue*(ValueId)> known;
};

/// The branch that runs, if the condition of an If is known; -1 otherwise.
int known_branch(const ControlNode& control, const ControlInputs& inputs);

/// Plans the node for inputs and captured values whose types and dims are all known. Throws Error for inputs that do
/// not fit.
std::shared_ptr<const ControlPlan> plan_control(const ControlNode& control,
                                                const ControlInputs& inputs);

}  // namespace backplane::core
