// Products of bytes by AVX-VNNI's instruction, which multiplies four of them and adds the products to 32 bits, on
// processors that have no AVX-512: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2,
// VPDPBUSD (the form with a VEX prefix). Lanes and results are those of tile_u8.cpp; weights lie in quads.
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cpuid.h>
#include <cstring>
#include <immintrin.h>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"
#include "plugins/cpu/rounding.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_u8_avxvnni.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/dense/bytes-inl.hpp"

#if HWY_TARGET == HWY_AVX2
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avxvnni")
namespace backplane::cpu::HWY_NAMESPACE {

const KernelsU8& table_u8_avxvnni();

namespace {

constexpr bool kSplitWeights = false;

HWY_INLINE Vector32 add_products(Vector32 sums, __m256i x, __m256i weights) {
  return Vector32{_mm256_dpbusd_avx_epi32(sums.raw, x, weights)};
}

}  // namespace
}  // namespace backplane::cpu::HWY_NAMESPACE

#include "plugins/cpu/dense/quads_avx2-inl.hpp"

namespace backplane::cpu::HWY_NAMESPACE {
namespace {

// Channel by channel, four taps at a time, as pack_tap_quads() has their weights.
std::int64_t depthwise_bytes(std::int64_t taps, std::int64_t channels) {
  return tap_quad_bytes(taps, channels, kColumns);
}

void pack_depthwise(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    void* packed) {
  pack_tap_quads(weights, taps, channels, {kColumns, lane}, packed);
}

/// The sums of a unit of a pixel, of which the bytes of tap t are at row(t).
template <int kTaps, class Row>
HWY_INLINE void sum_taps(std::int64_t any_taps, const std::int8_t* weights, __m256i flip,
                         const Row& row, Sums<1>& sums) {
  const std::int64_t taps = kTaps > 0 ? kTaps : any_taps;
#pragma GCC unroll 3
  for (std::int64_t t = 0; t < taps; t += kTapsOfQuad, weights += kQuadBytes) {
    __m256i x[kTapsOfQuad];
#pragma GCC unroll 4
    for (int i = 0; i < kTapsOfQuad; ++i) {
      // What follows the last tap meets weights of zero.
      x[i] = x[0];
      if (t + i >= taps) continue;
      x[i] = _mm256_xor_si256(load_spread(row(t + i)), flip);
    }
    const Quads quads(x);
    sums[0][0] = add_products(sums[0][0], quads.v0, load_vector(weights));
    sums[0][1] = add_products(sums[0][1], quads.v1, load_vector(weights + kVectorBytes));
  }
}

/// kTaps: args.taps, or 0 for any number.
template <int kTaps>
void depthwise_pixels(const DepthwiseU8Args& args, bool x_signed) {
  const __m256i flip = flip_of(x_signed);
  HWY_ALIGN std::uint8_t tail[kMostTapsU8 * kColumns];
  std::memset(tail, 0, static_cast<std::size_t>(args.taps * kColumns));
  const auto* weights = static_cast<const std::int8_t*>(args.weights);
  for (std::int64_t c = 0; c < args.channels;
       c += kColumns, weights += depthwise_bytes(args.taps, kColumns)) {
    TileU8Args unit{};
    unit.columns = args.columns.from(c);
    unit.finish = args.finish;
    unit.out_stride = args.channels;
    unit.width = std::min<std::int64_t>(kColumns, args.channels - c);
    const TileStore store(unit);
    char* out = static_cast<char*>(args.out) + c * args.finish->element_bytes();
    for (std::int64_t p = 0; p < args.pixels; ++p, out += store.row_bytes) {
      const std::uint8_t* const* rows = args.rows + p;
      Sums<1> sums;
      begin_sums<1>(unit.columns, sums);
      if (unit.width == kColumns) {
        const auto row = [&](std::int64_t t) { return rows[t * args.row_pitch] + c; };
        sum_taps<kTaps>(args.taps, weights, flip, row, sums);
      } else {
        copy_channels(args, rows, c, unit.width, tail);
        const auto row = [&](std::int64_t t) { return tail + t * kColumns; };
        sum_taps<kTaps>(args.taps, weights, flip, row, sums);
      }
      store.rows<1>(sums, out);
    }
  }
}

void depthwise(const DepthwiseU8Args& args, bool x_signed) {
  args.taps == 9 ? depthwise_pixels<9>(args, x_signed) : depthwise_pixels<0>(args, x_signed);
}

}  // namespace

const KernelsU8& table_u8_avxvnni() {
  static const KernelsU8 kernels = [] {
    KernelsU8 k = quad_kernels();
    k.depthwise_bytes = depthwise_bytes;
    k.pack_depthwise = pack_depthwise;
    k.depthwise = depthwise;
    return k;
  }();
  return kernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace backplane::cpu {
namespace {

/// Compilers do not all know the name of it.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kFeatures = 7, kMoreFeatures = 1, kAvxVnni = 1U << 4;
  return best_isa() != Isa::kBaseline &&
         __get_cpuid_count(kFeatures, kMoreFeatures, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnni) != 0;
}

}  // namespace

const KernelsU8* kernels_u8_avxvnni() {
  static const bool kHas = has_avxvnni();
  return kHas ? &N_AVX2::table_u8_avxvnni() : nullptr;
}

}  // namespace backplane::cpu
#endif
#else
namespace backplane::cpu {
const KernelsU8* kernels_u8_avxvnni() { return nullptr; }
}  // namespace backplane::cpu
#endif
