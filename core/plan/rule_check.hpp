// Placement rules that say nothing, or one thing and its contrary.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/plan/placement.hpp"

namespace backplane::core {

/// Looks for the nodes of a model, bodies included, that rules speak of. Returns a sentence for each rule that fits no
/// node, or only nodes that earlier rules send elsewhere. Throws InvalidArgument for two rules that send the same
/// pattern to different providers, and for values of "between" that the model lacks.
std::vector<std::string> check_rules(const std::vector<RuleText>& rules, const Graph& model);

}  // namespace backplane::core
