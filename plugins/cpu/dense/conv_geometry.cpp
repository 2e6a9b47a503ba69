#include "plugins/cpu/dense/conv_geometry.hpp"

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
  // With ceil_mode an image may be smaller than its one window.
  if (padded < window) return ceil_mode && window - padded < stride && in > 0 ? 1 : 0;
  int64_t count = (padded - window) / stride + 1;
  if (ceil_mode && (padded - window) % stride != 0) {
    // A window that would start in the padding at the end is left out.
    if (count <= (in + pad_begin - 1) / stride) ++count;
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
    // Of one position, it says nothing.
    const int64_t dilation = dilations.empty() || kernel[axis] <= 1 ? 1 : dilations[axis];
    const int64_t extent = common::window_extent(axis, kernel[axis], dilation);
    common::padded_size(axis, in[axis], 0, 0, extent);
    int64_t begin = 0;
    int64_t end = 0;
    if (auto_pad == "NOTSET" && !pads.empty()) {
      begin = pads[axis];
      end = pads[axis + axes];
    } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const int64_t out = common::ceil_quotient(in[axis], stride);
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
    const int64_t size = common::padded_size(axis, in[axis], begin, end, extent);
    window.out[to] = positions(size, extent, stride, ceil, in[axis], begin);
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
