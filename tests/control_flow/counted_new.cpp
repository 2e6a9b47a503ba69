// The replaced operators stand alone: where the compiler sees them and their callers it warns of mixed allocators.
// The forms without exceptions are replaced too: under the address sanitizer the default ones are its own. The thread
// sanitizer's operators cannot be replaced, but it tells of what they allocate.
#include "tests/control_flow/counted_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#ifdef BACKPLANE_SANITIZED_THREAD
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*,
                                                                           std::size_t),
                                                         void (*on_free)(const volatile void*));
#endif

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

#ifdef BACKPLANE_SANITIZED_THREAD
namespace {

const int kHooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { allocations.fetch_add(1, std::memory_order_relaxed); },
    [](const volatile void*) {});

}  // namespace
#else
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace backplane::core::flow {

std::uint64_t allocation_count() { return allocations.load(std::memory_order_relaxed); }

}  // namespace backplane::core::flow
