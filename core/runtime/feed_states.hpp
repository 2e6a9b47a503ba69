// What planning knows of feeds: a run's, or those of a body that is planned before it runs.
#pragma once

#include <vector>

#include "core/plan/control_flow.hpp"
#include "core/plan/program.hpp"
#include "core/plan/segment.hpp"
#include "core/plan/value_state.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// A copy of a host value that stays as it is.
RuntimeValuePtr lasting_copy(const RuntimeValue& value);
/// Type and dims of a value, without elements.
ValueState state_of(const RuntimeValue& value);

/// Elements only of those that are part of the plan's key. `before`: what another plan knows of values, whose states of feeds
/// are shared where they say the same; null: there is none.
FeedStates states_of_feeds(const Program& program, const std::vector<RuntimeValue*>& feeds,
                           const ValueStates* before);
FeedStates states_of_body(const Program& program, const std::vector<ValueState>& feeds);
/// Where feeds lie. `places`: of a body; null: all on the host.
void place_feeds(const BodyPlaces* places, FeedStates& states);
/// By value of the program's graph, unset but for feeds.
ValueStates values_of_feeds(const Program& program, const FeedStates& feeds);

std::vector<LiveValue> live_feeds(const Program& program, const BodyPlaces* places);

}  // namespace backplane::core
