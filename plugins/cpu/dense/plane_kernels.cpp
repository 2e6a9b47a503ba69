#include "plugins/cpu/dense/plane_kernels.hpp"

#include <cstddef>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/plane_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const PlaneKernels& plane_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

// Sums, what is read of x and weights take all registers.
#if HWY_TARGET == HWY_AVX3
constexpr int kSums = 24;
#else
constexpr int kSums = 12;
#endif
constexpr int kMostVectors = 8;

template <int kFilters>
constexpr int kWidest = kSums / kFilters < kMostVectors ? kSums / kFilters : kMostVectors;

/// Where the vectors of a block begin: in x, and in the first filter's y.
struct InLine {  // one behind the other
  const float* x;
  int64_t y;
  HWY_INLINE const float* x_of(int v) const { return x + v * kLanes; }
  HWY_INLINE int64_t y_of(int v) const { return y + v * kLanes; }
};
template <int kVectors>
struct Apart {
  const float* x[kVectors];
  int64_t y[kVectors];
  HWY_INLINE const float* x_of(int v) const { return x[v]; }
  HWY_INLINE int64_t y_of(int v) const { return y[v]; }
};

/// The vectors of a run, one after the other. The last one of a line begins so early that it is whole.
struct Vectors {
  const PlaneRun& run;
  const float* x = run.x + run.at;
  int64_t y = 0, pixel = 0;

  HWY_INLINE bool have_in_line(int count) const { return pixel + count * kLanes <= run.pixels; }
  HWY_INLINE InLine in_line() const { return {x + pixel, y + pixel}; }
  HWY_INLINE void skip(int count) {
    pixel += count * kLanes;
    if (pixel < run.pixels) return;
    pixel = 0;
    x += run.x_line;
    y += run.y_line;
  }
  template <int kVectors>
  HWY_INLINE Apart<kVectors> next() {
    Apart<kVectors> places;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const int64_t begin = HWY_MIN(pixel, run.pixels - kLanes);
      places.x[v] = x + begin;
      places.y[v] = y + begin;
      skip(1);
    }
    return places;
  }
};

/// The sums of a block. Where its vectors are not whole, `count` pixels of them exist.
template <int kFilters, int kVectors, bool kWhole = true, class Places>
// NOLINTNEXTLINE(readability-function-cognitive-complexity): its sums are registers, which stay in one function
HWY_INLINE HWY_ATTR void block(const PlaneRun& run, const Places& places, size_t count = 0) {
  const Tag d;
  Vector acc[kFilters][kVectors];
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f) {
    const Vector bias = run.bias != nullptr ? hn::Set(d, run.bias[f]) : hn::Zero(d);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) acc[f][v] = bias;
  }
  const int64_t* HWY_RESTRICT offsets = run.offsets;
  const float* HWY_RESTRICT weights = run.weights;
  for (int64_t s = 0; s < run.steps; ++s, weights += kFilters) {
    const int64_t offset = offsets[s];
    if constexpr (kFilters <= kVectors) {
      Vector w[kFilters];
#pragma GCC unroll 4
      for (int f = 0; f < kFilters; ++f) w[f] = hn::Set(d, weights[f]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const Vector value = hn::LoadU(d, places.x_of(v) + offset);
#pragma GCC unroll 4
        for (int f = 0; f < kFilters; ++f) acc[f][v] = hn::MulAdd(value, w[f], acc[f][v]);
      }
    } else {
      Vector values[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) values[v] = hn::LoadU(d, places.x_of(v) + offset);
#pragma GCC unroll 4
      for (int f = 0; f < kFilters; ++f) {
        const Vector w = hn::Set(d, weights[f]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) acc[f][v] = hn::MulAdd(values[v], w, acc[f][v]);
      }
    }
  }
  const Vector lo = hn::Set(d, run.lo);
  const Vector hi = hn::Set(d, run.hi);
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const int64_t place = f * run.plane + places.y_of(v);
      Vector sum = acc[f][v];
      if (run.residual != nullptr) {
        const float* residual = run.residual + place;
        sum = hn::Add(sum, kWhole ? hn::LoadU(d, residual) : load_some(d, residual, count));
      }
      sum = at_least(lo, at_most(hi, sum));
      if (kWhole) {
        hn::StoreU(sum, d, run.y + place);
      } else {
        store_some(d, sum, run.y + place, count);
      }
    }
  }
}

template <int kFilters, int kVectors>
HWY_INLINE HWY_ATTR void next_block(const PlaneRun& run, Vectors& vectors) {
  if (kVectors == kWidest<kFilters> && vectors.have_in_line(kVectors)) {
    block<kFilters, kVectors>(run, vectors.in_line());
    vectors.skip(kVectors);
  } else {
    block<kFilters, kVectors>(run, vectors.template next<kVectors>());
  }
}

/// A block of `count` vectors, 1 to kVectors.
template <int kFilters, int kVectors>
HWY_INLINE HWY_ATTR void some_block(const PlaneRun& run, Vectors& vectors, int64_t count) {
  if constexpr (kVectors > 1) {
    if (count < kVectors) return some_block<kFilters, kVectors - 1>(run, vectors, count);
  }
  next_block<kFilters, kVectors>(run, vectors);
}

/// Blocks of the most vectors, and about as large ones.
template <int kFilters>
HWY_ATTR void plane_run(const PlaneRun& run) {
  constexpr int64_t kVectors = kWidest<kFilters>;
  if (run.pixels < kLanes) {
    for (int64_t line = 0; line < run.lines; ++line) {
      const InLine place{run.x + run.at + line * run.x_line, line * run.y_line};
      block<kFilters, 1, false>(run, place, static_cast<size_t>(run.pixels));
    }
    return;
  }
  Vectors vectors{run};
  int64_t left = run.lines * ((run.pixels + kLanes - 1) / kLanes);
  while (left > 0) {
    const int64_t count = left >= 2 * kVectors ? kVectors
                          : left > kVectors    ? left - left / 2
                                               : left;
    some_block<kFilters, kVectors>(run, vectors, count);
    left -= count;
  }
}

}  // namespace

const PlaneKernels& plane_table() {
  static constexpr PlaneKernels kKernels = {
      static_cast<int>(kLanes), {nullptr, plane_run<1>, plane_run<2>, plane_run<3>, plane_run<4>}};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const PlaneKernels& plane_kernels(Isa isa) { BP_SELECT_TARGET(isa, plane_table()); }

}  // namespace backplane::cpu
#endif
