#include "plugins/opencl/kernels/vectors.hpp"

namespace backplane::opencl {

std::int64_t vector_width(const Device& device, std::int64_t most) {
  const std::uint32_t own = device.traits().vector_width;
  std::int64_t width = own >= 16 ? 16 : own >= 8 ? 8 : 4;
  while (width > 4 && most <= width / 2) width /= 2;
  return width;
}

std::string lane_numbers(std::int64_t width) {
  std::string text = "0";
  for (std::int64_t lane = 1; lane < width; ++lane) text += sdk::message(", ", lane);
  return text;
}

}  // namespace backplane::opencl
