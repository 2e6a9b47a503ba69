// Tests ask for memory that no machine has and expect a clear error; the address sanitizer's allocator
// would end the process instead of saying no. Without that sanitizer nobody calls this.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
