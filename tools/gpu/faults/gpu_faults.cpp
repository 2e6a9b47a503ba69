// A module for LD_PRELOAD whose CUDA driver fails: GPU_FAULT=FUNCTION:COUNT:CODE makes the COUNT-th call of FUNCTION
// return CODE (a CUresult) instead of doing its work, and says so on stderr. Of one such variable in a process, one call fails.
//
// The driver's functions are looked up by name (dlsym), so that is where this one stands between: whoever asks for
// FUNCTION gets `called`, which passes its arguments on. All of them are integers or pointers.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace {

using Word = std::uint64_t;
// cuLaunchKernel has most: eleven.
using Function = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
using Lookup = void* (*)(void*, const char*);

struct Fault {
  char function[128] = "";
  long count = 0;
  int code = 0;
  Fault() {
    const char* const text = std::getenv("GPU_FAULT");
    if (text == nullptr) return;
    const char* const end = std::strchr(text, ':');
    if (end == nullptr || static_cast<std::size_t>(end - text) >= sizeof(function)) return;
    std::memcpy(function, text, static_cast<std::size_t>(end - text));
    char* next = nullptr;
    count = std::strtol(end + 1, &next, 10);
    if (*next == ':') code = static_cast<int>(std::strtol(next + 1, nullptr, 10));
  }
};

const Fault& fault() {
  static const Fault kFault;
  return kFault;
}

std::atomic<Function> real_function{nullptr};
std::atomic<long> call_count{0};

int called(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k,
           Word l) {
  if (call_count.fetch_add(1) + 1 == fault().count) {
    std::fprintf(stderr, "gpu_faults: %s, call %ld\n", fault().function, fault().count);
    return fault().code;
  }
  return real_function.load()(a, b, c, d, e, f, g, h, i, j, k, l);
}

Lookup real_dlsym() {
  // glibc's own, by the versions that it has had on this architecture.
  static const auto kReal = [] {
    for (const char* const version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
      if (void* const found = dlvsym(RTLD_NEXT, "dlsym", version))
        return reinterpret_cast<Lookup>(found);
    }
    std::abort();
  }();
  return kReal;
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  void* const found = real_dlsym()(handle, name);
  if (found == nullptr || fault().count == 0 || std::strcmp(name, fault().function) != 0)
    return found;
  real_function.store(reinterpret_cast<Function>(found));
  return reinterpret_cast<void*>(&called);
}
