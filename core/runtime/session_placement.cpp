// What a session makes of its options about placement.
#include "core/plan/copy_rates.hpp"
#include "core/plan/rule_check.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {

/// Warns of rules that do nothing; throws for rules that contradict each other.
void Session::check_placement_rules() const {
  std::vector<RuleText> rules;
  for (const PlacementRule& rule : options_.placement)
    rules.emplace_back(rule.pattern, rule.provider);
  for (const std::string& warning : check_rules(rules, original_)) logger_->warning(warning);
}

/// What the cost policy counts with; null for the plain policy.
std::shared_ptr<const CostModel> Session::placement_costs(const DeviceSet& devices) const {
  if (options_.placement_policy != PlacementPolicy::Cost) return nullptr;
  std::filesystem::path file = options_.copy_rates;
  if (file == "off") file.clear();
  if (file == "auto") file = default_copy_rate_file();
  return std::make_shared<const CostModel>(measured_costs(devices, file, *logger_));
}

}  // namespace backplane::core
