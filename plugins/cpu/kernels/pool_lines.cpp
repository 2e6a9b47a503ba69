#include "plugins/cpu/kernels/pool_lines.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/pool_lines.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const PoolLoops& find_pool();

namespace {

/// Lines of a plane, the same distance apart.
template <class T>
struct PlaneLines {
  const T* first;
  std::int64_t pitch, count;
  std::int64_t size;  // of a line
  const T* end;       // of the plane
};

// Plain loops, of which the compiler makes vectors of this target: for bytes, and for floats where there are no vectors.

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

/// Combines lines with what `to` holds.
template <bool kMax, class T>
void combine_lines(const PlaneLines<T>& lines, T, bool, T* to) {
  for (std::int64_t r = 0; r < lines.count; ++r) {
    const T* HWY_RESTRICT line = lines.first + r * lines.pitch;
    T* HWY_RESTRICT y = to;
    for (std::int64_t i = 0; i < lines.size; ++i) y[i] = combined<kMax>(y[i], line[i]);
  }
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
void combine_along(const PoolLines& lines, const T* line, float count, T* y, const T*) {
  const Window& window = lines.window;
  if (window.stride[2] == 1) {
    combine_along<kMax, 1>(window, line, y);
  } else if (window.stride[2] == 2) {
    combine_along<kMax, 2>(window, line, y);
  } else {
    combine_along<kMax, 0>(window, line, y);
  }
  if constexpr (!kMax) {
    const float* HWY_RESTRICT counts = lines.counts.data();
    T* HWY_RESTRICT mean = y;
    for (std::int64_t i = 0; i < window.out[2]; ++i) {
      const float all = count * counts[i];
      mean[i] /= all > 1 ? all : 1.0f;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Floats: small images have lines of less than a vector, so that all is done in whole ones. What is read and written beyond
// a line stays within the plane, and the next line takes its place.

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
static_assert(kLanes <= PoolLines::kBeyond);

/// A NaN stays, in either of the two.
template <bool kMax>
HWY_INLINE Vector combined(Vector have, Vector more) {
  if constexpr (kMax) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    // Of a number and a NaN a maximum is the second operand; a number with all bits of a NaN besides is one.
    return hn::Or(hn::Max(have, more), hn::Max(more, have));
#else
    return hn::IfThenElse(hn::Or(hn::Gt(more, have), hn::IsNaN(more)), more, have);
#endif
  } else {
    return hn::Add(have, more);
  }
}

/// Combines lines with what `to` holds, or alone; beyond them `to` gets `start`.
template <bool kMax>
void combine_lines(const PlaneLines<float>& lines, float start, bool alone, float* to) {
  const Tag d;
  for (std::int64_t i = 0; i < lines.size; i += kLanes) {
    const std::int64_t left = lines.size - i;
    const float* from = lines.first + i;
    Vector all = alone ? hn::Set(d, start) : hn::LoadU(d, to + i);
    if (left >= kLanes || lines.end - from >= (lines.count - 1) * lines.pitch + kLanes) {
      if (alone) all = hn::LoadU(d, from);
      for (std::int64_t r = alone ? 1 : 0; r < lines.count; ++r)
        all = combined<kMax>(all, hn::LoadU(d, from + r * lines.pitch));
    } else {
      for (std::int64_t r = 0; r < lines.count; ++r)
        all = combined<kMax>(all,
                             load_some(d, from + r * lines.pitch, static_cast<std::size_t>(left)));
    }
    if (left < kLanes)
      all = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(left)), all, hn::Set(d, start));
    hn::StoreU(all, d, to + i);
  }
}

/// The elements from `from` on that are `stride` apart, 1 or 2.
template <std::int64_t kStride>
HWY_INLINE Vector load_apart(const float* from) {
  const Tag d;
  const Vector first = hn::LoadU(d, from);
  if constexpr (kStride == 1) return first;
  return hn::ConcatEven(d, hn::LoadU(d, from + kLanes), first);
}

template <bool kMax, std::int64_t kStride>
void combine_vectors_along(const PoolLines& lines, const float* line, float count, float* y,
                           const float* end) {
  const Tag d;
  const Window& window = lines.window;
  for (std::int64_t i = 0; i < window.out[2]; i += kLanes) {
    const float* from = line + i * kStride;
    Vector all = load_apart<kStride>(from);
    for (std::int64_t k = 1; k < window.kernel[2]; ++k) {
      from += window.dilation[2];
      all = combined<kMax>(all, load_apart<kStride>(from));
    }
    if constexpr (!kMax) {
      const Vector counts = hn::Mul(hn::Set(d, count), hn::LoadU(d, lines.counts.data() + i));
      all = hn::Div(all, hn::Max(hn::Set(d, 1.0f), counts));
    }
    if (end - (y + i) >= kLanes) {
      hn::StoreU(all, d, y + i);
    } else {
      store_some(d, all, y + i, static_cast<std::size_t>(window.out[2] - i));
    }
  }
}

template <bool kMax>
void combine_along(const PoolLines& lines, const float* line, float count, float* y,
                   const float* end) {
  const Window& window = lines.window;
  if (window.stride[2] == 1) return combine_vectors_along<kMax, 1>(lines, line, count, y, end);
  if (window.stride[2] == 2) return combine_vectors_along<kMax, 2>(lines, line, count, y, end);
  combine_along<kMax, float>(lines, line, count, y, end);
}
#endif

/// Combines the lines of the plane that belong to a line of the result; `to` is filled with `start`.
template <bool kMax, class T>
void combine_window(const Window& window, std::int64_t oz, std::int64_t oy, const T* x, T start,
                    T* to) {
  const std::int64_t step = window.dilation[1];
  std::int64_t begin = oy * window.stride[1] - window.pad_begin[1];
  std::int64_t count = window.kernel[1];
  for (; count > 0 && begin < 0; --count) begin += step;
  while (count > 0 && begin + (count - 1) * step >= window.in[1]) --count;
  if (count == 0) return;
  bool alone = true;
  for (std::int64_t kz = 0; kz < window.kernel[0]; ++kz) {
    const std::int64_t z = oz * window.stride[0] - window.pad_begin[0] + kz * window.dilation[0];
    if (z < 0 || z >= window.in[0]) continue;
    const T* first = x + (z * window.in[1] + begin) * window.in[2];
    const PlaneLines<T> lines{first, step * window.in[2], count, window.in[2],
                              x + window.in_pixels()};
    combine_lines<kMax>(lines, start, alone, to);
    alone = false;
  }
}

/// Several lines at a time: what was written last is not read at once, by loads that lie across the stores.
template <bool kMax, class T>
void pool(const PoolLines& lines, const T* x, T* y, T* scratch) {
  const Window& window = lines.window;
  using Limits = std::numeric_limits<T>;
  const T start = !kMax ? T(0) : Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const std::int64_t columns = window.out[2];
  const std::int64_t pitch = lines.pitch();
  const std::int64_t block = lines.block();
  const T* end = y + window.out_pixels();
  for (std::int64_t oz = 0; oz < window.out[0]; ++oz) {
    const std::int64_t count_z = kMax ? 1 : lines.count_at(0, oz);
    for (std::int64_t first = 0; first < window.out[1]; first += block) {
      const std::int64_t rows = std::min(block, window.out[1] - first);
      std::fill_n(scratch, rows * pitch + PoolLines::kBeyond, start);
      T* inside = scratch + window.pad_begin[2];
      for (std::int64_t r = 0; r < rows; ++r)
        combine_window<kMax>(window, oz, first + r, x, start, inside + r * pitch);
      for (std::int64_t r = 0; r < rows; ++r, y += columns) {
        const std::int64_t count = kMax ? 1 : count_z * lines.count_at(1, first + r);
        combine_along<kMax>(lines, scratch + r * pitch, static_cast<float>(count), y, end);
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

std::int64_t PoolLines::scratch_size() const { return block() * pitch() + kBeyond; }

std::int64_t PoolLines::block() const {
  constexpr std::int64_t kElements = 2048;  // stay in the first-level cache
  return std::clamp<std::int64_t>(kElements / pitch(), 1, window.out[1]);
}

std::int64_t PoolLines::pitch() const {
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
