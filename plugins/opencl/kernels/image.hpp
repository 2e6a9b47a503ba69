// The image of a convolution that is done as a product of the weights with it. Its taps are the same rows moved by a constant:
// for that the image is first spread out, padded, with the columns and rows that a stride visits brought together. An image
// that needs neither is read as it lies.
#pragma once

#include <cstdint>

#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {

bool needs_spread(const Window& window);
/// Of a spread image with these planes, in elements, with what loads of the widest tile may pass the end by. Errors:
/// BP_UNSUPPORTED for a channel that taps cannot be numbered in.
std::int64_t spread_elements(const Window& window, std::int64_t planes);
/// Elements that loads of the widest tile may pass the end by.
constexpr std::int64_t kImageSlack = 64;

/// What is spread. With `is_integer` its elements become floats less `zero`'s only element, where it is there.
struct SpreadSource {
  MemoryRef memory;
  DataType type = DataType::Float;
  bool is_integer = false, has_zero = false;
  MemoryRef zero = {};
};
/// Spreads the source into the workspace, from its beginning on.
void add_spread(Work& work, const SpreadSource& source, DataType type, std::int64_t planes,
                const Window& window);

/// Tells the product how the columns of the image lie, spread or not.
void place_image(const Window& window, std::int64_t channels, std::int64_t groups,
                 Product& product);

}  // namespace backplane::opencl
