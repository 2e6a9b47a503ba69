// Finds the activation that follows a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// An activation and the nodes that write it, in order; the last one's output is the result.
struct ActivationMatch {
  Activation activation;
  std::vector<WorkNode*> nodes;
};

/// Whether `node` is an activation of its input `value`; writes which.
bool is_activation(const WorkingGraph& graph, const WorkNode& node, const std::string& value,
                   Activation& activation);

/// The activation of `value`, if nothing else reads the value and what lies between.
std::optional<ActivationMatch> match_activation(const WorkingGraph& graph,
                                                const std::string& value);

/// `node`, which made output 0, takes over the activation that follows it, if there is one.
void absorb_activation(WorkingGraph& graph, WorkNode* node);

}  // namespace backplane::cpu
