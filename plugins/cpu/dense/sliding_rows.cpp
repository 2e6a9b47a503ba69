#include "plugins/cpu/dense/sliding_rows.hpp"

#include <cstddef>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/sliding_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

SlidingRows sliding_rows_of(int64_t width, int64_t stride);

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

// Sums, the weights of a row and a pixel fit into the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int kMostPixels = 8;
#else
constexpr int kMostPixels = 7;
#endif

/// kPixels output pixels from `first` on, one vector of channels. Bit j of `inside`: pixel j of those that their windows reach
/// lies inside of the image.
template <int kWidth, int kStride, int kPixels>
HWY_ATTR void slide_pixels(const SlidingRun& run, int64_t first, uint32_t inside, int64_t c) {
  const Tag d;
  constexpr int kReach = (kPixels - 1) * kStride + kWidth;
  Vector acc[kPixels];
  const Vector bias = run.bias != nullptr ? hn::LoadU(d, run.bias + c) : hn::Zero(d);
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) acc[p] = bias;
  for (int r = 0; r < run.rows; ++r) {
    Vector w[kWidth];
#pragma GCC unroll 8
    for (int k = 0; k < kWidth; ++k) w[k] = hn::LoadU(d, run.weights[r] + k * run.channels + c);
    const float* x = run.x[r] + first * kStride * run.x_step + c;
#pragma GCC unroll 32
    for (int j = 0; j < kReach; ++j, x += run.x_step) {
      if ((inside >> j & 1) == 0) continue;
      const Vector v = hn::LoadU(d, x);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
        const int k = j - p * kStride;
        if (k >= 0 && k < kWidth) acc[p] = hn::MulAdd(v, w[k], acc[p]);
      }
    }
  }
  const Vector lo = hn::Set(d, run.lo);
  const Vector hi = hn::Set(d, run.hi);
  float* y = run.y + first * run.y_step + c;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
    hn::StoreU(at_least(lo, at_most(hi, acc[p])), d, y + p * run.y_step);
}

template <int kWidth, int kStride, int kPixels>
HWY_ATTR void slide_channels(const SlidingRun& run, int64_t first, uint32_t inside) {
  int64_t c = 0;
  for (; c + kLanes <= run.channels; c += kLanes)
    slide_pixels<kWidth, kStride, kPixels>(run, first, inside, c);
  // The last vector begins so early that it is whole.
  if (c < run.channels)
    slide_pixels<kWidth, kStride, kPixels>(run, first, inside, run.channels - kLanes);
}

/// A block of `count` pixels, 1 to kPixels.
template <int kWidth, int kStride, int kPixels>
HWY_ATTR void slide_block(const SlidingRun& run, int64_t first, int64_t count, uint32_t inside) {
  if constexpr (kPixels > 1) {
    if (count < kPixels)
      return slide_block<kWidth, kStride, kPixels - 1>(run, first, count, inside);
  }
  slide_channels<kWidth, kStride, kPixels>(run, first, inside);
}

template <int kWidth, int kStride>
void slide_run(const SlidingRun& run) {
  constexpr int64_t kReach = (kMostPixels - 1) * kStride + kWidth;
  static_assert(kReach < 32);
  const int64_t blocks = (run.pixels + kMostPixels - 1) / kMostPixels;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = run.pixels * b / blocks;
    const int64_t count = run.pixels * (b + 1) / blocks - first;
    const int64_t begin = run.begin + first * kStride;
    uint32_t inside = 0;
    for (int64_t j = 0; j < kReach; ++j)
      inside |= static_cast<uint32_t>(begin + j >= 0 && begin + j < run.in) << j;
    slide_block<kWidth, kStride, kMostPixels>(run, first, count, inside);
  }
}

template <int kWidth>
SlidingRows rows_of(int64_t stride) {
  return stride == 1 ? slide_run<kWidth, 1> : stride == 2 ? slide_run<kWidth, 2> : nullptr;
}

}  // namespace

SlidingRows sliding_rows_of(int64_t width, int64_t stride) {
  return width == 3   ? rows_of<3>(stride)
         : width == 5 ? rows_of<5>(stride)
         : width == 7 ? rows_of<7>(stride)
                      : nullptr;
}
#else
SlidingRows sliding_rows_of(int64_t, int64_t) { return nullptr; }
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

SlidingRows sliding_rows(Isa isa, int64_t width, int64_t stride) {
  BP_SELECT_TARGET(isa, sliding_rows_of(width, stride));
}

}  // namespace backplane::cpu
#endif
