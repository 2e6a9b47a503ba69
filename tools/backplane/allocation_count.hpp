// Heap allocations of this process, counted.
#pragma once

#include <cstdint>
#include <optional>

namespace backplane::cli {

/// Starts counting at 0: calls of malloc and its family by all threads, so `new` too, of this program and every
/// library in it.
void start_counting_allocations();

/// Ends it. Nothing where malloc is not ours to replace: under a sanitizer, or with another C library than glibc.
std::optional<std::uint64_t> stop_counting_allocations();

}  // namespace backplane::cli
