// Runs of which each has other sizes than the last one, as those of a decoder have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/feeds.hpp"

namespace backplane::cli {

/// A symbolic dimension that grows by one from run to run.
struct DimGrowth {
  std::string name;
  std::int64_t from = 0, to = 0;

  /// Of "NAME=FROM:TO", several of which grow together. Throws Failure (wrong request) for anything else, for ranges of
  /// different lengths, and when no input of `session` has a dimension.
  static std::vector<DimGrowth> parse(const std::vector<std::string>& arguments,
                                      const Session& session);
};

struct GrowthTimes {
  std::size_t runs = 0;
  double median_ms = 0, p90_ms = 0;
};

/// Times one run for each size, planning included; results are made by each run anew. `feeds` have the greatest sizes:
/// each run is fed with their first elements. Throws Failure when a run fails.
GrowthTimes measure_growth(const Session& session, const FeedSet& feeds,
                           const std::vector<DimGrowth>& growths);

}  // namespace backplane::cli
