// Rewrites: a provider edits the nodes it was given; the result is checked before it is taken.
#include <algorithm>
#include <set>

#include "core/plan/placed_graph.hpp"
#include "core/plan/rewrite_editor.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

std::vector<NodeId> nodes_of(const PlacedGraph& placed, int device) {
  std::vector<NodeId> nodes;
  for (const NodeId id : topological_order(*placed.graph)) {
    if (placed.placement[id].device == device && !placed.compiled.contains(id)) nodes.push_back(id);
  }
  return nodes;
}

void add_origins(Node& node, const Node& replaced) {
  for (const std::int32_t origin : replaced.origins) {
    if (std::find(node.origins.begin(), node.origins.end(), origin) == node.origins.end())
      node.origins.push_back(origin);
  }
}

void apply_constants(const bp_rewrite& editor, PlacedGraph& next) {
  for (const bp_rewrite::Constant& constant : editor.constants) {
    const ValueId id = next.graph->value_named(constant.name);
    Value& value = next.graph->value(id);
    if (constant.known != nullptr) {
      value.type = Type::tensor(constant.known->type(), constant.known->dims());
      value.constant = constant.known;
      next.graph->initializers.push_back(id);
      continue;
    }
    value.type = Type::tensor(constant.lazy->type(), constant.lazy->dims());
    for (const std::string& source : constant.sources)
      constant.lazy->sources.push_back(next.constant(next.graph->find_value(source)));
    next.lazy[id] = constant.lazy;
  }
}

void apply_nodes(bp_rewrite& editor, PlacedGraph& next, int device) {
  for (bp_rewrite::Draft& draft : editor.drafts) {
    for (const NodeId id : draft.replaces) {
      add_origins(draft.node, editor.graph->node(id));
      draft.node.priority = std::min(draft.node.priority, editor.graph->node(id).priority);
      // An operator of the model's that reads and writes other values stays what it was.
      const Node& before = editor.graph->node(id);
      if (before.op_type == draft.node.op_type && before.domain == draft.node.domain)
        draft.node.since_version = before.since_version;
    }
  }
  for (const NodeId id : editor.replaced) next.graph->remove_node(id);
  std::map<NodeId, NodeId> heirs;
  for (bp_rewrite::Draft& draft : editor.drafts) {
    for (const std::string& input : draft.inputs)
      draft.node.inputs.push_back(input.empty() ? kNone : next.graph->value_named(input));
    for (const std::string& output : draft.outputs)
      draft.node.outputs.push_back(output.empty() ? kNone : next.graph->value_named(output));
    const NodeId id = next.graph->add_node(draft.node);
    next.placement.resize(next.graph->node_limit());
    next.placement[id].device = device;
    for (const NodeId replaced : draft.replaces) heirs[replaced] = id;
  }
  inherit_control_edges(*editor.graph, heirs, *next.graph);
}

/// Every input is made, given or constant, and everything that is used outside is still made.
void check_values(const PlacedGraph& before, const PlacedGraph& after) {
  for (const Value& value : after.graph->values()) {
    if (value.producer != kNone || value.is_input || value.is_outer || after.is_constant(value.id))
      continue;
    if (!value.uses.empty())
      invalid("nothing makes the value '", value.name, "', which node '",
              after.graph->node(value.uses.front().node).name, "' reads");
    if (value.is_output && before.graph->has_value(value.id))
      invalid("nothing makes the output '", value.name, "' any more");
  }
}

/// Every node of the device has a kernel; the kernels found are kept in the placement.
void check_kernels(PlacedGraph& next, int device, const DeviceSet& devices, SchemaCache& schemas,
                   const std::vector<NodeId>& order) {
  const GraphView view(*next.graph, order);
  for (const NodeId id : order) {
    NodePlacement& placed = next.placement[id];
    if (placed.device != device || !placed.kernels.empty() || next.compiled.contains(id)) continue;
    std::vector<Reason> reasons;
    const Node& node = next.graph->node(id);
    placed.kernels =
        matching_kernels(devices.entry(device), schemas, *next.graph, node, view.node(id), reasons);
    if (placed.kernels.empty())
      invalid("no kernel for the new node '", node.name, "' (", node.domain, "::", node.op_type,
              "): ", describe(reasons));
  }
}

/// Values that others see keep the plain format.
void check_formats(const bp_rewrite& editor, const PlacedGraph& next, int device) {
  for (const auto& [name, format] : editor.formats) {
    const Value& value = next.graph->value(next.graph->find_value(name));
    const bool seen =
        value.is_output || std::any_of(value.uses.begin(), value.uses.end(), [&](const Use& use) {
          return next.placement[use.node].device != device;
        });
    const bool given = value.producer == kNone || next.placement[value.producer].device != device;
    if (format != 0 && given)
      invalid("the value '", value.name, "' comes from outside and must keep the plain format");
    if (format != 0 && seen)
      invalid("the value '", value.name, "' is used outside and must keep the plain format");
  }
}

PlacedGraph apply(bp_rewrite& editor, const PlacedGraph& placed, int device) {
  PlacedGraph next;
  next.graph = std::make_shared<Graph>(*placed.graph);
  next.placement = placed.placement;
  next.lazy = placed.lazy;
  next.formats = placed.formats;
  next.notes = placed.notes;
  next.remarks = placed.remarks;
  apply_constants(editor, next);
  apply_nodes(editor, next, device);
  for (const auto& [name, format] : editor.formats) {
    const ValueId id = next.graph->find_value(name);
    if (id == kNone) invalid("set_format for the unknown value '", name, "'");
    next.formats[id] = format;
  }
  next.notes.insert(editor.notes.begin(), editor.notes.end());
  return next;
}

}  // namespace

void rewrite_nodes(PlacedGraph& placed, int device_index, const DeviceSet& devices,
                   SchemaCache& schemas) {
  Device& device = devices.at(device_index);
  if (!BP_HAS_FN(bp_device_api, &device.api(), rewrite)) return;
  const std::vector<NodeId> nodes = nodes_of(placed, device_index);
  if (nodes.empty()) return;
  try {
    const GraphView view(*placed.graph, nodes);
    bp_rewrite editor;
    editor.graph = placed.graph.get();
    editor.offered = &view;
    editor.plugin = device.plugin();
    editor.identity = device.identity();
    if (bp_status* status = device.call(device.api().rewrite, view.raw(), &editor, &rewrite_api()))
      throw take_error(status);
    if (editor.drafts.empty()) {
      placed.notes.insert(editor.notes.begin(), editor.notes.end());
      return;
    }
    PlacedGraph next = apply(editor, placed, device_index);
    check_values(placed, next);
    check_formats(editor, next, device_index);
    const std::vector<NodeId> order = topological_order(*next.graph);
    for (const auto& [id, compiled] : placed.compiled) {
      if (!next.graph->has_node(id)) invalid("a rewrite replaced the compiled node ", id);
    }
    std::swap(next.compiled, placed.compiled);
    try {
      check_kernels(next, device_index, devices, schemas, order);
    } catch (...) {
      std::swap(next.compiled, placed.compiled);
      throw;
    }
    placed = std::move(next);
  } catch (const Error& error) {
    placed.remarks.push_back(
        text("the rewrite of ", device.label(),
             " was dropped and its nodes stay as they are: ", error.message()));
  }
}

}  // namespace backplane::core
