// Windows that slide over one to three spatial axes: kernel size, strides, dilations, padding.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/windows.hpp"

namespace backplane::device_ops {

class Walk;

/// Always three axes; those that are missing stand in front, with one element.
struct Window {
  std::array<std::int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1},
      dilation{1, 1, 1}, pad_begin{0, 0, 0}, pad_end{0, 0, 0};

  common::WindowAxis axis(std::size_t at) const;
  std::int64_t in_points() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_points() const { return out[0] * out[1] * out[2]; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

/// The attributes of Conv, pooling and their kin.
struct WindowAttributes {
  explicit WindowAttributes(const sdk::Node& node);
  /// The window for spatial dims and a kernel size. Errors: BP_INVALID_ARGUMENT, BP_UNSUPPORTED for more
  /// than three axes.
  Window resolve(DimsView spatial, DimsView kernel) const;
  /// The window of a convolution of x with the weights w. Errors: as resolve, and BP_INVALID_ARGUMENT where their dims and the
  /// groups do not fit.
  Window resolve_convolution(const sdk::Tensor& x, const sdk::Tensor& w, std::int64_t groups) const;
  /// The same for a transposed convolution, whose input is the smaller side.
  Window resolve_transposed(DimsView spatial, DimsView kernel) const;

  Dims kernel_shape, strides, dilations, pads, output_padding, output_shape;
  std::string auto_pad;
  bool ceil_mode;
};

/// dims[0], dims[1] or `channels`, and the window's spatial output.
Dims output_dims(DimsView x, std::int64_t channels, const Window& window);

/// The window's numbers as arguments of a kernel: in_0 ..., out_0 ..., k_0 ..., s_0 ..., d_0 ..., b_0 ... and e_0 ..., the padding
/// at the beginning and the end.
void add_numbers(Walk& walk, const Window& window);

}  // namespace backplane::device_ops
