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

/// Whether `node` computes `op` of x and, behind x where the order counts, one number, which does not widen it: writes both.
bool takes_number(const WorkingGraph& graph, const WorkNode& node, std::string_view op,
                  std::string& x, float& number);

/// `node`, which made output 0, takes over the activation that follows it, if there is one, and with `may_rescale` the arithmetic
/// with single numbers behind that.
void absorb_activation(WorkingGraph& graph, WorkNode* node, bool may_rescale = true);

}  // namespace backplane::cpu
