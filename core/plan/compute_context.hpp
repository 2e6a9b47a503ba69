// The host's side of bp_kctx.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/prepare.hpp"
#include "core/plan/stop_signal.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// The outputs whose sizes a kernel tells while it computes, and which of them it told.
///
/// Threads: those of one call of `compute` at a time.
class UnknownOutputs {
 public:
  /// None for a kernel whose outputs are all known.
  explicit UnknownOutputs(const PrepareResult& said);

  bool empty() const { return outputs_.empty(); }
  /// A call of `compute` begins: none is told.
  void begin();
  /// To be set when the kernel has told an output. Throws InvalidArgument where it may not tell it: its size was known
  /// before, it was told already, or its rank is another.
  bool& place_of(std::uint32_t output, std::int32_t rank);
  /// The call returned success. An error of the kernel's for an output that the node has and that it did not tell.
  bp_status* end(const bp_kctx& ctx) const;

 private:
  struct Unknown {
    std::uint32_t output;
    std::int32_t rank;  ///< -1: any
    bool is_told;
  };
  const char* kernel_;  ///< the definition's, which lives as long as the kernel
  std::vector<Unknown> outputs_;
};

/// What a kernel's `compute` gets, with what the host needs to serve it.
struct ComputeContext : bp_kctx {
  Device* device;           ///< whose memory and streams these are
  const StopSignal* stop;   ///< null: nothing ends the run
  UnknownOutputs* unknown;  ///< null: the sizes of all outputs are known
};

/// A context with its table and size filled in and everything else zero.
ComputeContext make_compute_context(Device* device, bp_threads* threads);

}  // namespace backplane::core
