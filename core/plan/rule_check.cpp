#include "core/plan/rule_check.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/plan/rule_pattern.hpp"

namespace backplane::core {
namespace {

std::string describe(const RuleText& rule) {
  return text("the placement rule '", rule.first, "=", rule.second, "'");
}

/// What became of a rule over all graphs of a model.
struct Fate {
  std::size_t fits = 0, used = 0;
  const RuleText* earlier = nullptr;  ///< a rule that took a node from it, for another provider
  std::optional<Error> missing;       ///< what it names that no graph has
  bool resolved = false;              ///< some graph has what it names
};

void visit(const Graph& graph, const std::vector<RuleText>& rules, std::vector<Fate>& fates) {
  std::vector<std::optional<RulePattern>> patterns;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    patterns.emplace_back();
    try {
      patterns.back().emplace(rules[i].first, graph);
      fates[i].resolved = true;
    } catch (const Error& error) {
      fates[i].missing = error;
    }
  }
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const RuleText* taken = nullptr;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (!patterns[i] || !patterns[i]->fits(node)) continue;
      ++fates[i].fits;
      if (taken == nullptr || taken->second == rules[i].second) ++fates[i].used;
      if (taken == nullptr) {
        taken = &rules[i];
      } else if (taken->second != rules[i].second) {
        fates[i].earlier = taken;
      }
    }
    for_each_body(node, [&](const Graph& body) { visit(body, rules, fates); });
  }
}

}  // namespace

std::vector<std::string> check_rules(const std::vector<RuleText>& rules, const Graph& model) {
  std::map<std::string, const RuleText*> seen;
  for (const RuleText& rule : rules) {
    const auto [place, added] = seen.emplace(rule.first, &rule);
    if (!added && place->second->second != rule.second) {
      invalid("the placement rules send '", rule.first, "' to '", place->second->second,
              "' and to '", rule.second, "'; leave one out");
    }
  }
  std::vector<Fate> fates(rules.size());
  if (!rules.empty()) visit(model, rules, fates);
  std::vector<std::string> warnings;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Fate& fate = fates[i];
    if (!fate.resolved && fate.missing) throw *fate.missing;
    if (fate.fits == 0) {
      warnings.push_back(text(describe(rules[i]), " fits no node of the model"));
    } else if (fate.used == 0 && fate.earlier != nullptr) {
      warnings.push_back(text(describe(rules[i]), " is never used: ", describe(*fate.earlier),
                              ", which comes before it, takes ",
                              fate.fits == 1 ? "its one node" : text("nodes of its ", fate.fits)));
    }
  }
  return warnings;
}

}  // namespace backplane::core
