// Tests ask for memory that no machine has and expect a clear error; the allocators of sanitizers would
// end the process instead of saying no. Without them nobody calls this.
#define BP_TEST_EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the sanitizers look for them under these names
BP_TEST_EXPORT const char* __asan_default_options();
BP_TEST_EXPORT const char* __tsan_default_options();

const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
// NOLINTEND(readability-identifier-naming)
