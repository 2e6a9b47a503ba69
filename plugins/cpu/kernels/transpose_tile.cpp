#include "plugins/cpu/kernels/transpose_tile.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/kernels/transpose_plain.hpp"

// Vectors of 64 bytes were slower than two of 32 for most shapes (Zen 4): AVX-512 has no code of its own here.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | BP_SIZELESS_TARGETS)
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/transpose_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

void transpose(std::int64_t bytes, const char* source, std::int64_t source_pitch, char* target,
               std::int64_t target_pitch, std::int64_t rows, std::int64_t columns);

namespace {

#if HWY_TARGET == HWY_AVX2
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t kBytes = static_cast<std::int64_t>(sizeof(T));
/// Elements of a block, the 16 bytes within which all processors shuffle cheaply.
template <class T>
constexpr std::int64_t kBlock = 16 / kBytes<T>;
/// Elements of a cache line.
template <class T>
constexpr std::int64_t kLine = 64 / kBytes<T>;
/// Pitches that are multiples of it let rows collide in the first-level cache.
constexpr std::int64_t kCollidingBytes = 2048;
template <class D>
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));

template <class T>
HWY_INLINE const T* at(const char* from) {
  return reinterpret_cast<const T*>(from);
}
template <class T>
HWY_INLINE T* at(char* to) {
  return reinterpret_cast<T*>(to);
}

/// A block of each of as many source rows as the vector has blocks, `step` bytes apart. Loads into upper
/// blocks are not shuffles, so that the exchange between blocks costs nothing.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> gather_blocks(D d, const char* from, std::int64_t step) {
  if constexpr (kLanes<D> == kBlock<T>) {
    return hn::LoadU(d, at<T>(from));
  } else {
    const hn::Half<D> half;
    constexpr std::int64_t kHalf = kLanes<D> / kBlock<T> / 2;
    return hn::Combine(d, gather_blocks(half, from + kHalf * step, step),
                       gather_blocks(half, from, step));
  }
}

/// One vector of each of kBlock target rows, of which the first `skip` are not written.
template <bool kSkip, class D, class T = hn::TFromD<D>>
HWY_INLINE void transpose_strip(D d, const char* source, std::int64_t source_pitch, char* target,
                                std::int64_t target_pitch, std::int64_t skip) {
  constexpr std::int64_t kHalf = kBlock<T> / 2;
  hn::Vec<D> v[kBlock<T>];
  for (std::int64_t i = 0; i < kBlock<T>; ++i)
    v[i] = gather_blocks(d, source + i * source_pitch, kBlock<T> * source_pitch);
  // Interleaving the halves of a list of rows log2(kBlock) times makes columns of rows.
  for (std::int64_t stage = 1; stage < kBlock<T>; stage *= 2) {
    hn::Vec<D> next[kBlock<T>];
    for (std::int64_t i = 0; i < kHalf; ++i) {
      next[2 * i] = hn::InterleaveLower(d, v[i], v[i + kHalf]);
      next[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kHalf]);
    }
    for (std::int64_t i = 0; i < kBlock<T>; ++i) v[i] = next[i];
  }
  for (std::int64_t i = kSkip ? skip : 0; i < kBlock<T>; ++i)
    hn::StoreU(v[i], d, at<T>(target + i * target_pitch));
}

/// At least kBlock rows, each in a line or two of the target that are written at once.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void transpose_line(D d, const char* source, std::int64_t source_pitch, char* target,
                               std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  const std::int64_t full_rows = rows / kBlock<T> * kBlock<T>;
  for (std::int64_t r = 0; r < full_rows; r += kBlock<T>) {
    for (std::int64_t c = 0; c < columns; c += kLanes<D>) {
      const std::int64_t start = std::min(c, columns - kLanes<D>);
      transpose_strip<false>(d, source + start * source_pitch + r * kBytes<T>, source_pitch,
                             target + r * target_pitch + start * kBytes<T>, target_pitch, 0);
    }
  }
  if (full_rows == rows) return;
  const std::int64_t r = rows - kBlock<T>;
  for (std::int64_t c = 0; c < columns; c += kLanes<D>) {
    const std::int64_t start = std::min(c, columns - kLanes<D>);
    transpose_strip<true>(d, source + start * source_pitch + r * kBytes<T>, source_pitch,
                          target + r * target_pitch + start * kBytes<T>, target_pitch,
                          full_rows - r);
  }
}

/// A line of each of as many source rows as a line has elements.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void copy_tile(D d, const char* source, std::int64_t source_pitch, char* tile) {
  for (std::int64_t i = 0; i < kLine<T>; ++i) {
    for (std::int64_t j = 0; j < kLine<T>; j += kLanes<D>)
      hn::Store(hn::LoadU(d, at<T>(source + i * source_pitch) + j), d, at<T>(tile + i * 64) + j);
  }
}

/// At least kBlock rows and a vector of columns. What remains of columns overlaps with what is written
/// already; rows do not, because they may be another thread's.
template <class D, class T = hn::TFromD<D>>
void transpose_strips(D d, const char* source, std::int64_t source_pitch, char* target,
                      std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  // Rows that far apart share few places of the first-level cache: each line of the source is touched once,
  // and no more lines are begun than one of the target holds. Elsewhere longer runs of a row are read faster.
  const bool source_collides = source_pitch % kCollidingBytes == 0;
  const bool collides = source_collides || target_pitch % kCollidingBytes == 0;
  const std::int64_t most_rows = (collides ? 1 : 4) * kLine<T>;
  alignas(64) char tile[kLine<T> * 64];
  std::int64_t band = 0;
  for (std::int64_t r = 0; r < rows; r += band) {
    band = rows - r < most_rows + kBlock<T> ? rows - r : most_rows;
    std::int64_t line = 0;
    for (std::int64_t c = 0; c < columns; c += line) {
      line = columns - c < kLine<T> + kLanes<D> ? columns - c : kLine<T>;
      const char* from = source + c * source_pitch + r * kBytes<T>;
      char* to = target + r * target_pitch + c * kBytes<T>;
      if (source_collides && band == kLine<T> && line == kLine<T>) {
        copy_tile(d, from, source_pitch, tile);
        transpose_line(d, tile, 64, to, target_pitch, band, line);
      } else {
        transpose_line(d, from, source_pitch, to, target_pitch, band, line);
      }
    }
  }
}

/// 2 to 4 source rows, one element of each after another.
template <class T>
HWY_INLINE std::int64_t interleave(const T* x, std::int64_t step, T* y, std::int64_t rows,
                                   std::int64_t columns) {
  const hn::ScalableTag<T> d;
  std::int64_t r = 0;
  for (; r + kLanes<decltype(d)> <= rows; r += kLanes<decltype(d)>, x += kLanes<decltype(d)>) {
    const auto a = hn::LoadU(d, x);
    const auto b = hn::LoadU(d, x + step);
    if (columns == 2) {
      hn::StoreInterleaved2(a, b, d, y + 2 * r);
      continue;
    }
    const auto c = hn::LoadU(d, x + 2 * step);
    if (columns == 3) {
      hn::StoreInterleaved3(a, b, c, d, y + 3 * r);
    } else {
      hn::StoreInterleaved4(a, b, c, hn::LoadU(d, x + 3 * step), d, y + 4 * r);
    }
  }
  return r;
}

/// The way back: 2 to 4 target rows.
template <class T>
HWY_INLINE std::int64_t deinterleave(const T* x, T* y, std::int64_t step, std::int64_t rows,
                                     std::int64_t columns) {
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> v[4];
  std::int64_t c = 0;
  for (; c + kLanes<decltype(d)> <= columns; c += kLanes<decltype(d)>, y += kLanes<decltype(d)>) {
    if (rows == 2) {
      hn::LoadInterleaved2(d, x + 2 * c, v[0], v[1]);
    } else if (rows == 3) {
      hn::LoadInterleaved3(d, x + 3 * c, v[0], v[1], v[2]);
    } else {
      hn::LoadInterleaved4(d, x + 4 * c, v[0], v[1], v[2], v[3]);
    }
    hn::StoreU(v[0], d, y);
    hn::StoreU(v[1], d, y + step);
    if (rows > 2) hn::StoreU(v[2], d, y + 2 * step);
    if (rows > 3) hn::StoreU(v[3], d, y + 3 * step);
  }
  return c;
}

template <class T>
void transpose_any(const char* source, std::int64_t source_pitch, char* target,
                   std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  const hn::ScalableTag<T> full;
  const hn::Half<decltype(full)> half;
  const hn::FixedTag<T, kBlock<T>> least;
  if (columns >= 2 && columns <= 4 && target_pitch == columns * kBytes<T> &&
      source_pitch % kBytes<T> == 0) {
    const std::int64_t done =
        interleave(at<T>(source), source_pitch / kBytes<T>, at<T>(target), rows, columns);
    source += done * kBytes<T>;
    target += done * target_pitch;
    rows -= done;
  } else if (rows >= 2 && rows <= 4 && source_pitch == rows * kBytes<T> &&
             target_pitch % kBytes<T> == 0) {
    const std::int64_t done =
        deinterleave(at<T>(source), at<T>(target), target_pitch / kBytes<T>, rows, columns);
    source += done * source_pitch;
    target += done * kBytes<T>;
    columns -= done;
  } else if (rows >= kBlock<T>) {
    if (columns >= kLanes<decltype(full)>)
      return transpose_strips(full, source, source_pitch, target, target_pitch, rows, columns);
    if (columns >= kLanes<decltype(half)>)
      return transpose_strips(half, source, source_pitch, target, target_pitch, rows, columns);
    if (columns >= kBlock<T>)
      return transpose_strips(least, source, source_pitch, target, target_pitch, rows, columns);
  }
  transpose_plain(kBytes<T>, source, source_pitch, target, target_pitch, rows, columns);
}
#endif

}  // namespace

void transpose(std::int64_t bytes, const char* source, std::int64_t source_pitch, char* target,
               std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
#if HWY_TARGET == HWY_AVX2
  switch (bytes) {
    case 1:
      return transpose_any<std::uint8_t>(source, source_pitch, target, target_pitch, rows, columns);
    case 2:
      return transpose_any<std::uint16_t>(source, source_pitch, target, target_pitch, rows,
                                          columns);
    case 4:
      return transpose_any<std::uint32_t>(source, source_pitch, target, target_pitch, rows,
                                          columns);
    case 8:
      return transpose_any<std::uint64_t>(source, source_pitch, target, target_pitch, rows,
                                          columns);
    default:
      break;
  }
#endif
  transpose_plain(bytes, source, source_pitch, target, target_pitch, rows, columns);
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

void transpose_tile(Isa isa, std::int64_t bytes, const char* source, std::int64_t source_pitch,
                    char* target, std::int64_t target_pitch, std::int64_t rows,
                    std::int64_t columns) {
  if ((rows == 1 && source_pitch == bytes) || (columns == 1 && target_pitch == bytes)) {
    std::memcpy(target, source, static_cast<std::size_t>(rows * columns * bytes));
    return;
  }
#if defined(__x86_64__)
  if (isa != Isa::kBaseline) {
    return N_AVX2::transpose(bytes, source, source_pitch, target, target_pitch, rows, columns);
  }
#else
  static_cast<void>(isa);
#endif
  HWY_NAMESPACE::transpose(bytes, source, source_pitch, target, target_pitch, rows, columns);
}

}  // namespace backplane::cpu
#endif
