// Products of bytes on processors of AVX2 that have no instruction for sums of four: VPMADDUBSW multiplies pairs of bytes and
// sums each in 16 bits, VPMADDWD sums two of those in 32. Three instructions do what numbers of 16 bits take four for.
// The sum of a pair saturates where two weights are beyond 128 together. Of those weights the greater one is lessened here
// to what cannot saturate, and the rest of it is a weight of a further quad, which meets the same numbers once more: sums
// are exact. Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, VPMADDUBSW.
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"
#include "plugins/cpu/rounding.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_u8_split.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/dense/bytes-inl.hpp"

#if HWY_TARGET == HWY_AVX2
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR)
namespace backplane::cpu::HWY_NAMESPACE {

const KernelsU8& table_u8_split();

namespace {

constexpr bool kSplitWeights = true;

HWY_INLINE Vector32 add_products(Vector32 sums, __m256i x, __m256i weights) {
  const __m256i pairs = _mm256_maddubs_epi16(x, weights);
  return hn::Add(sums, Vector32{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
}

}  // namespace
}  // namespace backplane::cpu::HWY_NAMESPACE

#include "plugins/cpu/dense/quads_avx2-inl.hpp"

namespace backplane::cpu::HWY_NAMESPACE {
namespace {

// The greatest size of the sum of two weights with which 255 * w0 + 255 * w1 fits 16 bits.
constexpr int kMostOfPair = 128;

/// Whether a pair of 32 weights is beyond what cannot saturate.
HWY_INLINE bool has_beyond(const std::int8_t* weights) {
  const __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), load_vector(weights));
  const __m256i beyond = _mm256_cmpgt_epi16(_mm256_abs_epi16(sums), _mm256_set1_epi16(kMostOfPair));
  return _mm256_testz_si256(beyond, beyond) == 0;
}

/// Lessens weights of a quad of a panel, in which pairs lie one behind the other, and writes what is taken off them to `rest`.
void take_rest(std::int8_t* quad, std::int8_t* rest) {
  std::memset(rest, 0, kQuadBytes);
  for (int i = 0; i < kQuadBytes; i += 2) {
    const int sum = quad[i] + quad[i + 1];
    const int beyond = sum > kMostOfPair ? sum - kMostOfPair : std::min(0, sum + kMostOfPair);
    const int greater = std::abs(quad[i]) >= std::abs(quad[i + 1]) ? i : i + 1;
    quad[greater] = static_cast<std::int8_t>(quad[greater] - beyond);
    rest[greater] = static_cast<std::int8_t>(beyond);
  }
}

bool split(void* panel, std::int64_t quads) {
  auto* quad = static_cast<std::int8_t*>(panel);
  const RestsU8<std::int8_t> rests(quad + quads * kQuadBytes, quads);
  std::int32_t count = 0;
  for (std::int64_t q = 0; q < quads; ++q, quad += kQuadBytes) {
    if (!has_beyond(quad) && !has_beyond(quad + kVectorBytes)) continue;
    if (count == RestsU8<std::int8_t>::most(quads)) return false;
    take_rest(quad, rests.weights + count * kQuadBytes);
    rests.places[count++] = static_cast<std::int32_t>(4 * q);
  }
  *rests.count = count;
  return true;
}

}  // namespace

const KernelsU8& table_u8_split() {
  static const KernelsU8 kernels = [] {
    KernelsU8 k = quad_kernels();
    k.split = split;
    k.rest_bytes = RestsU8<std::int8_t>::bytes;
    return k;
  }();
  return kernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace backplane::cpu {

const KernelsU8* kernels_u8_split(Isa isa) {
  return isa == Isa::kAvx2 && kernels_u8_avxvnni() == nullptr ? &N_AVX2::table_u8_split() : nullptr;
}

}  // namespace backplane::cpu
#endif
#else
namespace backplane::cpu {
const KernelsU8* kernels_u8_split(Isa) { return nullptr; }
}  // namespace backplane::cpu
#endif
