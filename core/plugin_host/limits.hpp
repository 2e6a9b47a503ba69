// What is accepted of plugins, and of hosts.
#pragma once

#include <cstdint>

namespace backplane::core {

/// Most axes of a tensor. Nothing real comes near; a larger rank is a wrong number.
inline constexpr std::int32_t kMaxRank = 64;

}  // namespace backplane::core
