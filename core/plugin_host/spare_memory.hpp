// Host memory that values gave back, kept for the next ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace backplane::core {

/// Memory of large tensors. A program that hands the results of one run to the next, as decoders do with their keys and
/// values, frees and allocates the same megabytes each time, and the system would clear every page of them again.
/// At most as much is kept as values hold at the moment, and kAlwaysKept.
///
/// Threads: any.
class SpareMemory {
 public:
  static constexpr std::uint64_t kLeast = 32ull << 10;  ///< smaller blocks are the allocator's
  static constexpr std::uint64_t kAlwaysKept = 16ull << 20;

  /// Of the process. Never ends: values may outlive everything else.
  static SpareMemory& instance();
  /// False under a sanitizer of addresses, which is to see that freed memory is read.
  static bool is_on();

  /// At least `bytes` of memory, aligned, until the result's last owner ends; null when there is none.
  /// `capacity` becomes what there really is.
  void* take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& capacity);
  void give(void* memory, std::uint64_t capacity) noexcept;
  /// Gives everything that is kept back to the system.
  void clear() noexcept;

  std::uint64_t kept_bytes() const;

 private:
  struct Block {
    void* memory;
    std::uint64_t age;
  };
  void* find(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& capacity);
  void drop_oldest();

  mutable std::mutex mutex_;
  std::multimap<std::uint64_t, Block> blocks_;  ///< by capacity
  std::uint64_t kept_ = 0, held_ = 0;           ///< bytes: here, and with values
  std::uint64_t clock_ = 0;
};

}  // namespace backplane::core
