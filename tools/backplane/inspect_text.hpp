// An explanation, for people and for Graphviz.
#pragma once

#include <string>

#include "tools/backplane/json.hpp"

namespace backplane::cli {

/// Tables: the model, where its nodes are and what they need. With `all`, every node with its kernel and every
/// refusal's reason, every subgraph and every copy.
std::string explanation_text(const Json& explanation, bool all);

/// The placed graph in the DOT language: nodes coloured by provider, copies on their edges.
std::string explanation_dot(const Json& explanation);

}  // namespace backplane::cli
