// The host's side of bp_kctx.
#pragma once

#include "core/plan/stop_signal.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// What a kernel's `compute` gets, with what the host needs to serve it.
struct ComputeContext : bp_kctx {
  Device* device;          ///< whose memory and streams these are
  const StopSignal* stop;  ///< null: nothing ends the run
};

/// A context with its table and size filled in and everything else zero.
ComputeContext make_compute_context(Device* device, bp_threads* threads);

}  // namespace backplane::core
