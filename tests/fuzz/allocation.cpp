// Memory of the searches: what a broken model asks for is refused, as on a small machine.
//
// Under the address sanitizer an operator new that has no memory ends the program, and with what a broken model asks for that
// would end each search. These throw, as those of the language do.
#include <cstdlib>
#include <new>

/// What holds beside ASAN_OPTIONS; the last two for the reasons in cmake/BackplaneTest.cmake.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024:detect_container_overflow=0:"
         "intercept_tls_get_addr=0";
}

void* operator new(std::size_t bytes) {
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
