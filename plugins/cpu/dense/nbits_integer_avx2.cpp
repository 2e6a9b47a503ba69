// By AVX2's instruction that multiplies unsigned bytes by signed ones and adds two products to 16 bits: Intel, "Intel 64
// and IA-32 Architectures Software Developer's Manual", volume 2, VPMADDUBSW. Of weights of 4 bits alone, since it
// saturates: 32 products of those with bytes of rows have 16 bits, two of weights of 8 bits have not.
#include "plugins/cpu/dense/nbits_integer.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <hwy/base.h>
#include <immintrin.h>
#include <limits>

HWY_PUSH_ATTRIBUTES("avx2,fma")
// A namespace of its own: sources compiled together have names of the other kernels' in theirs.
namespace backplane::cpu::nbits_avx2 {
namespace {

constexpr int kWide = 8;
constexpr int kMostRows = 4;
// Steps of the depth whose products are summed in 16 bits: two of them in each number.
constexpr std::int64_t kStepsIn16Bits = 32;
static_assert(kStepsIn16Bits / 2 * 15 * 128 < 32768);

HWY_INLINE __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

HWY_INLINE __m256i quad_at(const std::int8_t* x) {
  std::int32_t quad = 0;
  std::memcpy(&quad, x, sizeof(quad));
  return _mm256_set1_epi32(quad);
}

/// The zero points of 8 columns.
HWY_INLINE __m256 zeros_of(const NBitsLayout& layout, const char* zeros, std::int64_t lane) {
  if (layout.shape().zeros == NBitsShape::kFloats)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(zeros) + lane);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + lane));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

/// What the sums of a block's products, less what the middle of the weights' range adds, begin with.
template <int kRows, int kVectors>
HWY_INLINE void begin_block(const std::int32_t* x_sums, std::int64_t blocks, std::int32_t taken,
                            __m256i (&sums)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_set1_epi32(-taken * x_sums[i * blocks]);
  }
}

/// Adds the products of up to kStepsIn16Bits steps.
template <int kRows, int kVectors>
HWY_INLINE void add_steps(const char* values, std::int64_t eight_bytes, const std::int8_t* x,
                          std::int64_t stride, std::int64_t steps,
                          __m256i (&sums)[kRows][kVectors]) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i narrow[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) narrow[i][v] = _mm256_setzero_si256();
  }
  for (std::int64_t k = 0; k < steps; k += 8, values += eight_bytes, x += 8) {
    for (std::int64_t at = 0; at < eight_bytes; at += 64)
      __builtin_prefetch(values + kNBitsFetchedAhead + at, 0, 3);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256i word = load(values + v * 32);
      const __m256i low = _mm256_and_si256(word, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(word, 4), mask);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const __m256i a = _mm256_maddubs_epi16(low, quad_at(x + i * stride));
        const __m256i b = _mm256_maddubs_epi16(high, quad_at(x + i * stride + 4));
        narrow[i][v] = _mm256_add_epi16(narrow[i][v], _mm256_add_epi16(a, b));
      }
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = _mm256_add_epi32(sums[i][v], _mm256_madd_epi16(narrow[i][v], ones));
  }
}

template <int kRows, int kVectors>
void part(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
          const RoundedRows& rows, std::int64_t row, std::int64_t first, float* out) {
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * kWide;
  const std::int64_t lane = first * kWide;
  const std::int64_t stride = layout.padded_depth();
  const std::int64_t blocks = layout.blocks();
  const std::int64_t eight_bytes = layout.value_bytes(8) * pitch;
  const bool middle = layout.shape().zeros == NBitsShape::kMiddle;
  const std::int8_t* x = rows.x + row * stride;
  const float* x_scales = rows.scales + row * blocks;
  const std::int32_t* x_sums = rows.sums + row * blocks;
  __m256 totals[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) totals[i][v] = _mm256_setzero_ps();
  }
  const char* from = static_cast<const char*>(packed) + layout.offset(panel, 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    __m256i sums[kRows][kVectors];
    begin_block(x_sums + block, blocks, middle ? 8 : 0, sums);
    const std::int64_t steps = layout.steps(block);
    for (std::int64_t k = 0; k < steps; k += kStepsIn16Bits) {
      const std::int64_t some = std::min(kStepsIn16Bits, steps - k);
      add_steps(from + lane * 4, eight_bytes, x, stride, some, sums);
      from += some / 8 * eight_bytes;
      x += some;
    }
    const auto* scales = reinterpret_cast<const float*>(from) + lane;
    from += pitch * 4;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256 scale = _mm256_loadu_ps(scales + v * kWide);
      const __m256 zero = middle ? _mm256_setzero_ps() : zeros_of(layout, from, lane + v * kWide);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        __m256 sum = _mm256_cvtepi32_ps(sums[i][v]);
        if (!middle) {
          const auto row_sum = static_cast<float>(x_sums[i * blocks + block]);
          sum = _mm256_fnmadd_ps(zero, _mm256_set1_ps(row_sum), sum);
        }
        const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x_scales[i * blocks + block]));
        totals[i][v] = _mm256_fmadd_ps(sum, both, totals[i][v]);
      }
    }
    from += layout.zero_bytes() * pitch;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      _mm256_storeu_ps(out + i * pitch + lane + v * kWide, totals[i][v]);
  }
}

template <int kRows>
void parts(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
           const RoundedRows& rows, std::int64_t row, float* out) {
  int first = 0;
  for (; first + 2 <= panel.vectors; first += 2)
    part<kRows, 2>(layout, packed, panel, rows, row, first, out);
  for (; first < panel.vectors; ++first)
    part<kRows, 1>(layout, packed, panel, rows, row, first, out);
}

void integer_thin(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
                  const RoundedRows& rows, std::int64_t row, int count, float* out) {
  switch (count) {
    case 1:
      return parts<1>(layout, packed, panel, rows, row, out);
    case 2:
      return parts<2>(layout, packed, panel, rows, row, out);
    case 3:
      return parts<3>(layout, packed, panel, rows, row, out);
    default:
      return parts<4>(layout, packed, panel, rows, row, out);
  }
}

/// Eight floats of a row; those from `exist` on are zeros.
HWY_INLINE __m256 load_floats(const float* x, std::int64_t exist) {
  if (exist >= kWide) return _mm256_loadu_ps(x);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto count = static_cast<int>(std::max<std::int64_t>(exist, 0));
  return _mm256_maskload_ps(x, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
}

HWY_INLINE std::int32_t sum_of(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
  return _mm_cvtsi128_si32(half);
}

HWY_INLINE float greatest_of(__m256 v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  half = _mm_max_ps(half, _mm_shuffle_ps(half, half, 1));
  return _mm_cvtss_f32(half);
}

/// One block of a row: `steps` bytes, of `exist` floats. Returns the scale.
float round_block(const float* x, std::int64_t exist, std::int64_t steps, std::int8_t* to,
                  std::int32_t& sum) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  __m256 greatest = _mm256_setzero_ps();
  __m256 nan = _mm256_setzero_ps();
  for (std::int64_t k = 0; k < exist; k += kWide) {
    const __m256 v = load_floats(x + k, exist - k);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    greatest = _mm256_max_ps(greatest, _mm256_andnot_ps(sign, v));
  }
  const float most = greatest_of(greatest);
  const __m256 inverse = _mm256_set1_ps(most > 0 ? 127.0F / most : 0.0F);
  __m256i total = _mm256_setzero_si256();
  for (std::int64_t k = 0; k < steps; k += kWide) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(load_floats(x + k, exist - k), inverse));
    total = _mm256_add_epi32(total, whole);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + k), _mm_packs_epi16(words, words));
  }
  sum = sum_of(total);
  return _mm256_movemask_ps(nan) != 0 ? std::numeric_limits<float>::quiet_NaN() : most / 127.0F;
}

void round_rows(const NBitsLayout& layout, const float* x, std::int64_t stride, std::int64_t begin,
                std::int64_t end, const RoundedRows& to) {
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t block = 0; block < layout.blocks(); ++block) {
      const std::int64_t k = block * layout.block();
      const std::int64_t steps = layout.steps(block);
      const std::int64_t at = r * layout.blocks() + block;
      to.scales[at] = round_block(x + r * stride + k, std::min(steps, layout.shape().depth - k),
                                  steps, to.x + r * layout.padded_depth() + k, to.sums[at]);
    }
  }
}

}  // namespace
}  // namespace backplane::cpu::nbits_avx2
HWY_POP_ATTRIBUTES

namespace backplane::cpu {

const NBitsIntegerKernels* nbits_integer_kernels_avx2() {
  static constexpr NBitsIntegerKernels kKernels{nbits_avx2::kMostRows, nbits_avx2::round_rows,
                                                nbits_avx2::integer_thin};
  return &kKernels;
}

}  // namespace backplane::cpu
#else
namespace backplane::cpu {
const NBitsIntegerKernels* nbits_integer_kernels_avx2() { return nullptr; }
}  // namespace backplane::cpu
#endif
