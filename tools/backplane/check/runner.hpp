// The suite's order: what comes first, what is not judged when that fails, and in which processes.
#pragma once

#include <functional>
#include <vector>

#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli::check {

/// Takes verdicts as they are made, in no order.
using TakeRows = std::function<void(const std::vector<Row>&)>;

/// All verdicts. A plugin that crashes or hangs costs the piece of work that it was asked for. Throws Failure where the
/// file is no plugin, or the request fits nothing. Nothing may have started a thread before.
std::vector<Row> run_suite(const Request& request, const TakeRows& take);
Json to_json(const std::vector<Row>& rows);

}  // namespace backplane::cli::check
