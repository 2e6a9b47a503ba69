#include "core/plugin_host/spare_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <sys/mman.h>

namespace backplane::core {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kIsOn = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kIsOn = false;
#else
constexpr bool kIsOn = true;
#endif
#else
constexpr bool kIsOn = true;
#endif

/// A little more than is needed, so that a tensor which grows by a row finds what the last one had.
std::uint64_t with_room(std::uint64_t bytes) {
  const std::uint64_t step = std::bit_floor(bytes) / 8;
  return bytes <= UINT64_MAX - step ? (bytes + step - 1) / step * step : bytes;
}

void* allocate(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
}

constexpr std::uint64_t kPage = 4096, kOffsetStep = 512;
/// From this size on blocks are marked for huge pages: what the system gives anew it clears in 2 MiB each, not in 4 KiB.
constexpr std::uint64_t kHugeBytes = 4u << 20, kHugePage = 2u << 20;

/// A block that begins where in its page those before it did not, 512 bytes apart at least. Processors compare the last 12 bits
/// of addresses to find whether a load wants what a store before it wrote: a kernel whose input and output begin at
/// nearly the same place of a page waits for each of its stores. Allocators put all large blocks at one such place,
/// near the beginning.
void* allocate_block(std::uint64_t capacity, std::uint64_t alignment, std::uint64_t number) {
  if (capacity > UINT64_MAX - kPage) return nullptr;
  if (alignment > kOffsetStep) return allocate(capacity, std::max(alignment, kPage));
  const bool huge = capacity >= kHugeBytes;
  auto* const page = static_cast<std::byte*>(allocate(capacity + kPage, huge ? kHugePage : kPage));
  // Advice: a kernel without huge pages refuses it, and nothing is lost.
  if (huge && page != nullptr) madvise(page, capacity + kPage, MADV_HUGEPAGE);
  return page != nullptr ? page + kOffsetStep * (1 + number % (kPage / kOffsetStep - 1)) : nullptr;
}

void free_block(void* memory) {
  auto* const byte = static_cast<std::byte*>(memory);
  std::free(byte - reinterpret_cast<std::uintptr_t>(byte) % kPage);
}

}  // namespace

bool SpareMemory::is_on() { return kIsOn; }

SpareMemory& SpareMemory::instance() {
  static SpareMemory* const memory = new SpareMemory;
  return *memory;
}

void* SpareMemory::take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& capacity) {
  capacity = bytes;
  if (bytes < kLeast || !kIsOn) return allocate(bytes, alignment);  // give() frees it
  const std::lock_guard lock(mutex_);
  void* memory = find(bytes, alignment, capacity);
  if (memory == nullptr) {
    capacity = with_room(bytes);
    memory = allocate_block(capacity, alignment, ++clock_);
  }
  if (memory == nullptr) {  // what is kept may be what is missing
    while (!blocks_.empty()) drop_oldest();
    capacity = bytes;
    memory = allocate_block(bytes, alignment, ++clock_);
  }
  if (memory != nullptr) held_ += capacity;
  return memory;
}

/// The smallest that fits, unless it is much too large.
void* SpareMemory::find(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& capacity) {
  for (auto place = blocks_.lower_bound(bytes);
       place != blocks_.end() && place->first - bytes <= bytes / 4; ++place) {
    void* const memory = place->second.memory;
    if (reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) continue;
    capacity = place->first;
    kept_ -= capacity;
    blocks_.erase(place);
    return memory;
  }
  return nullptr;
}

void SpareMemory::give(void* memory, std::uint64_t capacity) noexcept {
  if (memory == nullptr || capacity < kLeast || !kIsOn) return std::free(memory);
  const std::lock_guard lock(mutex_);
  held_ -= capacity;
  try {
    blocks_.emplace(capacity, Block{memory, ++clock_});
  } catch (...) {  // no memory to keep memory
    return free_block(memory);
  }
  kept_ += capacity;
  while (kept_ > std::max(held_, kAlwaysKept)) drop_oldest();
}

void SpareMemory::drop_oldest() {
  const auto oldest =
      std::min_element(blocks_.begin(), blocks_.end(),
                       [](const auto& a, const auto& b) { return a.second.age < b.second.age; });
  kept_ -= oldest->first;
  free_block(oldest->second.memory);
  blocks_.erase(oldest);
}

void SpareMemory::clear() noexcept {
  const std::lock_guard lock(mutex_);
  while (!blocks_.empty()) drop_oldest();
}

std::uint64_t SpareMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace backplane::core
