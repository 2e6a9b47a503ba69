// What a session says of its own life, as parts of the JSON of explain and statistics.
#pragma once

#include <nlohmann/json.hpp>

#include "core/runtime/session.hpp"

namespace backplane::core {

/// "options", "entries", "model_options", "paths".
void report_options(const Session& session, nlohmann::ordered_json& json);
/// "steps_ms", "reopened", "nodes_asked", "weights_packed", "weights_restored", "memory".
void report_life(Session& session, const Program& program, nlohmann::ordered_json& json);
/// What devices record of a plan and do again as one, and why the rest is not recorded.
nlohmann::ordered_json capture_json(const Program& program, const Segment& segment);

}  // namespace backplane::core
