// Elements of sequences and maps that were given back, kept for the next ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// A classifier that ends in maps makes two values for each row of a run, and the program gives all of them back before the
/// next: from the allocator each would be four or five pieces. What a thread gives back it keeps, with its small memory,
/// until it ends. Nothing is kept under a sanitizer of addresses.
///
/// Threads: any; each has its own.
struct SpareElements {
  static constexpr std::size_t kMostKept = 4096;           ///< values of a thread
  static constexpr std::uint64_t kMostBytes = 1ull << 10;  ///< of memory that one keeps
  static constexpr std::size_t kMostParts = 16;  ///< strings or elements that one has room for

  /// A value as if new, but for memory that set_owned_tensor may use again; `is_element` is set.
  static RuntimeValuePtr take();
  /// Of the calling thread.
  static std::size_t kept_count();
};

}  // namespace backplane::core
