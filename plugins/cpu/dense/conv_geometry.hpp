// The shape arithmetic of convolutions and pooling.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/windows.hpp"

namespace backplane::cpu {

/// Spatial axes that the kernels handle. Fewer are padded with ones in front: an image is
/// [depth 1, height, width], a signal [1, 1, length].
constexpr int kSpatialAxes = 3;

/// A window that slides over spatial axes; in ONNX's attributes and words.
struct Window {
  std::array<int64_t, kSpatialAxes> kernel{1, 1, 1};
  std::array<int64_t, kSpatialAxes> stride{1, 1, 1};
  std::array<int64_t, kSpatialAxes> dilation{1, 1, 1};
  std::array<int64_t, kSpatialAxes> pad_begin{0, 0, 0};
  std::array<int64_t, kSpatialAxes> pad_end{0, 0, 0};
  std::array<int64_t, kSpatialAxes> in{1, 1, 1};
  std::array<int64_t, kSpatialAxes> out{1, 1, 1};

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
  common::WindowAxis axis(std::size_t at) const {
    return {in[at], out[at], kernel[at], stride[at], dilation[at], pad_begin[at], pad_end[at]};
  }
  /// The most positions that lie inside of the image. A window that reaches far out of it may have more positions than
  /// can be counted.
  int64_t most_inside() const {
    int64_t count = 1;
    for (std::size_t at = 0; at < kSpatialAxes; ++at)
      count *= std::min(kernel[at], common::ceil_quotient(in[at], dilation[at]));
    return count;
  }
  bool padded() const {
    return pad_begin != std::array<int64_t, 3>{} || pad_end != std::array<int64_t, 3>{};
  }
};

/// The attributes of Conv, ConvInteger, QLinearConv and the pooling operators as a node gives them.
struct WindowAttributes {
  std::vector<int64_t> kernel_shape, strides, dilations, pads;
  std::string auto_pad = "NOTSET";
  bool ceil_mode = false;

  explicit WindowAttributes(const sdk::Node& node);
  /// For spatial dims `in` and a kernel of `kernel` (kernel_shape, or the weights' dims). Throws
  /// sdk::Error when they do not fit each other.
  Window resolve(sdk::DimsView in, sdk::DimsView kernel) const;
  /// The same for weights, whose positions are all visited, and images that may be copied with their padding: an error
  /// where these are too large.
  Window resolve_convolution(sdk::DimsView in, sdk::DimsView kernel) const;
  /// A kernel of up to three axes over an image that it just covers: what packed weights depend on.
  Window covered(sdk::DimsView kernel) const;
};

}  // namespace backplane::cpu
