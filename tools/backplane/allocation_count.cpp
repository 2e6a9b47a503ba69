// malloc and its family, interposed: an executable's definitions win over the C library's, for every library that is
// loaded later, too. Each counts and hands on to glibc under its other name; `free` needs no part in that.
#include "tools/backplane/allocation_count.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <features.h>

namespace {

std::atomic<bool> is_counting{false};
std::atomic<std::uint64_t> allocations{0};

}  // namespace

#if defined(__GLIBC__) && !defined(BACKPLANE_SANITIZED)  // sanitizers have a malloc of their own
#define BACKPLANE_CLI_COUNTS 1

namespace {

inline void count_one() {
  if (is_counting.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#define BACKPLANE_CLI_EXPORT __attribute__((visibility("default")))

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

BACKPLANE_CLI_EXPORT void* malloc(std::size_t bytes) {
  count_one();
  return __libc_malloc(bytes);
}

BACKPLANE_CLI_EXPORT void* calloc(std::size_t count, std::size_t bytes) {
  count_one();
  return __libc_calloc(count, bytes);
}

BACKPLANE_CLI_EXPORT void* realloc(void* block, std::size_t bytes) {
  count_one();
  return __libc_realloc(block, bytes);
}

BACKPLANE_CLI_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) {
  count_one();
  return __libc_memalign(alignment, bytes);
}

BACKPLANE_CLI_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count_one();
  return __libc_memalign(alignment, bytes);
}

BACKPLANE_CLI_EXPORT int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
    return EINVAL;
  count_one();
  void* made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

}  // extern "C"
#endif

namespace backplane::cli {

void start_counting_allocations() {
  allocations = 0;
  is_counting = true;
}

std::optional<std::uint64_t> stop_counting_allocations() {
  is_counting = false;
#ifdef BACKPLANE_CLI_COUNTS
  return allocations.load();
#else
  return std::nullopt;
#endif
}

}  // namespace backplane::cli
