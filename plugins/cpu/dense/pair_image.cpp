#include "plugins/cpu/dense/pair_image.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// Pixels of an odd number of channels get a zero behind them.
void pad_pixels(const uint16_t* from, int64_t channels, int64_t pixels, uint16_t* to) {
  for (int64_t i = 0; i < pixels; ++i, from += channels, to += channels + 1) {
    std::memcpy(to, from, static_cast<std::size_t>(channels) * sizeof(uint16_t));
    to[channels] = 0;
  }
}

}  // namespace

PairImage::PairImage(const ConvShape& shape, Isa isa)
    : in_(shape.window.in),
      batch_(shape.batch),
      channels_(shape.in_channels),
      pairs_(ceil_div(shape.in_channels, 2)),
      rounding_(&half_conversion(isa, sdk::DataType::BFloat16)) {}

uint64_t PairImage::bytes() const {
  const common::Checked bytes = common::checked_product(in_) * batch_ * pairs_ * 4;
  return align64(static_cast<uint64_t>(bytes.value("a rounded copy of x")));
}

/// `width` is the distance of pixels.
void PairImage::round_line(const float* line, int64_t width, uint16_t* to) const {
  constexpr int64_t kPart = 2048;
  uint16_t part[kPart];
  // As many pixels at a time as `part` has room for, where they follow each other; else one.
  const int64_t run = width == channels_ ? std::max<int64_t>(1, kPart / channels_) : 1;
  for (int64_t x = 0; x < in_[2]; x += run) {
    const int64_t pixels = std::min(run, in_[2] - x);
    const float* from = line + x * width;
    uint16_t* pixel = to + x * 2 * pairs_;
    if (channels_ % 2 == 0) {
      rounding_->from_float(from, pixel, pixels * channels_);
    } else if (channels_ <= kPart) {
      rounding_->from_float(from, part, pixels * channels_);
      pad_pixels(part, channels_, pixels, pixel);
    } else {
      rounding_->from_float(from, pixel, channels_);
      pixel[channels_] = 0;
    }
  }
}

void PairImage::fill(const float* x, const ImageStrides& strides, float* to,
                     const sdk::Threads& threads) const {
  split_loop(threads, batch_ * in_[0] * in_[1], static_cast<double>(in_[2] * channels_) / 4, 1,
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const float* line = x + i % in_[1] * strides.height +
                                     i / in_[1] % in_[0] * strides.depth +
                                     i / (in_[0] * in_[1]) * strides.batch;
                 round_line(line, strides.width,
                            reinterpret_cast<uint16_t*>(to + i * in_[2] * pairs_));
               }
             });
}

}  // namespace backplane::cpu
