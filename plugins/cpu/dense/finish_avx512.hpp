// Sums of 32 bits in AVX-512's registers that become bytes, floats or columns of a result: what the kernels of VNNI and of AMX share.
#pragma once

#include "plugins/cpu/dense/repeat_avx512.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstdint>
#include <hwy/base.h>
#include <immintrin.h>

// Functions, templates and lambdas below are compiled for it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu::avx512 {

constexpr int kLanes = 16;
constexpr int kWidest = 4;  // vectors of a panel
constexpr int kColumns = kWidest * kLanes;
static_assert(kTapsOfQuad == kWidest,
              "a group of taps fills as many vectors of quads as a panel has");
// A float beyond it has no 32-bit integer; every byte is far below.
constexpr float kLimit = 1e9F;

/// What is kept in registers while sums are finished.
struct Finish {
  __m512i zero, least, most, flip;
};

HWY_INLINE Finish load(const FinishU8& from) {
  return {_mm512_set1_epi16(static_cast<short>(from.zero)),
          _mm512_set1_epi8(static_cast<char>(from.least)),
          _mm512_set1_epi8(static_cast<char>(from.most)),
          _mm512_set1_epi8(static_cast<char>(from.flip))};
}

HWY_INLINE __mmask64 mask_of(std::int64_t n) {
  return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

HWY_INLINE __m512 scaled(__m512i sum, const ColumnsU8& columns, int vector) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(columns.scale + vector * kLanes),
                         _mm512_loadu_ps(columns.shift + vector * kLanes));
}

HWY_INLINE __m512i rounded(__m512i sum, const ColumnsU8& columns, int vector) {
  const __m512 v = _mm512_min_ps(scaled(sum, columns, vector), _mm512_set1_ps(kLimit));
  return _mm512_cvtps_epi32(v);
}

/// Bytes of kVectors vectors of sums. The order of lanes (see lane_of) is the one in which packing two
/// vectors into one, 128 bits at a time, gives columns that follow each other.
template <int kVectors>
HWY_INLINE void store_bytes(const __m512i* sums, const ColumnsU8& columns, const Finish& finish,
                            std::uint8_t* y, __mmask64 mask) {
  const __m512i zero = finish.zero;
  __m512i bytes;
  if constexpr (kVectors == 4) {
    const __m512i low =
        _mm512_packs_epi32(rounded(sums[0], columns, 0), rounded(sums[1], columns, 1));
    const __m512i high =
        _mm512_packs_epi32(rounded(sums[2], columns, 2), rounded(sums[3], columns, 3));
    bytes = _mm512_packus_epi16(_mm512_adds_epi16(low, zero), _mm512_adds_epi16(high, zero));
  } else if constexpr (kVectors == 2) {
    const __m512i words =
        _mm512_packs_epi32(rounded(sums[0], columns, 0), rounded(sums[1], columns, 1));
    const __m512i shifted =
        _mm512_max_epi16(_mm512_adds_epi16(words, zero), _mm512_setzero_si512());
    bytes = _mm512_castsi256_si512(_mm512_cvtusepi16_epi8(shifted));
  } else {
    const __m512i words = _mm512_packs_epi32(rounded(sums[0], columns, 0), _mm512_setzero_si512());
    const __m512i shifted =
        _mm512_max_epi16(_mm512_adds_epi16(words, zero), _mm512_setzero_si512());
    // The lower halves of the 128-bit blocks hold the columns.
    const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    bytes =
        _mm512_castsi256_si512(_mm512_cvtusepi16_epi8(_mm512_permutexvar_epi64(order, shifted)));
  }
  bytes = _mm512_min_epu8(_mm512_max_epu8(bytes, finish.least), finish.most);
  _mm512_mask_storeu_epi8(y, mask, _mm512_xor_si512(bytes, finish.flip));
}

/// The lane of a column among `columns`: 4 columns of each vector in turn.
inline int lane_of(int column, int columns) {
  const int vectors = columns / kLanes;
  const int block = column / (4 * vectors);
  const int rest = column % (4 * vectors);
  return rest / 4 * kLanes + block * 4 + rest % 4;
}

/// Vectors in the order of the lanes become columns that follow each other: blocks of 128 bits change places.
template <int kVectors>
HWY_INLINE void order_columns(__m512i* v) {
  if constexpr (kVectors == 4) {
    // With a mask, since GCC 12 warns of what the form without one leaves undefined.
    constexpr __mmask16 kAll = 0xFFFF;
    const __m512i low01 = _mm512_maskz_shuffle_i32x4(kAll, v[0], v[1], 0x44);
    const __m512i low23 = _mm512_maskz_shuffle_i32x4(kAll, v[2], v[3], 0x44);
    const __m512i high01 = _mm512_maskz_shuffle_i32x4(kAll, v[0], v[1], 0xEE);
    const __m512i high23 = _mm512_maskz_shuffle_i32x4(kAll, v[2], v[3], 0xEE);
    v[0] = _mm512_maskz_shuffle_i32x4(kAll, low01, low23, 0x88);
    v[1] = _mm512_maskz_shuffle_i32x4(kAll, low01, low23, 0xDD);
    v[2] = _mm512_maskz_shuffle_i32x4(kAll, high01, high23, 0x88);
    v[3] = _mm512_maskz_shuffle_i32x4(kAll, high01, high23, 0xDD);
  } else if constexpr (kVectors == 2) {
    const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512i first = _mm512_permutex2var_epi64(v[0], low, v[1]);
    v[1] = _mm512_permutex2var_epi64(v[0], high, v[1]);
    v[0] = first;
  }
}

/// Stores `width` columns of 32 bits.
template <int kVectors>
HWY_INLINE void store_columns(__m512i* v, std::int64_t width, void* y) {
  order_columns<kVectors>(v);
  repeat<kVectors>([&](auto i) __attribute__((always_inline)) {
    const auto mask =
        static_cast<__mmask16>(mask_of(std::max<std::int64_t>(0, width - i * kLanes)));
    _mm512_mask_storeu_epi32(static_cast<std::int32_t*>(y) + i * kLanes, mask, v[i]);
  });
}

template <int kVectors>
HWY_INLINE void store_floats(const __m512i* sums, const ColumnsU8& columns, const FinishU8& how,
                             std::int64_t width, void* y) {
  __m512i values[kVectors];
  repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
    const __m512 value = _mm512_max_ps(_mm512_set1_ps(how.lo), scaled(sums[v], columns, v));
    values[v] = _mm512_castps_si512(_mm512_min_ps(_mm512_set1_ps(how.hi), value));
  });
  store_columns<kVectors>(values, width, y);
}

/// The results of a row: the sums themselves, floats or bytes.
template <int kVectors>
HWY_INLINE void store_row(__m512i* sums, const ColumnsU8& columns, const FinishU8& how,
                          const Finish& finish, std::int64_t width, void* y) {
  if (how.sums) {
    store_columns<kVectors>(sums, width, y);
  } else if (how.floats) {
    store_floats<kVectors>(sums, columns, how, width, y);
  } else {
    store_bytes<kVectors>(sums, columns, finish, static_cast<std::uint8_t*>(y), mask_of(width));
  }
}

inline int columns_for(std::int64_t width) {
  if (width > 2 * kLanes) return kColumns;
  return width > kLanes ? 2 * kLanes : kLanes;
}

}  // namespace backplane::cpu::avx512
HWY_POP_ATTRIBUTES
#endif
