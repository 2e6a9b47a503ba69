// Steps of nodes that the core runs itself: If, Loop, Scan.
#include <algorithm>

#include "core/plan/step_builder.hpp"

namespace backplane::core {
namespace {

std::string label_of(const ControlPlan& plan) {
  switch (plan.node->kind) {
    case ControlKind::If:
      return plan.branch < 0
                 ? "If: the host waits for the condition and for the branch"
                 : text("If: always its ",
                        plan.node->bodies[static_cast<std::size_t>(plan.branch)].attribute);
    case ControlKind::Loop:
      return plan.trip_count ? text("Loop of ", *plan.trip_count, " turns: the host waits for each")
                             : "Loop: the host waits for each turn and for its condition";
    case ControlKind::Scan:
      break;
  }
  return text("Scan of ", plan.trip_count.value_or(0), " turns: the host waits for each");
}

}  // namespace

void StepBuilder::add_control(PreparedNode& planned) {
  const Node& node = graph_.node(planned.id);
  Step step;
  step.kind = StepKind::Control;
  step.node = planned.id;
  step.control = planned.control;
  step.inputs = control_inputs(node, *planned.control);
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    step.outputs.push_back(control_output(node, i, *planned.control));
  step.input_state.resize(step.inputs.size());
  step.label = label_of(*planned.control);
  draft_.wishes.resize(draft_.segment.steps.size() + 1);
  draft_.segment.steps.push_back(std::move(step));
}

/// The node's inputs, then what the bodies capture; each where its body wants it.
std::vector<int> StepBuilder::control_inputs(const Node& node, const ControlPlan& plan) {
  const ControlNode& control = *plan.node;
  std::vector<int> slots;
  // Feeds of the body before and behind which the node has inputs of another kind.
  const std::size_t skipped = control.kind == ControlKind::Loop ? 2 : control.scan.batched ? 1 : 0;
  const std::size_t first_feed = control.kind == ControlKind::Loop ? 2 : 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool settled = control.kind == ControlKind::If && plan.branch >= 0;
    if (node.inputs[i] == kNone || settled) {
      slots.push_back(-1);
      continue;
    }
    const bool on_host = control.kind == ControlKind::If || i < skipped;
    const int space = on_host ? kHostSpace : plan.places[0].feeds[first_feed + i - skipped];
    slots.push_back(slot_in(node.inputs[i], space, {"node '", node.name, "' reads it"}));
  }
  for (std::size_t b = 0; b < control.bodies.size(); ++b) {
    const ControlBody& body = control.bodies[b];
    const std::string reader = text("the ", body.attribute, " of node '");
    const bool runs = plan.branch < 0 || plan.branch == static_cast<int>(b);
    for (std::size_t i = 0; i < body.captured.size(); ++i) {
      if (!runs) {
        slots.push_back(-1);
        continue;
      }
      slots.push_back(slot_in(body.captured[i], plan.places[b].feeds[body.input_count + i],
                              {reader.c_str(), node.name, "' reads it"}));
    }
  }
  return slots;
}

int StepBuilder::control_output(const Node& node, std::size_t index, const ControlPlan& plan) {
  const ValueId value = node.outputs[index];
  if (value == kNone) return -1;
  Slot slot = slot_for(value, plan.output_spaces[index]);
  if (plan.direct[index]) {
    place_as_fetch(slot);
  } else {
    slot.place = Place::Dynamic;  // the body's last result is handed over, memory and all
  }
  return keep_output(std::move(slot));
}

}  // namespace backplane::core
