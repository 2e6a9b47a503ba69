// What a new size of a dimension costs: the time of planning for it.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/backplane.hpp"
#include "tools/backplane/feeds.hpp"

namespace backplane::cli {

/// A symbolic dimension and the size that measured runs have of it.
struct DimSize {
  std::string name;
  std::int64_t size = 0;

  /// Of "NAME=N". Throws Failure (wrong request) for anything else, for N below 2, and when no input of `session`
  /// has the dimension.
  static DimSize parse(const std::string& argument, const Session& session);
};

/// Throws Failure (wrong request), with the option's name, when no input has the dimension.
void require_symbol(const Session& session, const std::string& name, const char* option);

/// Median time, in ms, of planning for up to ten sizes below `dim.size`, none of them planned before: shapes, kernels'
/// preparation and the memory plan, without a run. `feeds` gives everything else. Throws Failure when planning fails.
double measure_replan(const Session& session, const FeedSet& feeds, const DimSize& dim);

}  // namespace backplane::cli
