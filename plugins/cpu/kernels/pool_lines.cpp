#include "plugins/cpu/kernels/pool_lines.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/pool_lines.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const PoolLoops& find_pool();

namespace {

// Plain loops: the compiler makes vectors of this target of them.

template <bool kMax, class T>
HWY_INLINE T combined(T have, T more) {
  if constexpr (kMax && std::is_integral_v<T>) {
    return more > have ? more : have;
  } else if constexpr (kMax) {
    return static_cast<int>(more > have) | static_cast<int>(more != more) ? more : have;
  } else {
    return have + more;
  }
}

template <bool kMax, class T>
void combine(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = combined<kMax>(y[i], x[i]);
}

/// y[i] of line[i * stride], line[i * stride + dilation] ...
template <bool kMax, std::int64_t kStride, class T>
void combine_along(const Window& window, const T* HWY_RESTRICT line, T* HWY_RESTRICT y) {
  const std::int64_t stride = kStride != 0 ? kStride : window.stride[2];
  const std::int64_t n = window.out[2];
  for (std::int64_t i = 0; i < n; ++i) y[i] = line[i * stride];
  for (std::int64_t k = 1; k < window.kernel[2]; ++k) {
    const T* HWY_RESTRICT from = line + k * window.dilation[2];
    for (std::int64_t i = 0; i < n; ++i) y[i] = combined<kMax>(y[i], from[i * stride]);
  }
}

template <bool kMax, class T>
void combine_along(const Window& window, const T* line, T* y) {
  if (window.stride[2] == 1) return combine_along<kMax, 1>(window, line, y);
  if (window.stride[2] == 2) return combine_along<kMax, 2>(window, line, y);
  combine_along<kMax, 0>(window, line, y);
}

/// Combines the lines of the plane that belong to a line of the result; `to` is filled with what changes nothing.
template <bool kMax, class T>
void combine_lines(const Window& window, std::int64_t oz, std::int64_t oy, const T* x, T* to) {
  for (std::int64_t kz = 0; kz < window.kernel[0]; ++kz) {
    const std::int64_t z = oz * window.stride[0] - window.pad_begin[0] + kz * window.dilation[0];
    if (z < 0 || z >= window.in[0]) continue;
    for (std::int64_t ky = 0; ky < window.kernel[1]; ++ky) {
      const std::int64_t row =
          oy * window.stride[1] - window.pad_begin[1] + ky * window.dilation[1];
      if (row < 0 || row >= window.in[1]) continue;
      combine<kMax>(x + (z * window.in[1] + row) * window.in[2], to, window.in[2]);
    }
  }
}

template <bool kMax, class T>
void pool(const PoolLines& lines, const T* x, T* y, T* scratch) {
  const Window& window = lines.window;
  using Limits = std::numeric_limits<T>;
  const T start = !kMax ? T(0) : Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const std::int64_t columns = window.out[2];
  T* inside = scratch + window.pad_begin[2];
  std::fill_n(scratch, lines.scratch_size(), start);
  for (std::int64_t oz = 0; oz < window.out[0]; ++oz) {
    const std::int64_t count_z = kMax ? 1 : lines.count_at(0, oz);
    for (std::int64_t oy = 0; oy < window.out[1]; ++oy, y += columns) {
      std::fill_n(inside, window.in[2], start);
      combine_lines<kMax>(window, oz, oy, x, inside);
      combine_along<kMax>(window, scratch, y);
      if constexpr (!kMax) {
        const auto count = static_cast<float>(count_z * lines.count_at(1, oy));
        const float* HWY_RESTRICT counts = lines.counts.data();
        T* HWY_RESTRICT mean = y;
        for (std::int64_t i = 0; i < columns; ++i) {
          const float all = count * counts[i];
          mean[i] /= all > 1 ? all : 1.0f;
        }
      }
    }
  }
}

}  // namespace

const PoolLoops& find_pool() {
  static constexpr PoolLoops kLoops{pool<true, float>, pool<false, float>, pool<true, std::uint8_t>,
                                    pool<true, std::int8_t>};
  return kLoops;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

std::int64_t PoolLines::scratch_size() const {
  const std::int64_t read =
      (window.out[2] - 1) * window.stride[2] + (window.kernel[2] - 1) * window.dilation[2] + 1;
  return std::max(read, window.pad_begin[2] + window.in[2]);
}

std::int64_t PoolLines::count_at(std::size_t axis, std::int64_t index) const {
  const common::WindowAxis along = window.axis(axis);
  if (count_padding) return along.count_before(along.in + along.pad_end, index);
  return along.count_before(along.in, index) - along.first_inside(index);
}

const PoolLoops& pool_loops(Isa isa) { BP_SELECT_TARGET(isa, find_pool()); }

}  // namespace backplane::cpu
#endif
