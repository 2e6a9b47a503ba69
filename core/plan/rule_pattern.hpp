// Patterns of placement rules.
#pragma once

#include <string>
#include <unordered_set>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// "conv*" (node names, '*' and '?'), "op:NAME", "domain:NAME", "between:VALUE..VALUE".
class RulePattern {
 public:
  /// Throws InvalidArgument for a pattern of no known form.
  static void check(const std::string& pattern);

  /// What a "between" does whose values the graph lacks: bodies lack those of the main graph, and passes remove some.
  enum class Missing { Throws, FitsNothing };

  /// Resolves the pattern against a graph. Throws InvalidArgument for a value that is missing, if that is asked for.
  RulePattern(const std::string& pattern, const Graph& graph, Missing missing = Missing::Throws);
  bool fits(const Node& node) const;

 private:
  enum class Kind { Name, Operator, Domain, Between };
  Kind kind_ = Kind::Name;
  std::string text_;
  std::unordered_set<NodeId> between_;
};

}  // namespace backplane::core
