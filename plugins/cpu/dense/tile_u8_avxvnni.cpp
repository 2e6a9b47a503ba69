// Products of bytes by AVX-VNNI's instruction, which multiplies four of them and adds the products to 32 bits, on
// processors that have no AVX-512: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2,
// VPDPBUSD (the form with a VEX prefix). Lanes and results are those of tile_u8.cpp; weights lie in quads.
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cpuid.h>
#include <cstring>
#include <immintrin.h>

#include "plugins/cpu/dense/targets.hpp"

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

// As many as the registers hold sums of, beside a quad of a row and the panel's vectors.
constexpr int kTileRows = 6;
constexpr int kVectorBytes = 32;
constexpr int kQuadBytes = kVectors * kVectorBytes;  // of a panel, or of channels

HWY_INLINE __m256i load_vector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

HWY_INLINE Vector32 add_products(Vector32 sums, __m256i x, __m256i weights) {
  return Vector32{_mm256_dpbusd_avx_epi32(sums.raw, x, weights)};
}

HWY_INLINE __m256i flip_of(bool x_signed) {
  return _mm256_set1_epi8(static_cast<char>(x_signed ? 0x80 : 0));
}

template <int kRows, bool kSigned>
HWY_INLINE void sum_tile(const TileU8Args& args, Sums<kRows>& sums) {
  const Tag32 d32;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::LoadU(d32, args.columns.start + j * kLanes);
  }
  const __m256i flip = flip_of(true);
  const auto* panel = static_cast<const std::int8_t*>(args.panel);
  const std::uint8_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const std::uint8_t* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = rows[i] + args.offset;
    for (std::int64_t q = 0; q < args.quads; ++q, panel += kQuadBytes) {
      const __m256i w0 = load_vector(panel);
      const __m256i w1 = load_vector(panel + kVectorBytes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        std::int32_t quad = 0;
        std::memcpy(&quad, x[i] + 4 * q, sizeof(quad));
        __m256i all = _mm256_set1_epi32(quad);
        if constexpr (kSigned) all = _mm256_xor_si256(all, flip);
        sums[i][0] = add_products(sums[i][0], all, w0);
        sums[i][1] = add_products(sums[i][1], all, w1);
      }
    }
  }
}

template <int kRows, bool kSigned>
void tile(const TileU8Args& args) {
  Sums<kRows> sums;
  sum_tile<kRows, kSigned>(args, sums);
  TileStore(args).rows<kRows>(sums, static_cast<char*>(args.out));
}

template <int kRows>
KernelsU8::Tile find_rows(int rows, bool x_signed) {
  if (rows == kRows) return x_signed ? tile<kRows, true> : tile<kRows, false>;
  if constexpr (kRows > 1) return find_rows<kRows - 1>(rows, x_signed);
  return nullptr;
}

KernelsU8::Tile find_tile(int rows, int, bool x_signed) {
  return find_rows<kTileRows>(rows, x_signed);
}

int columns_for(std::int64_t) { return kColumns; }
int max_rows(int) { return kTileRows; }
int place(int lane, int k, int) { return lane * 4 + k; }

/// Of four rows of 16 bytes, each with its halves at the beginnings of a vector's, the quads of each column in the order of the
/// lanes.
struct Quads {
  HWY_INLINE explicit Quads(const __m256i (&rows)[4]) {
    const __m256i low = _mm256_unpacklo_epi8(rows[0], rows[1]);
    const __m256i high = _mm256_unpacklo_epi8(rows[2], rows[3]);
    v0 = _mm256_unpacklo_epi16(low, high);
    v1 = _mm256_unpackhi_epi16(low, high);
  }
  __m256i v0, v1;
};

/// A row of kColumns bytes.
HWY_INLINE __m256i load_spread(const void* row) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(row));
  return _mm256_permute4x64_epi64(_mm256_castsi128_si256(bytes), 0x10);
}

/// Four rows become quads as pixels do; a row of ones sums the columns.
void pack_rows(const PackRowsU8& args) {
  const __m256i ones = _mm256_set1_epi8(1);
  auto* to = static_cast<char*>(args.panel);
  Vector32 sums[kVectors] = {hn::Zero(Tag32()), hn::Zero(Tag32())};
  for (std::int64_t k = 0; k < args.depth; k += 4, to += kQuadBytes) {
    __m256i rows[4];
    for (int i = 0; i < 4; ++i) {
      std::int8_t bytes[kColumns];
      load_weights(args, k + i, bytes);
      rows[i] = load_spread(bytes);
    }
    const Quads quads(rows);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), quads.v0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kVectorBytes), quads.v1);
    sums[0] = add_products(sums[0], ones, quads.v0);
    sums[1] = add_products(sums[1], ones, quads.v1);
  }
  store_columns(sums[0], sums[1], args.width, args.sums);
}

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
  const Tag32 d32;
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
      Sums<1> sums = {
          {hn::LoadU(d32, unit.columns.start), hn::LoadU(d32, unit.columns.start + kLanes)}};
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
    KernelsU8 k = kernels_u8_pairs(Isa::kAvx2);
    k.columns_for = columns_for;
    k.max_rows = max_rows;
    k.place = place;
    k.pack_rows = pack_rows;
    k.wide = nullptr;
    k.tile = find_tile;
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
