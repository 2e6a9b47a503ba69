#include "plugins/opencl/kernels/depthwise.hpp"

#include <algorithm>

#include "plugins/common/kernels/depthwise.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/opencl/kernels/vectors.hpp"

namespace backplane::opencl {
namespace {

/// Elements of y below which a work item is not worth its launch.
constexpr std::int64_t kLeastOutputs = 2048;

}  // namespace

bool is_planar(const Window& window) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 30;  // lanes are numbered by ints
  return window.in[0] == 1 && window.out[0] == 1 && window.kernel[0] == 1 && window.in[2] < kWidest;
}

std::string add_depthwise(Work& work, const Depthwise& conv) {
  const Device& device = device_of(work);
  const Window& window = conv.window;
  const bool is_double = conv.type == DataType::Double;
  const bool is_vector =
      device.vector_tiles() && conv.type == DataType::Float && window.stride[2] <= 2;
  KernelText text;
  text.define("T", type_code(conv.type)).define("ACC", is_double ? "double" : "float");
  text.define("REAL", is_double ? "double" : "float");
  text.define("LIT(x)", is_double ? "x" : "JOIN(x, f)");
  text.define("KERNEL_H", window.kernel[1]).define("KERNEL_W", window.kernel[2]);
  text.define("HAS_BIAS", conv.has_bias ? 1 : 0).define("HAS_RESIDUAL", conv.has_residual ? 1 : 0);
  text.define("ACTIVATE(s)", conv.activation.of_scalar);
  const std::int64_t width = vector_width(device, window.out[2]);
  if (is_vector) {
    text.define("VW", width)
        .define("LANES", lane_numbers(width))
        .define("STRIDE", window.stride[2]);
    if (!conv.activation.of_vector.empty())
      text.define("ACTIVATE_VECTOR(v)", conv.activation.of_vector);
  }
  text.add(common::kScalarFunctions).add(common::kDepthwiseArguments);
  text.add(is_vector ? common::kDepthwiseVector : common::kDepthwisePoint);

  LaunchPlan plan;
  plan.name = "depthwise";
  plan.source = text.str();
  plan.arg(conv.x, conv.type).arg(conv.weights, conv.type);
  if (conv.has_bias) plan.arg(conv.bias, conv.type);
  if (conv.has_residual) plan.arg(conv.residual, conv.type);
  plan.arg(conv.y, conv.type);
  const std::int64_t planes = conv.images * conv.channels;
  const std::int64_t band =
      std::clamp<std::int64_t>(kLeastOutputs / window.out[2], 1, window.out[1]);
  for (const std::int64_t number :
       {planes / conv.multiplier * window.in_points(), conv.channels, conv.multiplier, window.in[1],
        window.in[2], window.out[1], window.out[2], window.stride[1], window.stride[2],
        window.pad_begin[1], window.pad_begin[2], window.dilation[1], window.dilation[2], band})
    plan.scalar(number);
  const auto size = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  if (is_vector) {
    plan.items = {size((window.out[1] + band - 1) / band), size(planes), 1};
    plan.group = {1, 1, 1};
  } else {
    plan.items = {size(window.out[2]), size(window.out[1]), size(planes)};
    plan.group = group_for(device, window.out[2]);
  }
  work.add(plan);
  return is_vector ? sdk::message("depthwise, vector ", width) : "depthwise";
}

}  // namespace backplane::opencl
