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

/// By value of the program's graph, unset but for feeds: elements only of those that are part of the plan's key.
ValueStates states_of_feeds(const Program& program, const std::vector<RuntimeValue*>& feeds);
ValueStates states_of_body(const Program& program, const std::vector<ValueState>& feeds);

/// Where feeds lie. `places`: of a body; null: all on the host.
std::vector<LiveValue> live_feeds(const Program& program, const BodyPlaces* places);
void place_feeds(const Program& program, const BodyPlaces* places, ValueStates& values);

}  // namespace backplane::core
