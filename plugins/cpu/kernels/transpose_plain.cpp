#include "plugins/cpu/kernels/transpose_plain.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/kernels/unit.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace backplane::cpu {
namespace {

// Both sides of a tile of 16 by 16 elements stay in the first-level cache.
constexpr std::int64_t kTile = 16;

template <class T>
void transpose_any(const char* source, std::int64_t source_pitch, char* target,
                   std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const char* from = source + r * static_cast<std::int64_t>(sizeof(T));
    char* to = target + r * target_pitch;
    for (std::int64_t c = 0; c < columns; ++c) {
      T value;
      std::memcpy(&value, from + c * source_pitch, sizeof(T));
      std::memcpy(to + c * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    }
  }
}

/// A square of kSide by kSide elements held in registers; kSide 1 means that there is none for this size.
template <class T>
struct Square {
  static constexpr std::int64_t kSide = 1;
  static void transpose(const char*, std::int64_t, char*, std::int64_t) {}
};

#if defined(__SSE2__)
inline __m128i load(const char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
inline void store(char* at, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
}

template <>
struct Square<std::uint32_t> {
  static constexpr std::int64_t kSide = 4;
  static void transpose(const char* source, std::int64_t source_pitch, char* target,
                        std::int64_t target_pitch) {
    const __m128i a = load(source), b = load(source + source_pitch);
    const __m128i c = load(source + 2 * source_pitch), d = load(source + 3 * source_pitch);
    const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    store(target, _mm_unpacklo_epi64(ab_low, cd_low));
    store(target + target_pitch, _mm_unpackhi_epi64(ab_low, cd_low));
    store(target + 2 * target_pitch, _mm_unpacklo_epi64(ab_high, cd_high));
    store(target + 3 * target_pitch, _mm_unpackhi_epi64(ab_high, cd_high));
  }
};

template <>
struct Square<std::uint16_t> {
  static constexpr std::int64_t kSide = 8;
  static void transpose(const char* source, std::int64_t source_pitch, char* target,
                        std::int64_t target_pitch) {
    __m128i in[8];
    for (int i = 0; i < 8; ++i) in[i] = load(source + i * source_pitch);
    __m128i pairs[8];
    for (int i = 0; i < 4; ++i) {
      pairs[i] = _mm_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
      pairs[i + 4] = _mm_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
    }
    for (int half = 0; half < 2; ++half) {
      const __m128i* p = pairs + 4 * half;
      const __m128i low01 = _mm_unpacklo_epi32(p[0], p[1]), high01 = _mm_unpackhi_epi32(p[0], p[1]);
      const __m128i low23 = _mm_unpacklo_epi32(p[2], p[3]), high23 = _mm_unpackhi_epi32(p[2], p[3]);
      char* to = target + 4 * half * target_pitch;
      store(to, _mm_unpacklo_epi64(low01, low23));
      store(to + target_pitch, _mm_unpackhi_epi64(low01, low23));
      store(to + 2 * target_pitch, _mm_unpacklo_epi64(high01, high23));
      store(to + 3 * target_pitch, _mm_unpackhi_epi64(high01, high23));
    }
  }
};

template <>
struct Square<std::uint64_t> {
  static constexpr std::int64_t kSide = 2;
  static void transpose(const char* source, std::int64_t source_pitch, char* target,
                        std::int64_t target_pitch) {
    const __m128i a = load(source), b = load(source + source_pitch);
    store(target, _mm_unpacklo_epi64(a, b));
    store(target + target_pitch, _mm_unpackhi_epi64(a, b));
  }
};

/// 16 source rows of 8 bytes: 8 target rows of 16.
inline void transpose_bytes_8x16(const char* source, std::int64_t source_pitch, char* target,
                                 std::int64_t target_pitch) {
  __m128i rows[16];
  for (int i = 0; i < 16; ++i)
    rows[i] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source + i * source_pitch));
  __m128i pairs[8], quads[8], octets[8];
  for (int i = 0; i < 8; ++i) pairs[i] = _mm_unpacklo_epi8(rows[2 * i], rows[2 * i + 1]);
  for (int i = 0; i < 4; ++i) {
    quads[2 * i] = _mm_unpacklo_epi16(pairs[2 * i], pairs[2 * i + 1]);
    quads[2 * i + 1] = _mm_unpackhi_epi16(pairs[2 * i], pairs[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    octets[4 * i] = _mm_unpacklo_epi32(quads[4 * i], quads[4 * i + 2]);
    octets[4 * i + 1] = _mm_unpackhi_epi32(quads[4 * i], quads[4 * i + 2]);
    octets[4 * i + 2] = _mm_unpacklo_epi32(quads[4 * i + 1], quads[4 * i + 3]);
    octets[4 * i + 3] = _mm_unpackhi_epi32(quads[4 * i + 1], quads[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    store(target + 2 * i * target_pitch, _mm_unpacklo_epi64(octets[i], octets[4 + i]));
    store(target + (2 * i + 1) * target_pitch, _mm_unpackhi_epi64(octets[i], octets[4 + i]));
  }
}

template <>
struct Square<std::uint8_t> {
  static constexpr std::int64_t kSide = 16;
  static void transpose(const char* source, std::int64_t source_pitch, char* target,
                        std::int64_t target_pitch) {
    transpose_bytes_8x16(source, source_pitch, target, target_pitch);
    transpose_bytes_8x16(source + 8, source_pitch, target + 8 * target_pitch, target_pitch);
  }
};
#elif defined(__ARM_NEON)
template <>
struct Square<std::uint32_t> {
  static constexpr std::int64_t kSide = 4;
  static void transpose(const char* source, std::int64_t source_pitch, char* target,
                        std::int64_t target_pitch) {
    uint32x4_t in[4];
    for (int i = 0; i < 4; ++i)
      in[i] = vld1q_u32(reinterpret_cast<const std::uint32_t*>(source + i * source_pitch));
    const uint32x4x2_t ab = vtrnq_u32(in[0], in[1]), cd = vtrnq_u32(in[2], in[3]);
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t low = vcombine_u32(vget_low_u32(ab.val[i]), vget_low_u32(cd.val[i]));
      const uint32x4_t high = vcombine_u32(vget_high_u32(ab.val[i]), vget_high_u32(cd.val[i]));
      vst1q_u32(reinterpret_cast<std::uint32_t*>(target + i * target_pitch), low);
      vst1q_u32(reinterpret_cast<std::uint32_t*>(target + (i + 2) * target_pitch), high);
    }
  }
};
#endif

template <class T>
void transpose_squares(const char* source, std::int64_t source_pitch, char* target,
                       std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kSide = Square<T>::kSide;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t full_rows = kSide > 1 ? rows / kSide * kSide : 0;
  const std::int64_t full_columns = kSide > 1 ? columns / kSide * kSide : 0;
  for (std::int64_t r = 0; r < full_rows; r += kSide) {
    for (std::int64_t c = 0; c < full_columns; c += kSide) {
      Square<T>::transpose(source + c * source_pitch + r * kBytes, source_pitch,
                           target + r * target_pitch + c * kBytes, target_pitch);
    }
  }
  if (full_rows > 0 && full_columns < columns) {
    transpose_any<T>(source + full_columns * source_pitch, source_pitch,
                     target + full_columns * kBytes, target_pitch, full_rows,
                     columns - full_columns);
  }
  if (full_rows < rows) {
    transpose_any<T>(source + full_rows * kBytes, source_pitch, target + full_rows * target_pitch,
                     target_pitch, rows - full_rows, columns);
  }
}

template <class T>
void transpose_tiled(const char* source, std::int64_t source_pitch, char* target,
                     std::int64_t target_pitch, std::int64_t rows, std::int64_t columns) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  // A few rows or columns stream well without tiles.
  if (rows <= 4 && Square<T>::kSide > 4)
    return transpose_any<T>(source, source_pitch, target, target_pitch, rows, columns);
  for (std::int64_t r = 0; r < rows; r += kTile) {
    const std::int64_t tile_rows = std::min(kTile, rows - r);
    for (std::int64_t c = 0; c < columns; c += kTile) {
      transpose_squares<T>(source + c * source_pitch + r * kBytes, source_pitch,
                           target + r * target_pitch + c * kBytes, target_pitch, tile_rows,
                           std::min(kTile, columns - c));
    }
  }
}

}  // namespace

void transpose_plain(std::int64_t bytes, const char* source, std::int64_t source_pitch,
                     char* target, std::int64_t target_pitch, std::int64_t rows,
                     std::int64_t columns) {
  with_unit(bytes, [&](auto unit) {
    transpose_tiled<decltype(unit)>(source, source_pitch, target, target_pitch, rows, columns);
  });
}

}  // namespace backplane::cpu
