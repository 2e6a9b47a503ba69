#include "plugins/opencl/kernels/depthwise.hpp"

#include <optional>

#include "plugins/common/kernels/depthwise.hpp"
#include "plugins/common/kernels/lines.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::opencl {

std::string add_depthwise(Work& work, const Depthwise& conv) {
  const Device& device = device_of(work);
  const Window& window = conv.window;
  const bool is_double = conv.type == DataType::Double;
  std::optional<WindowLines> lines;
  if (conv.type == DataType::Float) lines = WindowLines::over(device, window);
  KernelText text;
  text.define("T", type_code(conv.type)).define("ACC", is_double ? "double" : "float");
  text.define("REAL", is_double ? "double" : "float");
  text.define("LIT(x)", is_double ? "x" : "JOIN(x, f)");
  text.define("HAS_BIAS", conv.has_bias ? 1 : 0).define("HAS_RESIDUAL", conv.has_residual ? 1 : 0);
  text.define("ACTIVATE(s)", conv.activation.of_scalar);
  text.add(common::kScalarFunctions);
  if (lines) {
    lines->define(text, window);
    if (!conv.activation.of_vector.empty())
      text.define("ACTIVATE_VECTOR(v)", conv.activation.of_vector);
    text.add(common::kVectorWords).add(common::kStoreLine).add(common::kDepthwiseArguments);
    text.add(common::kDepthwiseLines).add(common::kWindowLines);
  } else {
    text.define("KERNEL_H", window.kernel[1]).define("KERNEL_W", window.kernel[2]);
    text.add(common::kDepthwiseArguments).add(common::kDepthwisePoint);
  }

  LaunchPlan plan;
  plan.name = "depthwise";
  plan.source = text.str();
  plan.arg(conv.x, conv.type).arg(conv.weights, conv.type);
  if (conv.has_bias) plan.arg(conv.bias, conv.type);
  if (conv.has_residual) plan.arg(conv.residual, conv.type);
  plan.arg(conv.y, conv.type).scalar(conv.channels).scalar(conv.multiplier);
  const std::int64_t planes = conv.images * conv.channels;
  if (lines) {
    lines->set(plan, window, planes);
    work.add(plan);
    return sdk::message("depthwise, vector ", lines->width);
  }
  for (const std::int64_t number : {window.in[1], window.in[2], window.out[1], window.out[2],
                                    window.stride[1], window.stride[2], window.pad_begin[1],
                                    window.pad_begin[2], window.dilation[1], window.dilation[2]})
    plan.scalar(number);
  const auto size = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  plan.items = {size(window.out[2]), size(window.out[1]), size(planes)};
  plan.group = group_for(device, window.out[2]);
  work.add(plan);
  return "depthwise";
}

}  // namespace backplane::opencl
