// What is accepted of plugins, and of hosts.
#pragma once

#include <cstdint>

#include "core/base/error.hpp"

namespace backplane::core {

/// Most axes of a tensor. Nothing real comes near; a larger rank is a wrong number.
inline constexpr std::int32_t kMaxRank = 64;

/// Throws InvalidArgument for a rank that is none, and for dims that are missing; `what` are the parts of its name, which are
/// put together only then.
template <class... What>
void check_dims(std::int32_t rank, const std::int64_t* dims, const What&... what) {
  if (rank < 0 || rank > kMaxRank || (rank > 0 && dims == nullptr))
    invalid(what..., " has rank ", rank, ", or no dims; ranks up to ", kMaxRank, " are possible");
}

}  // namespace backplane::core
