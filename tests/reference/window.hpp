// The sliding window of convolutions and pooling.
#pragma once

#include <cstdint>

#include "tests/reference/reference.hpp"

namespace backplane::reference {

/// One entry per spatial axis.
struct Window {
  Dims kernel;
  Dims strides;
  Dims dilations;
  Dims pads_begin;
  Dims pads_end;
  Dims output;
  std::int64_t input_size = 1;   // elements of an image
  std::int64_t kernel_size = 1;  // elements of the window
};

/// From the attributes strides, dilations, pads, auto_pad and, when `pooling`, ceil_mode. `x_dims`
/// are [N, C, image...].
Window window_of(const Call& call, const Dims& x_dims, const Dims& kernel, bool pooling);

/// The same for ConvTranspose, with output_shape and output_padding.
Window transposed_window_of(const Call& call, const Dims& x_dims, const Dims& kernel);

/// Calls body(offset in the image, offset in the window) for every element of the window at output
/// index [n, c, o...] that lies inside of the image.
template <class Body>
void for_each_tap(const Window& window, const Dims& index, const Dims& x_dims, const Body& body) {
  std::int64_t tap = 0;
  for_each_index(window.kernel, [&](const Dims& k) {
    std::int64_t at = 0;
    bool inside = true;
    for (std::size_t axis = 0; axis < window.kernel.size(); ++axis) {
      const std::int64_t place = index[axis + 2] * window.strides[axis] +
                                 k[axis] * window.dilations[axis] - window.pads_begin[axis];
      inside = inside && place >= 0 && place < x_dims[axis + 2];
      at = at * x_dims[axis + 2] + place;
    }
    if (inside) body(at, tap);
    ++tap;
  });
}

/// Elements of the window that lie in the image or its pads.
double padded_count(const Window& window, const Dims& index, const Dims& x_dims);

}  // namespace backplane::reference
