// Channels-last images as tensors [batch, spatial ..., channels].
#pragma once

#include <array>

#include "plugins/cpu/dense/layout_copy.hpp"

namespace backplane::cpu {

/// Where the elements of a channels-last tensor with up to 3 spatial axes lie.
inline ImageStrides image_strides(const sdk::Tensor& tensor) {
  const int rank = tensor.rank();
  const auto spatial = [rank](int axis) { return static_cast<std::size_t>(axis + 4 - rank); };
  if (tensor.strides() == nullptr) {
    std::array<int64_t, 3> extents{1, 1, 1};
    for (int axis = 1; axis + 1 < rank; ++axis) extents[spatial(axis)] = tensor.dim(axis);
    return ImageStrides::dense(extents, tensor.dim(rank - 1));
  }
  std::array<int64_t, 3> strides{0, 0, 0};
  for (int axis = 1; axis + 1 < rank; ++axis) strides[spatial(axis)] = tensor.strides()[axis];
  return {tensor.strides()[0], strides[0], strides[1], strides[2]};
}

}  // namespace backplane::cpu
