// The kernel for devices of the provider `cuda`.
#pragma once

#include "backplane/plugin.hpp"

namespace gated_silu {

/// The text that is compiled for the device: y = x * gate * sigmoid(gate), element by element.
inline constexpr const char* kCudaText = R"(
extern "C" __global__ void gated_silu(const float* x, const float* gate, float* y, long long count) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    y[i] = x[i] * gate[i] / (1.0f + expf(-gate[i]));
}
)";

backplane::sdk::KernelList cuda_kernels();

}  // namespace gated_silu
