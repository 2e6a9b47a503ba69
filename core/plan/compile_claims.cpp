// Claims: a provider compiles convex subgraphs whole.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/quote.hpp"
#include "core/plan/placed_graph.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// A claim, copied from what the provider showed.
struct Claim {
  std::vector<NodeId> nodes;
  std::string name;
  std::uint32_t id = 0;
};

struct ClaimCollector {
  const std::set<NodeId>* offered;
  std::set<NodeId> taken;
  std::vector<Claim> claims;
};

bp_status* collect_claim(void* sink_ctx, const bp_claim* claim) {
  return status_of([&] {
    auto& collector = *static_cast<ClaimCollector*>(sink_ctx);
    check_struct(claim, BP_SIZE_V1(bp_claim, reserved0), "a claim");
    Claim copy;
    copy.name = is_plain_text(claim->name) ? claim->name : "compiled";
    check_array(claim->nodes, claim->node_count,
                "the nodes of the claim " + core::quoted(copy.name));
    copy.id = claim->claim_id;
    for (std::uint64_t i = 0; i < claim->node_count; ++i) {
      const NodeId id = GraphView::id_of(claim->nodes[i]);
      if (!collector.offered->contains(id))
        invalid("the claim '", copy.name, "' names a node that was not offered");
      if (!collector.taken.insert(id).second)
        invalid("the claim '", copy.name, "' names a node that is claimed already");
      copy.nodes.push_back(id);
    }
    if (!copy.nodes.empty()) collector.claims.push_back(std::move(copy));
  });
}

/// Splits claimed nodes into convex parts: following the order, a node joins the current part unless a path leads
/// from the part through a node outside of it to this node.
std::vector<std::vector<NodeId>> convex_parts(const Graph& graph, const std::vector<NodeId>& order,
                                              const std::set<NodeId>& claimed) {
  std::vector<std::vector<NodeId>> parts;
  std::unordered_map<NodeId, int> part_of;
  // For each node: the largest number of a part from which a path through an outside node leads here; -1: none.
  std::unordered_map<NodeId, int> tainted_by;
  for (const NodeId id : order) {
    int tainted = -1, latest = -1;
    const Node& node = graph.node(id);
    std::vector<ValueId> read = node.inputs;
    read.insert(read.end(), node.captured.begin(), node.captured.end());
    for (const ValueId input : read) {
      if (input == kNone || graph.value(input).producer == kNone) continue;
      const NodeId producer = graph.value(input).producer;
      tainted = std::max(tainted, tainted_by.at(producer));
      const auto part = part_of.find(producer);
      if (part == part_of.end()) continue;
      latest = std::max(latest, part->second);
      if (!claimed.contains(id)) tainted = std::max(tainted, part->second);
    }
    if (claimed.contains(id)) {
      const int current = static_cast<int>(parts.size()) - 1;
      const bool joins = current >= 0 && tainted < current && (latest == current || latest < 0);
      if (!joins) parts.emplace_back();
      parts.back().push_back(id);
      const int part = static_cast<int>(parts.size()) - 1;
      part_of[id] = part;
      tainted = std::max(tainted, joins ? tainted : std::max(latest, tainted));
    }
    tainted_by[id] = tainted;
  }
  return parts;
}

/// The graph with the nodes of a part contracted into one; throws when that would close a cycle.
std::shared_ptr<Graph> contract(const Graph& graph, const Graph& source, const GraphView& view,
                                const std::vector<NodeId>& nodes, Node node, NodeId* id) {
  auto contracted = std::make_shared<Graph>(graph);
  node.inputs = view.inputs();
  node.outputs = view.outputs();
  for (const NodeId part : nodes) {
    const std::vector<std::int32_t>& origins = source.node(part).origins;
    node.origins.insert(node.origins.end(), origins.begin(), origins.end());
    contracted->remove_node(part);
  }
  *id = contracted->add_node(std::move(node));
  std::map<NodeId, NodeId> heirs;
  for (const NodeId part : nodes) heirs[part] = *id;
  inherit_control_edges(source, heirs, *contracted);
  topological_order(*contracted);
  return contracted;
}

/// Compiles one part and puts a node in its place. Throws what stands in the way.
void compile_part(PlacedGraph& placed, const std::shared_ptr<const Graph>& source, int device_index,
                  Device& device, const Claim& claim, const std::vector<NodeId>& nodes,
                  bp_create_ctx& ctx) {
  CompiledNode compiled;
  compiled.graph = source;
  compiled.view = std::make_shared<GraphView>(*source, nodes);
  Node node;
  node.op_type = claim.name;
  node.domain = "backplane." + device.provider_name();
  node.since_version = 1;
  NodeId id;
  auto contracted = contract(*placed.graph, *source, *compiled.view, nodes, std::move(node), &id);

  const bp_kernel_def* def = nullptr;
  bp_kernel* kernel = nullptr;
  if (bp_status* status =
          device.call(device.api().compile, &ctx, compiled.view->raw(), claim.id, &def, &kernel))
    throw take_error(status);
  if (def == nullptr || kernel == nullptr)
    throw Error(Code::Internal, "it was compiled into nothing");
  check_struct(def, BP_SIZE_V1(bp_kernel_def, compute), "the compiled kernel's definition");
  compiled.kernel = KernelHandle(device.shared_from_this(), device.plugin(), def, kernel);
  check_kernel(*def, false);
  placed.graph = std::move(contracted);
  placed.placement.resize(placed.graph->node_limit());
  placed.placement[id].device = device_index;
  placed.compiled[id] = std::move(compiled);
}

}  // namespace

void compile_claims(PlacedGraph& placed, int device_index, const DeviceSet& devices,
                    bp_threads* threads, std::uint64_t flags) {
  Device& device = devices.at(device_index);
  if (!BP_HAS_FN(bp_device_api, &device.api(), claims) ||
      !BP_HAS_FN(bp_device_api, &device.api(), compile))
    return;
  const std::vector<NodeId> order = topological_order(*placed.graph);
  std::vector<NodeId> nodes;
  for (const NodeId id : order) {
    if (placed.placement[id].device == device_index) nodes.push_back(id);
  }
  const std::shared_ptr<const Graph> source = std::make_shared<Graph>(*placed.graph);
  const std::set<NodeId> offered(nodes.begin(), nodes.end());
  ClaimCollector collector{&offered, {}, {}};
  const GraphView view(*source, nodes);
  if (bp_status* status = device.call(device.api().claims, view.raw(), &collector, collect_claim)) {
    placed.remarks.push_back(
        text("the claims of ", device.label(), " were dropped: ", take_error(status).message()));
    return;
  }
  CreateContext ctx = make_create_context(devices, device_index, false, threads, flags);
  for (const Claim& claim : collector.claims) {
    const auto parts =
        convex_parts(*source, order, std::set<NodeId>(claim.nodes.begin(), claim.nodes.end()));
    if (parts.size() > 1) {
      placed.remarks.push_back(text("the claim '", claim.name, "' of ", device.label(),
                                    " was split into ", parts.size(), " parts: it was not convex"));
    }
    for (const auto& part : parts) {
      try {
        compile_part(placed, source, device_index, device, claim, part, ctx);
      } catch (const Error& error) {
        placed.remarks.push_back(text("the claim '", claim.name, "' of ", device.label(),
                                      " was not taken: ", error.message()));
      }
    }
  }
}

}  // namespace backplane::core
