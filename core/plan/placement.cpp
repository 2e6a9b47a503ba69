#include "core/plan/placement.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/base/nearest_name.hpp"
#include "core/plan/cost_placement.hpp"
#include "core/plan/rule_pattern.hpp"

namespace backplane::core {
namespace {

/// The devices that rules leave to a node; nullopt: all.
class RuleTable {
 public:
  RuleTable(const std::vector<ResolvedRule>& rules, const Graph& graph) : rules_(rules) {
    for (const ResolvedRule& rule : rules)
      patterns_.emplace_back(rule.pattern, graph, RulePattern::Missing::FitsNothing);
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

/// What was refused late, by node and device.
class RefusalTable {
 public:
  explicit RefusalTable(const std::vector<LateRefusal>& refused) {
    for (const LateRefusal& refusal : refused) by_node_.emplace(refusal.node, &refusal);
  }
  const LateRefusal* find(const Node& node, int device) const {
    const auto [first, last] = by_node_.equal_range(node.name);
    for (auto one = first; one != last; ++one) {
      if (one->second->device == device) return one->second;
    }
    return nullptr;
  }

 private:
  std::unordered_multimap<std::string_view, const LateRefusal*> by_node_;
};

/// Asks devices for a node.
class NodePlacer {
 public:
  NodePlacer(const Graph& graph, const GraphView& view, const RuleTable& rules,
             const PlacementRequest& request)
      : graph_(graph), view_(view), rules_(rules), refused_(request.refused), request_(request) {}

  /// The device's kernels for the node; none: the reasons say why.
  std::vector<RegisteredKernel> ask(const Node& node, int device, std::vector<Reason>& reasons,
                                    bp_cost* cost = nullptr) const {
    const SessionDevice& candidate = request_.devices->entry(device);
    if (!candidate.placeable || device == request_.full_device) return {};
    const ResolvedRule* rule = rules_.find(node);
    if (rule != nullptr &&
        std::find(rule->devices.begin(), rule->devices.end(), device) == rule->devices.end()) {
      reasons.push_back(
          {candidate.device->label(), "rule",
           text("the rule '", rule->pattern, "=", rule->provider, "' sends it elsewhere")});
      return {};
    }
    if (const LateRefusal* const refusal = refused_.find(node, device)) {
      reasons.push_back({candidate.device->label(), refusal->code, refusal->text});
      return {};
    }
    return matching_kernels(candidate, *request_.schemas, graph_, node, view_.node(node.id),
                            reasons, cost);
  }

  /// The first device that takes the node.
  NodePlacement first(const Node& node) const {
    NodePlacement placement;
    for (int device = 0; device < static_cast<int>(request_.devices->devices.size()); ++device) {
      placement.kernels = ask(node, device, placement.reasons);
      if (placement.kernels.empty()) continue;
      placement.device = device;
      break;
    }
    return placement;
  }

 private:
  const Graph& graph_;
  const GraphView& view_;
  const RuleTable& rules_;
  const RefusalTable refused_;
  const PlacementRequest& request_;
};

/// Places by cost: every device is asked for every node, and then nodes move to where they cost less.
Placement place_by_cost(const Graph& graph, const std::vector<NodeId>& order,
                        const NodePlacer& placer, const DeviceSet& devices) {
  const auto count = static_cast<int>(devices.devices.size());
  std::vector<NodeOffers> offers(order.size());
  Placement placement(graph.node_limit());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Node& node = graph.node(order[i]);
    for (int device = 0; device < count; ++device) {
      Offer offer;
      offer.cost.struct_size = sizeof(offer.cost);
      offer.kernels = placer.ask(node, device, offer.reasons, &offer.cost);
      offers[i].push_back(std::move(offer));
    }
  }
  for (CostedPlace& place : places_by_cost(graph, order, offers, devices)) {
    NodePlacement& placed = placement[place.node];
    placed.device = place.device;
    placed.reasons = std::move(place.reasons);
    placed.kernels = std::move(place.kernels);
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
    if (rule.devices.empty() && devices.is_left_out(provider)) continue;
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
  const RuleTable rules(request.rules, graph);
  const NodePlacer placer(graph, view, rules, request);
  if (request.devices->costs != nullptr)
    return place_by_cost(graph, order, placer, *request.devices);
  Placement placement(graph.node_limit());
  for (const NodeId id : order) placement[id] = placer.first(graph.node(id));
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
