#include "core/plan/plan_record.hpp"

#include <algorithm>
#include <unordered_map>

#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

template <class... Parts>
[[noreturn]] void does_not_fit(const Parts&... parts) {
  throw Error(Code::Incompatible, text("the saved plan does not fit: ", parts...));
}

std::unordered_map<std::string, NodeId> nodes_by_name(const Graph& graph) {
  std::unordered_map<std::string, NodeId> nodes;
  for (const NodeId id : graph.node_ids()) nodes.emplace(graph.node(id).name, id);
  return nodes;
}

}  // namespace

int device_named(const std::string& label, const DeviceSet& devices) {
  for (std::size_t i = 0; i < devices.devices.size(); ++i) {
    if (devices.devices[i].device->label() == label) return static_cast<int>(i);
  }
  does_not_fit("the session has no device ", quoted(label));
}

PlanRecord::PlacedNode record_of(const Node& node, const NodePlacement& placement,
                                 const DeviceSet& devices) {
  PlanRecord::PlacedNode record{node.name, "", {}, placement.reasons};
  if (placement.device < 0) return record;
  record.device = devices.at(placement.device).label();
  const std::vector<RegisteredKernel>& known =
      devices.entry(placement.device).registry.find(node.domain, node.op_type);
  for (const RegisteredKernel& kernel : placement.kernels) {
    const auto place = std::find_if(known.begin(), known.end(), [&](const RegisteredKernel& one) {
      return one.def == kernel.def;
    });
    record.kernels.push_back({static_cast<std::size_t>(place - known.begin()), kernel.def->name});
  }
  return record;
}

Placement placement_of(const PlanRecord& record, const Graph& graph,
                       const std::vector<NodeId>& order, const DeviceSet& devices,
                       SchemaCache& schemas) {
  if (record.placement.size() != order.size())
    does_not_fit("it has ", record.placement.size(), " nodes, the graph ", order.size());
  const std::unordered_map<std::string, NodeId> nodes = nodes_by_name(graph);
  Placement placement(graph.node_limit());
  PerNode<bool> seen(graph.node_limit());
  for (const PlanRecord::PlacedNode& placed : record.placement) {
    const auto found = nodes.find(placed.node);
    if (found == nodes.end() || seen[found->second])
      does_not_fit("the graph has no node ", quoted(placed.node), " to place");
    seen[found->second] = true;
    const Node& node = graph.node(found->second);
    NodePlacement& result = placement[found->second];
    result.reasons = placed.reasons;
    if (placed.device.empty()) continue;
    result.device = device_named(placed.device, devices);
    const std::vector<RegisteredKernel>& known =
        devices.entry(result.device).registry.find(node.domain, node.op_type);
    for (const PlanRecord::Kernel& kernel : placed.kernels) {
      if (kernel.place >= known.size() || kernel.name != known[kernel.place].def->name) {
        does_not_fit("node ", quoted(placed.node), " uses the kernel ", quoted(kernel.name),
                     ", which ", placed.device, " does not have in that place");
      }
      if (const auto why = broken_registration(*known[kernel.place].def, schemas, graph, node))
        does_not_fit("node ", quoted(placed.node), ": ", *why);
      result.kernels.push_back(known[kernel.place]);
    }
    if (result.kernels.empty()) does_not_fit("node ", quoted(placed.node), " has no kernel");
  }
  return placement;
}

std::vector<NodeId> order_of(const std::vector<std::string>& names, const Graph& graph) {
  const std::unordered_map<std::string, NodeId> nodes = nodes_by_name(graph);
  if (names.size() != nodes.size())
    does_not_fit("it orders ", names.size(), " nodes, the graph has ", nodes.size());
  std::vector<NodeId> order;
  PerNode<bool> done(graph.node_limit());
  for (const std::string& name : names) {
    const auto found = nodes.find(name);
    if (found == nodes.end() || done[found->second])
      does_not_fit("the graph has no node ", quoted(name), " to put in order");
    const Node& node = graph.node(found->second);
    for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
      for (const ValueId input : *list) {
        const NodeId producer = input == kNone ? kNone : graph.value(input).producer;
        if (producer != kNone && !done[producer])
          does_not_fit("node ", quoted(name), " comes before ", quoted(graph.node(producer).name),
                       ", which it reads");
      }
    }
    done[found->second] = true;
    order.push_back(found->second);
  }
  return order;
}

}  // namespace backplane::core
