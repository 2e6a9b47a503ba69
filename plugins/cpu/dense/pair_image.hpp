// Images rounded to bfloat16, in the pairs that tiles multiply.
#pragma once

#include <array>
#include <cstdint>

#include "plugins/cpu/dense/conv_direct.hpp"

namespace backplane::cpu {

/// A rounded copy of a batch of channels-last images, two channels in the place of a float and a zero after an odd last
/// one. Immutable.
class PairImage {
 public:
  /// Whether a convolution may read such a copy, and gains by it: channels of several groups are in pairs, and a single
  /// one would leave half of each pair empty.
  static bool applies(const ConvShape& shape) {
    const int64_t channels = shape.in_channels / shape.groups;
    return channels > 1 && (shape.groups == 1 || channels % 2 == 0);
  }

  PairImage() = default;
  PairImage(const ConvShape& shape, Isa isa);

  /// Of a pixel.
  int64_t pairs() const { return pairs_; }
  ImageStrides strides() const { return ImageStrides::dense(in_, pairs_); }
  uint64_t bytes() const;
  void fill(const float* x, const ImageStrides& strides, float* to,
            const sdk::Threads& threads) const;

 private:
  void round_line(const float* line, int64_t width, uint16_t* to) const;

  std::array<int64_t, 3> in_{};
  int64_t batch_ = 0;
  int64_t channels_ = 0;
  int64_t pairs_ = 0;
  const HalfConversion* rounding_ = nullptr;
};

}  // namespace backplane::cpu
