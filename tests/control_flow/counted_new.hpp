// Counts what the process allocates by `new`.
#pragma once

#include <cstdint>

namespace backplane::core::flow {

/// So far, on all threads.
std::uint64_t allocation_count();

}  // namespace backplane::core::flow
