// Many runs of one model, measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/feeds.hpp"

namespace backplane::cli {

struct RunCounts {
  std::optional<std::size_t> warmup;  ///< nothing: for some tenths of a second
  std::optional<std::size_t> runs;    ///< of each caller; nothing: for about a second
  std::size_t callers = 1;
};

struct Measurement {
  double first_run_ms = 0;
  std::size_t runs = 0;
  double runs_per_s = 0;  ///< of all callers
  double median_ms = 0, min_ms = 0, p90_ms = 0;
  /// Of the last 10 runs of each caller, heap and devices; nothing where the heap's cannot be counted.
  std::optional<std::uint64_t> steady_allocations;
};

/// Runs the sessions from `callers` threads; caller i uses session i modulo their number. All inputs and outputs
/// stay bound. Throws Failure when a run fails.
Measurement measure(const std::vector<std::unique_ptr<Session>>& sessions, const FeedSet& feeds,
                    const RunCounts& counts);

}  // namespace backplane::cli
