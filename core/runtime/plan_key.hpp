// What tells the plans of a program apart.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/control_flow.hpp"
#include "core/plan/program.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// Types and dims of feeds, elements of those that shapes depend on.
using PlanKey = std::vector<std::int64_t>;

/// Whether the elements of a keyed feed are part of the key.
bool is_keyed(const RuntimeValue& value);

/// What a value adds to a key: its type and dims, or its elements.
void append_shape(PlanKey& key, const RuntimeValue& value);
void append_contents(PlanKey& key, const RuntimeValue& value);

/// The key of a run. `places`: of a body; null: all is on the host.
void make_plan_key(const Program& program, const std::vector<RuntimeValue*>& feeds,
                   const BodyPlaces* places, PlanKey& key);

/// The key that a run of a body with such feeds will look for; false when elements are missing that it would hold.
bool try_make_plan_key(const Program& program, const std::vector<ValueState>& feeds,
                       const BodyPlaces& places, PlanKey& key);

}  // namespace backplane::core
