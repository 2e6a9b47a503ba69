#include "plugins/cpu/dense/conv_geometry.hpp"

#include <algorithm>

namespace backplane::cpu {
namespace {

void check_count(const char* what, const std::vector<int64_t>& values, std::size_t expected) {
  if (!values.empty() && values.size() != expected) {
    sdk::invalid("attribute '", what, "' has ", values.size(), " entries, the input needs ",
                 expected);
  }
}

/// The number of positions of the window along one axis.
int64_t positions(int64_t padded, int64_t window, int64_t stride, bool ceil_mode, int64_t in,
                  int64_t pad_begin) {
  if (padded < window) return 0;
  int64_t count = (padded - window) / stride + 1;
  if (ceil_mode && (padded - window) % stride != 0) {
    // A window that would start in the padding at the end is left out.
    if (count * stride < in + pad_begin) ++count;
  }
  return count;
}

}  // namespace

WindowAttributes::WindowAttributes(const sdk::Node& node)
    : kernel_shape(node.get_ints("kernel_shape")),
      strides(node.get_ints("strides")),
      dilations(node.get_ints("dilations")),
      pads(node.get_ints("pads")),
      auto_pad(node.get_string("auto_pad", "NOTSET")),
      ceil_mode(node.get_int("ceil_mode", 0) != 0) {
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" &&
      auto_pad != "SAME_LOWER") {
    sdk::invalid("attribute 'auto_pad' is '", auto_pad,
                 "'; it may be NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  }
  for (const auto* values : {&kernel_shape, &strides, &dilations}) {
    for (const int64_t value : *values) {
      if (value < 1)
        sdk::invalid("kernel_shape, strides and dilations must be positive, got ", value);
    }
  }
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
    const int64_t stride = strides.empty() ? 1 : strides[axis];
    const int64_t dilation = dilations.empty() ? 1 : dilations[axis];
    const int64_t extent = (kernel[axis] - 1) * dilation + 1;
    int64_t begin = 0;
    int64_t end = 0;
    if (auto_pad == "NOTSET" && !pads.empty()) {
      begin = pads[axis];
      end = pads[axis + axes];
    } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const int64_t out = (in[axis] + stride - 1) / stride;
      const int64_t total = std::max<int64_t>(0, (out - 1) * stride + extent - in[axis]);
      begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    if (begin < 0 || end < 0) sdk::unsupported("negative pads are not handled");
    window.kernel[to] = kernel[axis];
    window.stride[to] = stride;
    window.dilation[to] = dilation;
    window.pad_begin[to] = begin;
    window.pad_end[to] = end;
    window.in[to] = in[axis];
    const bool ceil = ceil_mode && auto_pad == "NOTSET";
    window.out[to] = positions(in[axis] + begin + end, extent, stride, ceil, in[axis], begin);
  }
  return window;
}

}  // namespace backplane::cpu
