#include "plugins/cpu/dense/window_kernels.hpp"

#include <cstddef>
#include <numeric>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/window_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const WindowKernels& window_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

struct Whole {
  HWY_INLINE Vector load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE void store(Vector v, float* p) const { hn::StoreU(v, Tag(), p); }
};
struct Part {
  hn::Mask<Tag> mask;
  HWY_INLINE Vector load(const float* p) const { return load_first(mask, Tag(), p); }
  HWY_INLINE void store(Vector v, float* p) const { store_first(mask, Tag(), v, p); }
};

/// The operations, over kPixels neighbouring pixels and one vector of channels from `c` on.
struct Depthwise {
  template <int kPixels, class Access>
  static HWY_INLINE void pixels(const Access& access, const WindowRun& run, int64_t first,
                                int64_t c) {
    const Tag d;
    Vector acc[kPixels];
    const Vector bias = run.bias != nullptr ? access.load(run.bias + c) : hn::Zero(d);
    for (int i = 0; i < kPixels; ++i) acc[i] = bias;
    for (int64_t t = 0; t < run.tap_count; ++t) {
      const Vector w = access.load(run.weights[t] + c);
      const float* x = run.taps[t] + first * run.x_step + c;
      for (int i = 0; i < kPixels; ++i)
        acc[i] = hn::MulAdd(access.load(x + i * run.x_step), w, acc[i]);
    }
    const Vector lo = hn::Set(d, run.lo);
    const Vector hi = hn::Set(d, run.hi);
    for (int i = 0; i < kPixels; ++i) {
      if (run.residual != nullptr) {
        const float* r = run.residual + (first + i) * run.residual_step + c;
        acc[i] = hn::Add(acc[i], access.load(r));
      }
      access.store(at_least(lo, at_most(hi, acc[i])), run.y + (first + i) * run.y_step + c);
    }
  }
};

struct Max {
  template <int kPixels, class Access>
  static HWY_INLINE void pixels(const Access& access, const WindowRun& run, int64_t first,
                                int64_t c) {
    Vector acc[kPixels];
    const float* x0 = run.taps[0] + first * run.x_step + c;
    for (int i = 0; i < kPixels; ++i) acc[i] = access.load(x0 + i * run.x_step);
    for (int64_t t = 1; t < run.tap_count; ++t) {
      const float* x = run.taps[t] + first * run.x_step + c;
      for (int i = 0; i < kPixels; ++i) {
        const Vector v = access.load(x + i * run.x_step);
        // False for a NaN in the accumulator, which stays; a NaN in v is taken.
        const auto take = hn::Or(hn::Gt(v, acc[i]), hn::IsNaN(v));
        acc[i] = hn::IfThenElse(take, v, acc[i]);
      }
    }
    for (int i = 0; i < kPixels; ++i) access.store(acc[i], run.y + (first + i) * run.y_step + c);
  }
};

struct Mean {
  template <int kPixels, class Access>
  static HWY_INLINE void pixels(const Access& access, const WindowRun& run, int64_t first,
                                int64_t c) {
    const Tag d;
    Vector acc[kPixels];
    for (int i = 0; i < kPixels; ++i) acc[i] = hn::Zero(d);
    for (int64_t t = 0; t < run.tap_count; ++t) {
      const float* x = run.taps[t] + first * run.x_step + c;
      for (int i = 0; i < kPixels; ++i) acc[i] = hn::Add(acc[i], access.load(x + i * run.x_step));
    }
    const Vector scale = hn::Set(d, run.scale);
    for (int i = 0; i < kPixels; ++i) {
      access.store(hn::Mul(acc[i], scale), run.y + (first + i) * run.y_step + c);
    }
  }
};

// Enough independent sums to hide the latency of an addition.
constexpr int64_t kPixelBlock = 6;

template <class Operation, class Access>
HWY_INLINE void channel_vector(const Access& access, const WindowRun& run, int64_t first,
                               int64_t count, int64_t c) {
  switch (count) {
    case 6:
      return Operation::template pixels<6>(access, run, first, c);
    case 5:
      return Operation::template pixels<5>(access, run, first, c);
    case 4:
      return Operation::template pixels<4>(access, run, first, c);
    case 3:
      return Operation::template pixels<3>(access, run, first, c);
    case 2:
      return Operation::template pixels<2>(access, run, first, c);
    default:
      return Operation::template pixels<1>(access, run, first, c);
  }
}

/// Blocks of pixels outside, channels inside: memory is read in the order it lies.
template <class Operation>
HWY_INLINE void all_pixels(const WindowRun& run) {
  const int64_t blocks = (run.pixels + kPixelBlock - 1) / kPixelBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = run.pixels * b / blocks;
    const int64_t count = run.pixels * (b + 1) / blocks - first;
    int64_t c = 0;
    if (count == kPixelBlock) {
      for (; c + kLanes <= run.channels; c += kLanes) {
        Operation::template pixels<kPixelBlock>(Whole{}, run, first, c);
      }
    } else {
      for (; c + kLanes <= run.channels; c += kLanes) {
        channel_vector<Operation>(Whole{}, run, first, count, c);
      }
    }
    if (c < run.channels) {
      const Part part{hn::FirstN(Tag(), static_cast<size_t>(run.channels - c))};
      channel_vector<Operation>(part, run, first, count, c);
    }
  }
}

/// Vectors of a line after which weights repeat.
int64_t period_of(int64_t channels) { return channels / std::gcd(channels, kLanes); }

constexpr int64_t kMostPeriod = 3;

int64_t repeated(int64_t channels) {
  if (channels < 1 || channels >= kLanes) return 0;
  const int64_t period = period_of(channels);
  return period == 1 || period == kMostPeriod ? period * kLanes : 0;
}

/// kVectors of a line of pixels, from float `at` on, whose weights begin with float `offset` of the repeated ones.
template <int kPeriod, int kVectors, class Access>
HWY_INLINE void dense_vectors(const Access& access, const WindowRun& run, const float* bias,
                              int64_t at, int64_t offset) {
  const Tag d;
  Vector acc[kVectors];
#pragma GCC unroll 6
  for (int v = 0; v < kVectors; ++v) acc[v] = hn::LoadU(d, bias + offset + v % kPeriod * kLanes);
  for (int64_t t = 0; t < run.tap_count; ++t) {
    const float* x = run.taps[t] + at;
    const float* w = run.weights[t] + offset;
    Vector weights[kPeriod];
#pragma GCC unroll 3
    for (int i = 0; i < kPeriod; ++i) weights[i] = hn::LoadU(d, w + i * kLanes);
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v)
      acc[v] = hn::MulAdd(access.load(x + v * kLanes), weights[v % kPeriod], acc[v]);
  }
  const Vector lo = hn::Set(d, run.lo);
  const Vector hi = hn::Set(d, run.hi);
#pragma GCC unroll 6
  for (int v = 0; v < kVectors; ++v) {
    const int64_t place = at + v * kLanes;
    if (run.residual != nullptr) acc[v] = hn::Add(acc[v], access.load(run.residual + place));
    access.store(at_least(lo, at_most(hi, acc[v])), run.y + place);
  }
}

template <int kPeriod>
HWY_INLINE void dense_line(const WindowRun& run) {
  constexpr int kVectors = 6;  // enough independent sums, and a multiple of each period
  float bias[kPeriod * kLanes] = {};
  if (run.bias != nullptr) {
    for (int64_t i = 0; i < kPeriod * kLanes; ++i) bias[i] = run.bias[i % run.channels];
  }
  const int64_t end = run.pixels * run.channels;
  int64_t at = 0;
  for (; at + kVectors * kLanes <= end; at += kVectors * kLanes)
    dense_vectors<kPeriod, kVectors>(Whole{}, run, bias, at, 0);
  for (int64_t v = 0; at < end; at += kLanes, ++v) {
    const int64_t offset = v % kPeriod * kLanes;
    if (at + kLanes <= end) {
      dense_vectors<1, 1>(Whole{}, run, bias, at, offset);
    } else {
      const Part part{hn::FirstN(Tag(), static_cast<size_t>(end - at))};
      dense_vectors<1, 1>(part, run, bias, at, offset);
    }
  }
}

void dense_depthwise(const WindowRun& run) {
  period_of(run.channels) == 1 ? dense_line<1>(run) : dense_line<kMostPeriod>(run);
}

#undef BP_SLIDES
#if HWY_TARGET == HWY_AVX2
#define BP_SLIDES

/// One vector of channels of a run. A pixel is read once and goes into all windows that it is in; each window's sum is begun by its
/// first pixel. Weights stay in registers.
template <int kRows, int kStride>
HWY_INLINE void slide(const SlidingRun& run, int64_t first, int64_t count, int64_t c) {
  const Tag d;
  Vector w[kRows][3];
  const float* x[kRows];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    x[r] = run.x[r] + first * kStride * run.x_step + c;
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) w[r][k] = hn::LoadU(d, run.weights[r] + k * run.channels + c);
  }
  const Vector bias = run.bias != nullptr ? hn::LoadU(d, run.bias + c) : hn::Zero(d);
  const Vector lo = hn::Set(d, run.lo);
  const Vector hi = hn::Set(d, run.hi);
  float* y = run.y + first * run.y_step + c;
  const int64_t step = run.x_step;
  const bool after = run.after || first + count < run.pixels;
  const auto advance = [&]() HWY_ATTR {
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) x[r] += step;
  };
  const auto add = [&](Vector& to, int k) HWY_ATTR {
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) to = hn::MulAdd(hn::LoadU(d, x[r]), w[r][k], to);
  };
  const auto finish = [&](Vector v) HWY_ATTR {
    hn::StoreU(at_least(lo, at_most(hi, v)), d, y);
    y += run.y_step;
  };
  Vector sum = bias;
  if (run.before || first > 0) add(sum, 0);
  if constexpr (kStride == 1) {
    // `sum` is of the pixel that ends next, `next` of the one after it.
    advance();
    Vector next = bias;
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      const Vector v = hn::LoadU(d, x[r]);
      sum = hn::MulAdd(v, w[r][1], sum);
      next = hn::MulAdd(v, w[r][0], next);
    }
    for (int64_t i = 1; i < count; ++i) {
      advance();
      Vector begun = bias;
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        const Vector v = hn::LoadU(d, x[r]);
        sum = hn::MulAdd(v, w[r][2], sum);
        next = hn::MulAdd(v, w[r][1], next);
        begun = hn::MulAdd(v, w[r][0], begun);
      }
      finish(sum);
      sum = next;
      next = begun;
    }
  } else {
    for (int64_t i = 1; i < count; ++i) {
      Vector begun = bias;
      advance();
      add(sum, 1);
      advance();
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        const Vector v = hn::LoadU(d, x[r]);
        sum = hn::MulAdd(v, w[r][2], sum);
        begun = hn::MulAdd(v, w[r][0], begun);
      }
      finish(sum);
      sum = begun;
    }
    advance();
    add(sum, 1);
  }
  if (after) {
    advance();
    add(sum, 2);
  }
  finish(sum);
}

// Pixels of a run that all channels go over before the next ones: so few that the lines of memory that two vectors of channels
// share are still in the first-level cache.
constexpr int64_t kSlidingBlock = 16;

template <int kRows, int kStride>
HWY_INLINE void slide_all(const SlidingRun& run) {
  const int64_t blocks = (run.pixels + kSlidingBlock - 1) / kSlidingBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = run.pixels * b / blocks;
    const int64_t count = run.pixels * (b + 1) / blocks - first;
    int64_t c = 0;
    for (; c + kLanes <= run.channels; c += kLanes) slide<kRows, kStride>(run, first, count, c);
    // The last vector begins so early that it is whole.
    if (c < run.channels) slide<kRows, kStride>(run, first, count, run.channels - kLanes);
  }
}

template <int kStride>
HWY_INLINE void slide_rows(const SlidingRun& run) {
  if (run.rows == 3) return slide_all<3, kStride>(run);
  return run.rows == 2 ? slide_all<2, kStride>(run) : slide_all<1, kStride>(run);
}

void sliding_depthwise(const SlidingRun& run) {
  run.stride == 1 ? slide_rows<1>(run) : slide_rows<2>(run);
}
#endif

void depthwise(const WindowRun& run) { all_pixels<Depthwise>(run); }
void max(const WindowRun& run) { all_pixels<Max>(run); }
void mean(const WindowRun& run) { all_pixels<Mean>(run); }

}  // namespace

const WindowKernels& window_table() {
#ifdef BP_SLIDES
  constexpr auto sliding = sliding_depthwise;
#else
  constexpr decltype(WindowKernels::sliding_depthwise) sliding = nullptr;
#endif
  static constexpr WindowKernels kKernels = {
      depthwise, dense_depthwise, repeated, sliding, static_cast<int>(kLanes), max, mean};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const WindowKernels& window_kernels(Isa isa) { BP_SELECT_TARGET(isa, window_table()); }

}  // namespace backplane::cpu
#endif
