// Devices of three generations that need not be there.
// https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/utilities/deviceless-ahead-of-time-compilation.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/cuda/engine/cudnn_parts.hpp"

namespace backplane::cuda {

/// The first that describes devices: 9.11.
inline constexpr std::size_t kFirstToDescribe = 91100;

/// Numbers of the data sheets; of the rest, all three have the same.
struct DescribedDevice {
  const char* name;
  int version, multiprocessors, cache_bytes, shared_bytes, clock_khz;
};
inline constexpr DescribedDevice kDescribedDevices[] = {
    {"NVIDIA A100", 800, 108, 41943040, 166912, 1410000},
    {"NVIDIA H200", 900, 132, 62914560, 232448, 1980000},
    {"NVIDIA B200", 1000, 148, 132644864, 232448, 1965000},
};

/// As cuDNN takes it, 9.11 and later; a plan for it needs no device, and cannot be run.
inline Description describe(const DescribedDevice& device) {
  const std::string words = sdk::message(
      R"({"version":1,"deviceName":")", device.name, R"(","deviceVer":)", device.version,
      R"(,"multiProcessorCount":)", device.multiprocessors, R"(,"l2CacheSize":)",
      device.cache_bytes, R"(,"maxSharedMemoryPerBlockOptin":)", device.shared_bytes,
      R"(,"smClockRateKHz":)", device.clock_khz,
      R"(,"memClockRateKHz":3200000,"totalGlobalMem":42409263104,"driverVer":13000,)"
      R"("cudaDeviceId":0,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"warpSize":32,)"
      R"("maxBlockSize":[1024,1024,64],"maxGridSize":[2147483647,65535,65535],)"
      R"("maxCtasPerSM":32,"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,)"
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"regsPerBlock":65536,)"
      R"("reservedSharedMemoryPerBlock":1024})");
  Description made(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, words.size(), words.data());
  made.finish();
  return made;
}

/// The first plan that is offered; else none, and why.
template <class Form>
std::optional<FinishedPlan> first_plan(const Form& form, const Target& target, std::uint64_t limit,
                                       std::string& why) {
  std::optional<FinishedPlan> first;
  why = offer_plans(form, target, limit, [&first](FinishedPlan plan) {
    first.emplace(std::move(plan));
    return true;
  });
  return first;
}

}  // namespace backplane::cuda
