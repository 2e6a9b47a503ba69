// Which device runs which node, and why no other one does.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/kernel_choice.hpp"
#include "core/plugin_host/graph_view.hpp"

namespace backplane::core {

/// A placement rule, resolved against the devices of a session.
struct ResolvedRule {
  std::string pattern;
  std::string provider;      ///< as the user wrote it
  std::vector<int> devices;  ///< that it allows
};

/// A rule as it is given: pattern and provider.
using RuleText = std::pair<std::string, std::string>;

/// Checks rules: a provider of the session, a pattern of a known form. Throws InvalidArgument.
std::vector<ResolvedRule> resolve_rules(const std::vector<RuleText>& rules,
                                        const DeviceSet& devices);

/// What a device was given, or why not.
struct NodePlacement {
  int device = -1;
  std::vector<RegisteredKernel> kernels;  ///< of that device, best first
  std::vector<Reason> reasons;            ///< of devices and kernels that did not get it
};

/// The code of nodes that left a device for its limit of memory.
inline constexpr char kMemoryReason[] = "memory";

/// A (node name, device) pair that create or prepare refused, or that memory does not suffice for, with the sentence.
struct LateRefusal {
  std::string node;
  int device;
  std::string text;
  std::string code = "refused";
};

/// What placement depends on besides the graph.
struct PlacementRequest {
  const DeviceSet* devices = nullptr;
  SchemaCache* schemas = nullptr;
  std::vector<ResolvedRule> rules;
  std::vector<LateRefusal> refused;
  int full_device = -1;  ///< that takes nothing more
};

/// A node that no device takes has device -1 and all the reasons.
using Placement = PerNode<NodePlacement>;

/// Tries the devices in order for every node of `order`. `view` shows the whole graph, for `match`.
Placement place(const Graph& graph, const std::vector<NodeId>& order, const GraphView& view,
                const PlacementRequest& request);

/// One line with all reasons, for errors.
std::string describe(const std::vector<Reason>& reasons);

}  // namespace backplane::core
