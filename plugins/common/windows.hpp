// Windows that slide along an axis of a padded image: sizes that fit, and which positions lie where.
// https://onnx.ai/onnx/operators/onnx__Conv.html, onnx__MaxPool.html, onnx__ConvTranspose.html
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

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

/// How often a window of `extent` lies along an axis whose pads are known. ONNX counts floor((padded - extent) / stride) + 1,
/// with ceil_mode its ceiling, and then no window that begins in the padding at the end. One less than a window is no
/// window; of less ONNX has no size. Where the window does not fit and the quotient is no integer, ONNX's text and its
/// inference (which ONNX Runtime follows) round it to different sides. Errors: BP_INVALID_ARGUMENT in both cases.
inline std::int64_t window_count(std::size_t axis, const WindowAxis& window, std::int64_t extent,
                                 bool ceil_mode) {
  const std::int64_t size = padded_size(axis, window.in, window.pad_begin, window.pad_end, extent);
  const std::int64_t room = size - extent, stride = window.stride;
  const bool is_exact = room % stride == 0;
  const std::int64_t steps = room >= 0 && ceil_mode ? ceil_quotient(room, stride) : room / stride;
  if (steps < -1 || (room < 0 && !is_exact && !ceil_mode)) {
    sdk::invalid("a window of ", extent, " elements with stride ", stride,
                 " does not fit spatial axis ", axis, " of ", window.in, " elements with pads ",
                 window.pad_begin, " and ", window.pad_end);
  }
  const bool drops_last = ceil_mode && steps >= 0 && window.start(steps) >= window.in;
  return steps + (drops_last ? 0 : 1);
}

/// An axis with what is still open: `given` has the attributes' numbers; the result the pads that auto_pad says, and how
/// often the window lies on it. Errors: BP_INVALID_ARGUMENT, BP_UNSUPPORTED.
inline WindowAxis resolved_window(std::size_t axis, const WindowAxis& given,
                                  const std::string& auto_pad, bool ceil_mode) {
  WindowAxis window = given;
  const std::int64_t least = window.in == 0 ? 0 : 1;  // the whole of nothing is a window, too
  if (window.kernel < least || window.stride < 1 || window.dilation < 1)
    sdk::invalid("kernel_shape, strides and dilations must be positive, got ", window.kernel, ", ",
                 window.stride, " and ", window.dilation, " along spatial axis ", axis);
  if (window.kernel <= 1) window.dilation = 1;  // of one position, it says nothing
  const std::int64_t extent = window_extent(axis, window.kernel, window.dilation);
  padded_size(axis, window.in, 0, 0, extent);
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    window.out = ceil_quotient(window.in, window.stride);
    const std::int64_t both =
        std::max<std::int64_t>(0, (window.out - 1) * window.stride + extent - window.in);
    window.pad_begin = auto_pad == "SAME_UPPER" ? both / 2 : both - both / 2;
    window.pad_end = both - window.pad_begin;
    return window;
  }
  if (auto_pad == "VALID") window.pad_begin = window.pad_end = 0;
  if (window.pad_begin < 0 || window.pad_end < 0)
    sdk::unsupported("pads ", window.pad_begin, " and ", window.pad_end, " along spatial axis ",
                     axis, " are negative; cut the image by a Slice instead");
  if (auto_pad == "VALID" && ceil_mode && (window.in - extent) % window.stride != 0)
    sdk::unsupported("auto_pad VALID with ceil_mode along spatial axis ", axis, " of ", window.in,
                     " elements: ONNX's text and its inference count the windows differently; give "
                     "pads instead");
  window.out = window_count(axis, window, extent, ceil_mode);
  return window;
}

/// Errors: BP_INVALID_ARGUMENT where the first or the last window of an axis lies in the padding alone. A maximum
/// of nothing, and a mean of no element, is no result.
inline void require_elements(std::size_t axis, const WindowAxis& window) {
  if (window.out < 1) return;
  const std::int64_t extent = (window.kernel - 1) * window.dilation + 1;
  if (window.in > 0 && window.pad_begin < extent && window.start(window.out - 1) < window.in)
    return;
  sdk::invalid("pads ", window.pad_begin, " and ", window.pad_end, " along spatial axis ", axis,
               " of ", window.in, " elements make a window of ", extent,
               " elements that lies in the padding alone; they must be smaller than the window");
}

}  // namespace backplane::common
