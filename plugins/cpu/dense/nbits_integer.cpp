// By VNNI's instruction, which multiplies four unsigned bytes by signed ones and adds the products to 32 bits: Intel,
// "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, VPDPBUSD.
#include "plugins/cpu/dense/nbits_integer.hpp"

#include "plugins/cpu/dense/repeat_avx512.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <hwy/base.h>
#include <immintrin.h>
#include <limits>

// Highway 1.0 has no operation for it. Functions, templates and lambdas below are compiled for it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu {
namespace {

constexpr int kWide = 16;
constexpr int kMostRows = 4;

using avx512::repeat;

/// The zero points of 16 columns.
template <int kBits>
HWY_INLINE __m512 zeros_of(const NBitsLayout& layout, const char* zeros, std::int64_t lane) {
  if (layout.shape().zeros == NBitsShape::kFloats)
    return _mm512_loadu_ps(reinterpret_cast<const float*>(zeros) + lane);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros + lane));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

/// Two vectors for each of the panel's: the numbers of steps 0 to 3 and 4 to 7 of eight.
template <int kBits, int kVectors>
HWY_INLINE void load_eight(const char* from, std::int64_t pitch, __m512i (&low)[kVectors],
                           __m512i (&high)[kVectors]) {
  const __m512i mask = _mm512_set1_epi8(15);
  repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
    const __m512i word = _mm512_loadu_si512(from + v * 64);
    if constexpr (kBits == 4) {
      low[v] = _mm512_and_si512(word, mask);
      high[v] = _mm512_and_si512(_mm512_srli_epi16(word, 4), mask);
    } else {
      low[v] = word;
      high[v] = _mm512_loadu_si512(from + pitch * 4 + v * 64);
    }
  });
}

HWY_INLINE __m512i quad_at(const std::int8_t* x) {
  std::int32_t quad = 0;
  std::memcpy(&quad, x, sizeof(quad));
  return _mm512_set1_epi32(quad);
}

template <int kBits, int kRows, int kVectors>
void part(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
          const RoundedRows& rows, std::int64_t row, std::int64_t first, float* out) {
  // Where there are few sums, more than one chain of additions each.
  constexpr int kChains = kRows * kVectors >= 8 ? 1 : 2;
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * kWide;
  const std::int64_t lane = first * kWide;
  const std::int64_t stride = layout.padded_depth();
  const std::int64_t blocks = layout.blocks();
  const std::int64_t eight_bytes = layout.value_bytes(8) * pitch;
  const bool middle = layout.shape().zeros == NBitsShape::kMiddle;
  const std::int64_t zero_bytes = layout.zero_bytes() * pitch;
  const std::int32_t taken = middle ? 1 << (kBits - 1) : 0;
  const std::int8_t* x = rows.x + row * stride;
  const float* x_scales = rows.scales + row * blocks;
  const std::int32_t* x_sums = rows.sums + row * blocks;
  __m512 totals[kRows][kVectors];
  repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    repeat<kVectors>([&](auto v)
                         __attribute__((always_inline)) { totals[i][v] = _mm512_setzero_ps(); });
  });
  const char* from = static_cast<const char*>(packed) + layout.offset(panel, 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    __m512i sums[kChains][kRows][kVectors];
    repeat<kRows>([&](auto i) __attribute__((always_inline)) {
      repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
        sums[0][i][v] = _mm512_set1_epi32(-taken * x_sums[i * blocks + block]);
        if constexpr (kChains > 1) sums[1][i][v] = _mm512_setzero_si512();
      });
    });
    const std::int64_t steps = layout.steps(block);
    const char* values = from + lane * 4;
    for (std::int64_t k = 0; k < steps; k += 8, values += eight_bytes, x += 8) {
      for (std::int64_t at = 0; at < eight_bytes; at += 64)
        __builtin_prefetch(values + kNBitsFetchedAhead + at, 0, 3);
      __m512i low[kVectors];
      __m512i high[kVectors];
      load_eight<kBits, kVectors>(values, pitch, low, high);
      repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        const __m512i a = quad_at(x + i * stride);
        const __m512i b = quad_at(x + i * stride + 4);
        repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
          sums[0][i][v] = _mm512_dpbusd_epi32(sums[0][i][v], low[v], a);
          __m512i& other = sums[kChains - 1][i][v];
          other = _mm512_dpbusd_epi32(other, high[v], b);
        });
      });
    }
    from += steps / 8 * eight_bytes;
    const auto* scales = reinterpret_cast<const float*>(from) + lane;
    from += pitch * 4;
    repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
      const __m512 scale = _mm512_loadu_ps(scales + v * kWide);
      const __m512 zero =
          middle ? _mm512_setzero_ps() : zeros_of<kBits>(layout, from, lane + v * kWide);
      repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        __m512i whole = sums[0][i][v];
        if constexpr (kChains > 1) whole = _mm512_add_epi32(whole, sums[1][i][v]);
        __m512 sum = _mm512_cvtepi32_ps(whole);
        if (!middle) {
          const auto row_sum = static_cast<float>(x_sums[i * blocks + block]);
          sum = _mm512_fnmadd_ps(zero, _mm512_set1_ps(row_sum), sum);
        }
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[i * blocks + block]));
        totals[i][v] = _mm512_fmadd_ps(sum, both, totals[i][v]);
      });
    });
    from += zero_bytes;
  }
  repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
      _mm512_storeu_ps(out + i * pitch + lane + v * kWide, totals[i][v]);
    });
  });
}

template <int kBits, int kRows>
void parts(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
           const RoundedRows& rows, std::int64_t row, float* out) {
  int first = 0;
  if constexpr (kRows <= 2) {
    for (; first + 4 <= panel.vectors; first += 4)
      part<kBits, kRows, 4>(layout, packed, panel, rows, row, first, out);
  }
  for (; first + 2 <= panel.vectors; first += 2)
    part<kBits, kRows, 2>(layout, packed, panel, rows, row, first, out);
  for (; first < panel.vectors; ++first)
    part<kBits, kRows, 1>(layout, packed, panel, rows, row, first, out);
}

template <int kBits>
void thin_bits(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const RoundedRows& rows, std::int64_t row, int count, float* out) {
  switch (count) {
    case 1:
      return parts<kBits, 1>(layout, packed, panel, rows, row, out);
    case 2:
      return parts<kBits, 2>(layout, packed, panel, rows, row, out);
    case 3:
      return parts<kBits, 3>(layout, packed, panel, rows, row, out);
    default:
      return parts<kBits, 4>(layout, packed, panel, rows, row, out);
  }
}

void integer_thin(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
                  const RoundedRows& rows, std::int64_t row, int count, float* out) {
  if (layout.shape().bits == 4) return thin_bits<4>(layout, packed, panel, rows, row, count, out);
  thin_bits<8>(layout, packed, panel, rows, row, count, out);
}

HWY_INLINE __mmask16 mask_of_floats(std::int64_t n) {
  return n >= kWide ? __mmask16{0xFFFF}
                    : static_cast<__mmask16>((1U << std::max<std::int64_t>(n, 0)) - 1);
}

/// One block of a row: `steps` bytes, of `exist` floats. Returns the scale.
float round_block(const float* x, std::int64_t exist, std::int64_t steps, std::int8_t* to,
                  std::int32_t& sum) {
  const __m512 sign = _mm512_set1_ps(-0.0F);
  __m512 greatest = _mm512_setzero_ps();
  __mmask16 has_nan = 0;
  for (std::int64_t k = 0; k < exist; k += kWide) {
    const __m512 v = _mm512_maskz_loadu_ps(mask_of_floats(exist - k), x + k);
    has_nan = static_cast<__mmask16>(has_nan | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
    greatest = _mm512_max_ps(greatest, _mm512_andnot_ps(sign, v));
  }
  const float most = _mm512_reduce_max_ps(greatest);
  const __m512 inverse = _mm512_set1_ps(most > 0 ? 127.0F / most : 0.0F);
  __m512i total = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < steps; k += kWide) {
    const __m512 v = _mm512_maskz_loadu_ps(mask_of_floats(exist - k), x + k);
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse));
    total = _mm512_add_epi32(total, whole);
    _mm_mask_storeu_epi8(to + k, mask_of_floats(steps - k), _mm512_cvtsepi32_epi8(whole));
  }
  sum = _mm512_reduce_add_epi32(total);
  return has_nan != 0 ? std::numeric_limits<float>::quiet_NaN() : most / 127.0F;
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
}  // namespace backplane::cpu
HWY_POP_ATTRIBUTES

namespace backplane::cpu {

const NBitsIntegerKernels* nbits_integer_kernels(Isa isa, int bits) {
  static constexpr NBitsIntegerKernels kKernels{kMostRows, round_rows, integer_thin};
  static const bool kHasVnni =
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  if (isa == Isa::kAvx2 && bits == 4) return nbits_integer_kernels_avx2();
  return isa >= Isa::kAvx512 && kHasVnni ? &kKernels : nullptr;
}

}  // namespace backplane::cpu
#else
namespace backplane::cpu {
const NBitsIntegerKernels* nbits_integer_kernels(Isa, int) { return nullptr; }
}  // namespace backplane::cpu
#endif
