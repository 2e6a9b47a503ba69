// Windows that slide along an axis of a padded image: sizes that fit, and which positions lie where.
// https://onnx.ai/onnx/operators/onnx__Conv.html, onnx__MaxPool.html, onnx__ConvTranspose.html
#pragma once

#include <algorithm>
#include <cstdint>

#include "plugins/common/checked.hpp"

namespace backplane::common {

/// One axis of a window: the image, how often the window lies on it, and the window. Positions of the window are
/// k in [0, kernel); position k of output element `out` lies at start(out) + k * dilation.
struct WindowAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;

  std::int64_t start(std::int64_t at) const { return at * stride - pad_begin; }
  /// The first position that does not lie before the image.
  std::int64_t first_inside(std::int64_t at) const {
    const std::int64_t begin = start(at);
    return begin >= 0 ? 0 : std::min(kernel, ceil_quotient(-begin, dilation));
  }
  /// How many positions lie before `end`, an element of the axis or of the padding after it.
  std::int64_t count_before(std::int64_t end, std::int64_t at) const {
    const std::int64_t begin = start(at);
    if (begin + (kernel - 1) * dilation < end) return kernel;  // most windows, without a division
    return std::min(kernel, ceil_quotient(end - begin, dilation));
  }
};

/// How many elements a window spans along an axis. Errors: BP_INVALID_ARGUMENT where that is no size.
inline std::int64_t window_extent(std::size_t axis, std::int64_t kernel, std::int64_t dilation) {
  return ((Checked(kernel) - 1) * dilation + 1)
      .value("a window of ", kernel, " elements with dilation ", dilation, " along spatial axis ",
             axis);
}

/// How many elements an axis has with its padding. Beside them there is room for a window of `extent`, so that all
/// places of windows fit, too. Errors: as above.
inline std::int64_t padded_size(std::size_t axis, std::int64_t in, std::int64_t begin,
                                std::int64_t end, std::int64_t extent) {
  const Checked padded = Checked(in) + begin + end;
  (padded + extent)
      .value("spatial axis ", axis, " of ", in, " elements with pads ", begin, " and ", end,
             " under a window of ", extent);
  return padded.value();
}

/// How many elements a transposed convolution makes along an axis before pads are taken off. Errors: as above.
inline std::int64_t transposed_size(std::size_t axis, std::int64_t in, std::int64_t stride,
                                    std::int64_t extent, std::int64_t more) {
  return ((Checked(in) - 1) * stride + extent + more)
      .value("spatial axis ", axis, " of ", in, " elements with stride ", stride, ", a window of ",
             extent, " and output_padding ", more);
}

/// Errors: BP_INVALID_ARGUMENT where the first or the last window of an axis lies in the padding alone. A maximum
/// of nothing, and a mean of no element, is no result.
inline void require_elements(std::size_t axis, const WindowAxis& window) {
  if (window.in < 1 || window.out < 1) return;
  const std::int64_t extent = (window.kernel - 1) * window.dilation + 1;
  if (window.pad_begin < extent && window.start(window.out - 1) < window.in) return;
  sdk::invalid("pads ", window.pad_begin, " and ", window.pad_end, " along spatial axis ", axis,
               " make a window of ", extent,
               " elements that lies in the padding alone; they must be smaller than the window");
}

}  // namespace backplane::common
