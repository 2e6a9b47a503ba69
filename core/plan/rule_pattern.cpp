#include "core/plan/rule_pattern.hpp"

#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/wildcard.hpp"

namespace backplane::core {
namespace {

constexpr std::string_view kOperator = "op:";
constexpr std::string_view kDomain = "domain:";
constexpr std::string_view kBetween = "between:";

/// All nodes that are reached from a value, forwards through uses or backwards through producers.
std::unordered_set<NodeId> reach(const Graph& graph, ValueId from, bool forwards) {
  std::unordered_set<NodeId> reached;
  std::vector<ValueId> open{from};
  while (!open.empty()) {
    const Value& value = graph.value(open.back());
    open.pop_back();
    std::vector<NodeId> next;
    if (forwards) {
      for (const Use& use : value.uses) next.push_back(use.node);
    } else if (value.producer != kNone) {
      next.push_back(value.producer);
    }
    for (const NodeId id : next) {
      if (!reached.insert(id).second) continue;
      const Node& node = graph.node(id);
      for (const ValueId other : forwards ? node.outputs : node.inputs) {
        if (other != kNone) open.push_back(other);
      }
    }
  }
  return reached;
}

ValueId value_of(const Graph& graph, const std::string& name, const std::string& pattern) {
  const ValueId id = graph.find_value(name);
  if (id == kNone) invalid("placement rule '", pattern, "': the model has no value '", name, "'");
  return id;
}

std::pair<std::string, std::string> split_between(const std::string& pattern) {
  const std::string values = pattern.substr(kBetween.size());
  const std::size_t dots = values.find("..");
  if (dots == std::string::npos || dots == 0 || dots + 2 == values.size()) {
    invalid("placement rule '", pattern, "': write between:FIRST_VALUE..LAST_VALUE");
  }
  return {values.substr(0, dots), values.substr(dots + 2)};
}

}  // namespace

void RulePattern::check(const std::string& pattern) {
  if (pattern.empty()) invalid("a placement rule with an empty pattern; write PATTERN=PROVIDER");
  if (pattern.starts_with(kBetween)) split_between(pattern);
}

RulePattern::RulePattern(const std::string& pattern, const Graph& graph, Missing missing)
    : text_(pattern) {
  if (pattern.starts_with(kOperator)) {
    kind_ = Kind::Operator;
    text_ = pattern.substr(kOperator.size());
  } else if (pattern.starts_with(kDomain)) {
    kind_ = Kind::Domain;
    text_ = pattern.substr(kDomain.size());
  } else if (pattern.starts_with(kBetween)) {
    kind_ = Kind::Between;
    const auto [first, last] = split_between(pattern);
    if (missing == Missing::FitsNothing &&
        (graph.find_value(first) == kNone || graph.find_value(last) == kNone))
      return;
    const auto after = reach(graph, value_of(graph, first, pattern), true);
    for (const NodeId id : reach(graph, value_of(graph, last, pattern), false)) {
      if (after.contains(id)) between_.insert(id);
    }
  }
}

bool RulePattern::fits(const Node& node) const {
  switch (kind_) {
    case Kind::Operator:
      return node.op_type == text_;
    case Kind::Domain:
      return node.domain == text_ || (node.domain.empty() && text_ == "ai.onnx");
    case Kind::Between:
      return between_.contains(node.id);
    case Kind::Name:
      break;
  }
  return fits_wildcard(text_, node.name);
}

}  // namespace backplane::core
