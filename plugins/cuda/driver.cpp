#include "plugins/cuda/driver.hpp"

#include <algorithm>
#include <string_view>

namespace backplane::cuda {
namespace {

/// After these the context is of no use any more.
constexpr std::string_view kLost[] = {
    "CUDA_ERROR_DEINITIALIZED",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "CUDA_ERROR_EXTERNAL_DEVICE",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_MPS_CLIENT_TERMINATED",
};

/// Compute capabilities of Tegra's devices, as 10 * major + minor.
constexpr int kSystemsOnChip[] = {53, 62, 72, 87, 101, 110};

}  // namespace

bp_code error_code(const std::string& name) {
  if (name == "CUDA_ERROR_OUT_OF_MEMORY") return BP_OUT_OF_MEMORY;
  // Something else spoiled it: a call of another thread perhaps, which the next one need not meet.
  if (name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED") return BP_CANCELLED;
  if (name.rfind("CUDA_ERROR_STREAM_CAPTURE_", 0) == 0 || name == "CUDA_ERROR_CAPTURED_EVENT")
    return BP_UNSUPPORTED;
  const bool is_lost = std::find(std::begin(kLost), std::end(kLost), name) != std::end(kLost);
  return is_lost ? BP_DEVICE_LOST : BP_INTERNAL;
}

void throw_cuda(const char* call, const std::string& name) {
  throw sdk::Error(error_code(name), sdk::message(call, ": ", name));
}

std::string choose_architecture(const std::vector<int>& known, const DeviceTraits& traits) {
  const int wanted = 10 * traits.major + traits.minor;
  if (known.empty() || wanted < known.front()) {
    sdk::unsupported(traits.name, " has compute capability ", traits.major, '.', traits.minor,
                     ", for which this CUDA toolkit compiles no kernels",
                     known.empty() ? std::string()
                                   : sdk::message("; it begins with ", known.front() / 10, '.',
                                                  known.front() % 10));
  }
  // Code for x.y runs on x.z with z >= y, but that of systems on a chip on no other device; PTX runs on everything newer.
  int newest = known.front();
  for (const int each : known) {
    const bool is_of_chip = std::find(std::begin(kSystemsOnChip), std::end(kSystemsOnChip), each) !=
                            std::end(kSystemsOnChip);
    if (each == wanted || (each < wanted && !is_of_chip)) newest = each;
  }
  return sdk::message(newest / 10 == traits.major ? "sm_" : "compute_", newest);
}

}  // namespace backplane::cuda
