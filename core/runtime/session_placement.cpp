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
  for (const std::string& said : check_rules(rules, original_)) {
    if (options_.unused_rules == UnusedRules::Error)
      invalid(said, "; the option unused_rules makes this an error");
    if (options_.unused_rules == UnusedRules::Warn) logger_->warning(said);
  }
}

/// What placement may change besides places.
void Session::set_placement(ProgramContext& context) const {
  for (const PlacementRule& rule : options_.placement)
    context.rules.emplace_back(rule.pattern, rule.provider);
  for (const CastChoice& cast : options_.casts)
    context.casts.casts.push_back({*data_type_named(cast.from), *data_type_named(cast.to)});
  context.casts.widens = options_.widening;
  context.spill = options_.fallback == Fallback::Forbid ? Spill::Forbidden
                  : options_.fallback == Fallback::Warn ? Spill::Warned
                                                        : Spill::Silent;
}

/// What the cost policy counts with; null for the plain policy.
std::shared_ptr<const CostModel> Session::placement_costs(const DeviceSet& devices) const {
  if (options_.placement_policy != PlacementPolicy::Cost) return nullptr;
  return std::make_shared<const CostModel>(measured_costs(devices, copy_rate_file(), *logger_));
}

}  // namespace backplane::core
