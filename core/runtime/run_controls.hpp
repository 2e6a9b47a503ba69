// What a run is asked for, and the values that it is given.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/stop_signal.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/runtime/host_views.hpp"
#include "core/runtime/run_options.hpp"
#include "core/runtime/trace_log.hpp"

namespace backplane::core {

/// A feed or fetch of a run.
using RunValues = std::vector<RuntimeValue*>;

struct RunControls {
  std::uint64_t run = 0;  ///< of a body: the run that it is part of
  StopSignal stop;
  std::vector<Span>* spans = nullptr;  ///< not null: every step is timed, which makes streams wait
  const NodeObserver* observer = nullptr;  ///< not null: sees every node, which makes streams wait
  const std::vector<bool>* resizable =
      nullptr;  ///< by fetch: made to fit a size found by running, where it owns its memory; null: none
  bool synchronize = true;     ///< false: the last segment's work may go on after finish()
  HostViews* views = nullptr;  ///< that are kept for the next run; null: none are
};

}  // namespace backplane::core
