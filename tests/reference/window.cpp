#include "tests/reference/window.hpp"

#include <algorithm>
#include <string>

namespace backplane::reference {
namespace {

Window window_with(const Call& call, const Dims& x_dims, const Dims& kernel) {
  const std::size_t axes = kernel.size();
  Window window;
  window.kernel = kernel;
  window.strides = call.list("strides", Dims(axes, 1));
  window.dilations = call.list("dilations", Dims(axes, 1));
  const Dims pads = call.list("pads", Dims(2 * axes, 0));
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::int64_t>(axes));
  window.pads_end.assign(pads.begin() + static_cast<std::int64_t>(axes), pads.end());
  window.output.assign(axes, 0);
  window.kernel_size = element_count(kernel);
  window.input_size = product(x_dims, 2, static_cast<std::int64_t>(x_dims.size()));
  return window;
}

std::int64_t extent(const Window& window, std::size_t axis) {
  return (window.kernel[axis] - 1) * window.dilations[axis] + 1;
}

/// Shares `total` pads: SAME_UPPER puts an odd one at the end, SAME_LOWER at the beginning.
void share_pads(Window& window, std::size_t axis, std::int64_t total, bool upper) {
  total = std::max<std::int64_t>(total, 0);
  window.pads_begin[axis] = upper ? total / 2 : total - total / 2;
  window.pads_end[axis] = total - window.pads_begin[axis];
}

}  // namespace

Window window_of(const Call& call, const Dims& x_dims, const Dims& kernel, bool pooling) {
  Window window = window_with(call, x_dims, kernel);
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  const bool ceil_mode = pooling && call.integer("ceil_mode", 0) != 0;
  for (std::size_t axis = 0; axis < kernel.size(); ++axis) {
    const std::int64_t in = x_dims[axis + 2];
    const std::int64_t stride = window.strides[axis];
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const std::int64_t out = (in + stride - 1) / stride;
      share_pads(window, axis, (out - 1) * stride + extent(window, axis) - in,
                 auto_pad == "SAME_UPPER");
      window.output[axis] = out;
      continue;
    }
    const std::int64_t span =
        in + window.pads_begin[axis] + window.pads_end[axis] - extent(window, axis);
    window.output[axis] = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    // A window that would start in the pads at the end does not count.
    if (ceil_mode && (window.output[axis] - 1) * stride >= in + window.pads_begin[axis]) {
      --window.output[axis];
    }
  }
  return window;
}

Window transposed_window_of(const Call& call, const Dims& x_dims, const Dims& kernel) {
  Window window = window_with(call, x_dims, kernel);
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  const Dims extra = call.list("output_padding", Dims(kernel.size(), 0));
  const Dims shape = call.list("output_shape");
  for (std::size_t axis = 0; axis < kernel.size(); ++axis) {
    const std::int64_t full =
        (x_dims[axis + 2] - 1) * window.strides[axis] + extra[axis] + extent(window, axis);
    if (shape.empty() && !auto_pad.starts_with("SAME")) {
      window.output[axis] = full - window.pads_begin[axis] - window.pads_end[axis];
      continue;
    }
    window.output[axis] = shape.empty() ? x_dims[axis + 2] * window.strides[axis]
                                        : shape[shape.size() - kernel.size() + axis];
    // Also without auto_pad an odd pad of output_shape stands at the beginning.
    share_pads(window, axis, full - window.output[axis], auto_pad == "SAME_UPPER");
  }
  return window;
}

double padded_count(const Window& window, const Dims& index, const Dims& x_dims) {
  double count = 1;
  for (std::size_t axis = 0; axis < window.kernel.size(); ++axis) {
    const std::int64_t begin = index[axis + 2] * window.strides[axis] - window.pads_begin[axis];
    std::int64_t inside = 0;
    for (std::int64_t k = 0; k < window.kernel[axis]; ++k) {
      inside += begin + k * window.dilations[axis] < x_dims[axis + 2] + window.pads_end[axis];
    }
    count *= static_cast<double>(inside);
  }
  return count;
}

}  // namespace backplane::reference
