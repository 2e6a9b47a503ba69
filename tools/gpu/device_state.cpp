#include <array>
#include <dlfcn.h>
#include <stdexcept>
#include <unistd.h>

#include "tools/gpu/cuda_functions.hpp"
#include "tools/gpu/probe.hpp"

namespace backplane::gpu {
namespace {

/// 13.0.2 of 130002 by {10000, 100}.
std::string version_text(std::size_t number, std::size_t major, std::size_t minor) {
  return std::to_string(number / major) + '.' + std::to_string(number % major / minor) + '.' +
         std::to_string(number % minor);
}

/// Where the loader found what `function` belongs to; its version by `ask`.
template <class Function, class Ask>
Json library(void* handle, const char* function, const Ask& ask) {
  void* const found = ::dlsym(handle, function);
  if (found == nullptr) return {{"reason", "it is not linked"}};
  Dl_info info{};
  const bool is_known = ::dladdr(found, &info) != 0 && info.dli_fname != nullptr;
  return {{"version", ask(reinterpret_cast<Function>(found))},
          {"path", is_known ? info.dli_fname : ""}};
}

}  // namespace

Json device_is_alive() {
  const Cuda cuda;
  constexpr std::size_t kBytes = 1024;
  constexpr std::uint32_t kWord = 0x5AA5C33Cu;
  const CUstream stream = cuda.make_stream();
  const CUdeviceptr memory = cuda.allocate(kBytes);
  std::array<std::uint32_t, kBytes / sizeof(kWord)> words{};
  GPU_CALL(cuda, cuMemsetD32Async, memory, kWord, words.size(), stream);
  GPU_CALL(cuda, cuStreamSynchronize, stream);
  GPU_CALL(cuda, cuMemcpyDtoH, words.data(), memory, kBytes);
  cuda.free(memory);
  for (const std::uint32_t word : words) {
    if (word != kWord) throw std::runtime_error("memory of the device does not hold what was set");
  }
  return {{"name", cuda.name()}};
}

Json hold_device() {
  const Cuda cuda;
  if (cuda.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
    throw std::runtime_error("one process alone may use the device: it is not held");
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return {{"held", true}};
}

Json libraries_of(const std::string& engine) {
  void* const handle = ::dlopen(engine.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(::dlerror());
  // Their functions, as their headers declare them.
  using Number = std::size_t (*)();
  using TwoNumbers = int (*)(int*, int*);
  const auto number = [](std::size_t major, std::size_t minor) {
    return [=](Number ask) { return version_text(ask(), major, minor); };
  };
  const auto two_numbers = [](TwoNumbers ask) {
    int major = 0, minor = 0;
    ask(&major, &minor);
    return std::to_string(major) + '.' + std::to_string(minor);
  };
  return {{"cuBLASLt", library<Number>(handle, "cublasLtGetVersion", number(10000, 100))},
          {"cuDNN", library<Number>(handle, "cudnnGetVersion", number(10000, 100))},
          {"NVRTC", library<TwoNumbers>(handle, "nvrtcVersion", two_numbers)}};
}

}  // namespace backplane::gpu
