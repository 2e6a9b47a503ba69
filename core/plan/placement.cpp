#include "core/plan/placement.hpp"

#include <algorithm>

#include "core/base/nearest_name.hpp"
#include "core/plan/rule_pattern.hpp"

namespace backplane::core {
namespace {

/// The devices that rules leave to a node; nullopt: all.
class RuleTable {
 public:
  RuleTable(const std::vector<ResolvedRule>& rules, const Graph& graph) : rules_(rules) {
    for (const ResolvedRule& rule : rules) patterns_.emplace_back(rule.pattern, graph);
  }
  const ResolvedRule* find(const Node& node) const {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (patterns_[i].fits(node)) return &rules_[i];
    }
    return nullptr;
  }

 private:
  const std::vector<ResolvedRule>& rules_;
  std::vector<RulePattern> patterns_;
};

bool was_refused(const PlacementRequest& request, const Node& node, int device,
                 std::vector<Reason>& reasons) {
  for (const LateRefusal& refusal : request.refused) {
    if (refusal.device == device && refusal.node == node.name) {
      reasons.push_back({request.devices->at(device).label(), "refused", refusal.text});
      return true;
    }
  }
  return false;
}

NodePlacement place_node(const Graph& graph, const Node& node, const bp_node* view_node,
                         const RuleTable& rules, const PlacementRequest& request) {
  NodePlacement placement;
  const ResolvedRule* rule = rules.find(node);
  for (int device = 0; device < static_cast<int>(request.devices->devices.size()); ++device) {
    const SessionDevice& candidate = request.devices->devices[static_cast<std::size_t>(device)];
    const std::string& label = candidate.device->label();
    if (!candidate.placeable) continue;
    if (rule != nullptr &&
        std::find(rule->devices.begin(), rule->devices.end(), device) == rule->devices.end()) {
      placement.reasons.push_back(
          {label, "rule",
           text("the rule '", rule->pattern, "=", rule->provider, "' sends it elsewhere")});
      continue;
    }
    if (was_refused(request, node, device, placement.reasons)) continue;
    placement.kernels =
        matching_kernels(candidate, *request.schemas, graph, node, view_node, placement.reasons);
    if (!placement.kernels.empty()) {
      placement.device = device;
      break;
    }
  }
  return placement;
}

}  // namespace

std::vector<ResolvedRule> resolve_rules(const std::vector<RuleText>& rules,
                                        const DeviceSet& devices) {
  std::vector<std::string> known;
  for (const SessionDevice& device : devices.devices) {
    known.push_back(device.device->provider_name());
    known.push_back(device.device->label());
  }
  std::vector<ResolvedRule> resolved;
  for (const auto& [pattern, provider] : rules) {
    RulePattern::check(pattern);
    ResolvedRule rule{pattern, provider, {}};
    for (std::size_t i = 0; i < devices.devices.size(); ++i) {
      const Device& device = *devices.devices[i].device;
      if (device.label() == provider || device.provider_name() == provider)
        rule.devices.push_back(static_cast<int>(i));
    }
    if (rule.devices.empty()) {
      invalid("placement rule '", pattern, "=", provider, "': the session has no provider '",
              provider, "'", did_you_mean(provider, known));
    }
    resolved.push_back(std::move(rule));
  }
  return resolved;
}

Placement place(const Graph& graph, const std::vector<NodeId>& order, const GraphView& view,
                const PlacementRequest& request) {
  Placement placement(graph.node_limit());
  const RuleTable rules(request.rules, graph);
  for (const NodeId id : order)
    placement[static_cast<std::size_t>(id)] =
        place_node(graph, graph.node(id), view.node(id), rules, request);
  return placement;
}

std::string describe(const std::vector<Reason>& reasons) {
  std::string line;
  for (const Reason& reason : reasons)
    line +=
        (line.empty() ? "" : "; ") + text(reason.provider, " (", reason.code, "): ", reason.text);
  return line;
}

}  // namespace backplane::core
