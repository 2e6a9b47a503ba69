#include "plugins/cpu/dense/conv_geometry.hpp"

#include "plugins/cpu/dense/window_checks.hpp"

namespace backplane::cpu {

WindowAttributes::WindowAttributes(const sdk::Node& node)
    : kernel_shape(node.get_ints("kernel_shape")),
      strides(node.get_ints("strides")),
      dilations(node.get_ints("dilations")),
      pads(node.get_ints("pads")),
      auto_pad(node.get_string("auto_pad", "NOTSET")),
      ceil_mode(node.get_int("ceil_mode", 0) != 0) {
  check_window(auto_pad, {&kernel_shape, &strides, &dilations});
}

Window WindowAttributes::resolve(sdk::DimsView in, sdk::DimsView kernel) const {
  const std::size_t axes = in.size();
  if (axes > kSpatialAxes) {
    sdk::unsupported("the input has ", axes, " spatial axes; up to ", kSpatialAxes, " are handled");
  }
  if (kernel.size() != axes) {
    sdk::invalid("the kernel has ", kernel.size(), " spatial axes, the input has ", axes);
  }
  check_count("kernel_shape", kernel_shape, axes);
  check_count("strides", strides, axes);
  check_count("dilations", dilations, axes);
  check_count("pads", pads, 2 * axes);
  Window window;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::size_t to = axis + kSpatialAxes - axes;
    if (!kernel_shape.empty() && kernel_shape[axis] != kernel[axis]) {
      sdk::invalid("attribute 'kernel_shape' says ", kernel_shape[axis], " along spatial axis ",
                   axis, ", the weights have ", kernel[axis]);
    }
    common::WindowAxis given;
    given.in = in[axis];
    given.kernel = kernel[axis];
    if (!strides.empty()) given.stride = strides[axis];
    if (!dilations.empty()) given.dilation = dilations[axis];
    if (!pads.empty()) {
      given.pad_begin = pads[axis];
      given.pad_end = pads[axis + axes];
    }
    const common::WindowAxis found = common::resolved_window(axis, given, auto_pad, ceil_mode);
    window.kernel[to] = found.kernel;
    window.stride[to] = found.stride;
    window.dilation[to] = found.dilation;
    window.pad_begin[to] = found.pad_begin;
    window.pad_end[to] = found.pad_end;
    window.in[to] = found.in;
    window.out[to] = found.out;
  }
  return window;
}

Window WindowAttributes::covered(sdk::DimsView kernel) const {
  Window window;
  for (std::size_t axis = 0; axis < kernel.size(); ++axis) {
    const std::size_t to = axis + kSpatialAxes - kernel.size();
    window.kernel[to] = kernel[axis];
    if (!dilations.empty()) window.dilation[to] = dilations[axis];
    window.in[to] = (kernel[axis] - 1) * window.dilation[to] + 1;
  }
  return window;
}

Window WindowAttributes::resolve_convolution(sdk::DimsView in, sdk::DimsView kernel) const {
  constexpr int64_t kMost = int64_t{1} << 40;
  const Window window = resolve(in, kernel);
  common::checked_product(kernel).at_most(kMost, "a kernel of ", sdk::to_string(kernel));
  sdk::Dims padded;
  for (std::size_t axis = 0; axis < kSpatialAxes; ++axis)
    padded.push_back(window.in[axis] + window.pad_begin[axis] + window.pad_end[axis]);
  common::checked_product(padded).at_most(kMost, "an image of ", sdk::to_string(padded),
                                          " with its padding");
  return window;
}

}  // namespace backplane::cpu
