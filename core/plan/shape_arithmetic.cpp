#include "core/plan/shape_arithmetic.hpp"

#include <algorithm>
#include <set>

namespace backplane::core {
namespace {

std::int32_t role_of(const bp_kernel_def& def, std::size_t input) {
  return KernelHandle::role(def.input_roles, def.input_role_count, input);
}

/// The host evaluator's kernel for a node, if it has one whose results do not vary.
const bp_kernel_def* evaluating_kernel(const Graph& graph, const Node& node,
                                       const DeviceSet& devices, SchemaCache& schemas) {
  if (devices.host_evaluator < 0 || node.has_bodies()) return nullptr;
  std::vector<Reason> reasons;
  const auto kernels = matching_kernels(devices.entry(devices.host_evaluator), schemas, graph, node,
                                        nullptr, reasons);
  if (kernels.empty() || (kernels.front().def->flags & BP_KERNEL_NOT_DETERMINISTIC) != 0)
    return nullptr;
  return kernels.front().def;
}

/// A feed that may be part of a plan's key: a small tensor of rank 0 or 1.
bool may_be_keyed(const Value& value) {
  if (!value.is_input || !value.type.is_tensor() || !value.type.shape ||
      value.type.element == DataType::String)
    return false;
  return value.type.shape->size() <= 1;
}

/// Marks of one walk over the graph.
class Analysis {
 public:
  Analysis(const Graph& graph, const std::vector<NodeId>& order, const Placement& placement,
           const DeviceSet& devices, SchemaCache& schemas,
           const std::function<bool(ValueId)>& is_constant)
      : graph_(graph),
        order_(order),
        placement_(placement),
        is_constant_(is_constant),
        possible_(graph.value_count()),
        kernels_(graph.node_limit()) {
    for (const NodeId id : order)
      kernels_[id] = evaluating_kernel(graph, graph.node(id), devices, schemas);
  }

  ShapeArithmetic run() {
    walk([&](const Value& value) { return may_be_keyed(value); });
    const std::set<ValueId> keyed = keyed_inputs();
    std::fill(possible_.begin(), possible_.end(), false);
    ShapeArithmetic result;
    result.host_node.resize(graph_.node_limit());
    for (const NodeId id : walk([&](const Value& value) { return keyed.contains(value.id); }))
      result.host_node[id] = true;
    result.keyed_inputs.assign(keyed.begin(), keyed.end());
    return result;
  }

 private:
  /// Forwards: which nodes can be evaluated if the inputs that `known` accepts are known.
  template <class Known>
  std::vector<NodeId> walk(const Known& known) {
    std::vector<NodeId> nodes;
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      const bp_kernel_def* kernel = kernels_[id];
      if (kernel == nullptr) continue;
      bool all = true;
      for (std::size_t i = 0; i < node.inputs.size() && all; ++i) {
        const ValueId input = node.inputs[i];
        if (input == kNone || role_of(*kernel, i) == BP_INPUT_SHAPE_ONLY) continue;
        all = is_constant_(input) || possible_[input] || known(graph_.value(input));
      }
      if (!all) continue;
      nodes.push_back(id);
      for (const ValueId output : node.outputs) {
        if (output != kNone) possible_[output] = true;
      }
    }
    return nodes;
  }

  /// Backwards from shape inputs, through nodes that can be evaluated, to graph inputs.
  std::set<ValueId> keyed_inputs() const {
    std::vector<ValueId> open;
    for (const NodeId id : order_) {
      const NodePlacement& placed = placement_[id];
      const bp_kernel_def* kernel =
          placed.kernels.empty() ? kernels_[id] : placed.kernels.front().def;
      if (kernel == nullptr) continue;
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && role_of(*kernel, i) == BP_INPUT_HOST_VALUE)
          open.push_back(node.inputs[i]);
      }
    }
    std::set<ValueId> seen, keyed;
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (!seen.insert(id).second) continue;
      const Value& value = graph_.value(id);
      if (may_be_keyed(value)) keyed.insert(id);
      if (value.producer == kNone || !possible_[id]) continue;
      const bp_kernel_def* kernel = kernels_[value.producer];
      const Node& node = graph_.node(value.producer);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && role_of(*kernel, i) != BP_INPUT_SHAPE_ONLY)
          open.push_back(node.inputs[i]);
      }
    }
    return keyed;
  }

  const Graph& graph_;
  const std::vector<NodeId>& order_;
  const Placement& placement_;
  const std::function<bool(ValueId)>& is_constant_;
  PerValue<bool> possible_;
  PerNode<const bp_kernel_def*> kernels_;
};

}  // namespace

ShapeArithmetic find_shape_arithmetic(const Graph& graph, const std::vector<NodeId>& order,
                                      const Placement& placement, const DeviceSet& devices,
                                      SchemaCache& schemas,
                                      const std::function<bool(ValueId)>& is_constant) {
  return Analysis(graph, order, placement, devices, schemas, is_constant).run();
}

}  // namespace backplane::core
