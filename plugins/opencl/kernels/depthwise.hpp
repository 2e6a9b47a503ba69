// Launches of depthwise convolutions: see common/kernels/depthwise.hpp for what is computed.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/activation.hpp"

namespace backplane::opencl {

struct Depthwise {
  DataType type = DataType::Float;
  std::int64_t images = 1, channels = 1;  ///< of y
  std::int64_t multiplier = 1;            ///< planes of y for each of x
  Window window;                          ///< over the last two of its axes
  MemoryRef x, weights, bias, residual, y;
  bool has_bias = false, has_residual = false;
  Activation activation = Activation::make("", {});
};

/// The window is planar. Returns what the kernel calls itself.
std::string add_depthwise(Work& work, const Depthwise& conv);

}  // namespace backplane::opencl
