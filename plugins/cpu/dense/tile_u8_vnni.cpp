// Products of bytes by VNNI's instruction, which multiplies four of them and adds the products to 32 bits:
// Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, VPDPBUSD.
#include "plugins/cpu/dense/finish_avx512.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <hwy/base.h>
#include <immintrin.h>
#include <utility>

// Highway 1.0 has no operation for it. Functions, templates and lambdas below are compiled for it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu::avx512 {
namespace {

template <int kRows, int kVectors, bool kSigned>
void tile(const TileU8Args& args) {
  __m512i sums[kRows][kVectors];
  repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
      sums[i][v] = _mm512_loadu_si512(args.columns.start + v * kLanes);
    });
  });
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const auto* panel = static_cast<const std::int8_t*>(args.panel);
  const std::uint8_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const std::uint8_t* x[kRows];
    repeat<kRows>([&](auto i) __attribute__((always_inline)) { x[i] = rows[i] + args.offset; });
    for (std::int64_t q = 0; q < args.quads; ++q, panel += kVectors * 64) {
      __m512i w[kVectors];
      repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
        w[v] = _mm512_loadu_si512(panel + v * 64);
      });
      repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        std::int32_t quad = 0;
        std::memcpy(&quad, x[i] + 4 * q, sizeof(quad));
        __m512i all = _mm512_set1_epi32(quad);
        if constexpr (kSigned) all = _mm512_xor_si512(all, flip);
        repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
          sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], all, w[v]);
        });
      });
    }
  }
  const Finish finish = load(*args.finish);
  char* out = static_cast<char*>(args.out);
  const std::ptrdiff_t row_bytes = args.out_stride * args.finish->element_bytes();
  repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    store_row<kVectors>(sums[i], args.columns, *args.finish, finish, args.width,
                        out + i * row_bytes);
  });
}

// Six rows of four vectors leave registers for weights and a quad.
constexpr int kRowsOfWidest = 6;
int max_rows(int columns) { return columns == kColumns ? kRowsOfWidest : kMaxRowsU8; }

template <int kRows, int kVectors>
KernelsU8::Tile either(bool x_signed) {
  return x_signed ? tile<kRows, kVectors, true> : tile<kRows, kVectors, false>;
}

template <int kVectors>
KernelsU8::Tile of_rows(int rows, bool x_signed) {
  switch (rows) {
    case 1:
      return either<1, kVectors>(x_signed);
    case 2:
      return either<2, kVectors>(x_signed);
    case 3:
      return either<3, kVectors>(x_signed);
    case 4:
      return either<4, kVectors>(x_signed);
    case 5:
      return either<5, kVectors>(x_signed);
    case 6:
      return either<6, kVectors>(x_signed);
    default:
      break;
  }
  if constexpr (kVectors < kWidest) {
    if (rows == 7) return either<7, kVectors>(x_signed);
    return either<8, kVectors>(x_signed);
  }
  return nullptr;
}

KernelsU8::Tile find_tile(int rows, int columns, bool x_signed) {
  if (columns == kColumns) return of_rows<4>(rows, x_signed);
  return columns == 2 * kLanes ? of_rows<2>(rows, x_signed) : of_rows<1>(rows, x_signed);
}

int place(int lane, int k, int) { return lane * 4 + k; }

std::int64_t depthwise_bytes(std::int64_t taps, std::int64_t channels) {
  return tap_quad_bytes(taps, channels, kColumns);
}

int depthwise_lane(int channel) {
  return channel / kColumns * kColumns + lane_of(channel % kColumns, kColumns);
}

void pack_depthwise(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    void* packed) {
  pack_tap_quads(weights, taps, channels, {kColumns, lane_of}, packed);
}

/// Four rows of 64 bytes become four vectors of quads, one of each column, in the order of the lanes.
HWY_INLINE void make_quads(const __m512i* x, __m512i* quads) {
  const __m512i low01 = _mm512_unpacklo_epi8(x[0], x[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(x[0], x[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(x[2], x[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(x[2], x[3]);
  quads[0] = _mm512_unpacklo_epi16(low01, low23);
  quads[1] = _mm512_unpackhi_epi16(low01, low23);
  quads[2] = _mm512_unpacklo_epi16(high01, high23);
  quads[3] = _mm512_unpackhi_epi16(high01, high23);
}

HWY_INLINE void add_group(const __m512i* x, const __m512i* weights, __m512i* sums) {
  __m512i quads[kWidest];
  make_quads(x, quads);
  repeat<kWidest>([&](auto v) __attribute__((always_inline)) {
    sums[v] = _mm512_dpbusd_epi32(sums[v], quads[v], weights[v]);
  });
}

HWY_INLINE __m512i load_weights(const PackRowsU8& args, std::int64_t k, __mmask64 mask) {
  if (k >= args.depth) return _mm512_setzero_si512();
  const __m512i row = _mm512_maskz_loadu_epi8(mask, args.weights + k * args.stride);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(args.flip));
  return _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(row, flip));
}

/// Four rows become quads as pixels do; a row of ones sums the columns.
void pack_rows(const PackRowsU8& args) {
  const __mmask64 mask = mask_of(args.width);
  const __m512i ones = _mm512_set1_epi8(1);
  auto* to = static_cast<std::int8_t*>(args.panel);
  __m512i sums[kWidest];
  repeat<kWidest>([&](auto v) __attribute__((always_inline)) { sums[v] = _mm512_setzero_si512(); });
  for (std::int64_t k = 0; k < args.depth; k += 4, to += kColumns * 4) {
    __m512i rows[4];
    repeat<4>([&](auto i)
                  __attribute__((always_inline)) { rows[i] = load_weights(args, k + i, mask); });
    __m512i quads[kWidest];
    make_quads(rows, quads);
    repeat<kWidest>([&](auto v) __attribute__((always_inline)) {
      _mm512_storeu_si512(to + v * 64, quads[v]);
      sums[v] = _mm512_dpbusd_epi32(sums[v], ones, quads[v]);
    });
  }
  store_columns<kWidest>(sums, args.width, args.sums);
}

/// What does not change from pixel to pixel, for up to 64 channels.
struct DepthwiseBlock {
  const DepthwiseU8Args& args;
  std::int64_t channel;
  const std::int8_t* weights;
  ColumnsU8 columns;
  Finish finish;
  __mmask64 mask;
  __m512i flip;
};

/// The bytes of a tap; those after the last one meet weights of zero.
HWY_INLINE __m512i load_tap(const DepthwiseBlock& block, std::int64_t pixel, std::int64_t tap) {
  const std::uint8_t* row = block.args.rows[tap * block.args.row_pitch + pixel];
  return _mm512_xor_si512(_mm512_maskz_loadu_epi8(block.mask, row + block.channel), block.flip);
}

HWY_INLINE void store_pixel(const DepthwiseBlock& block, std::int64_t pixel, __m512i* sums) {
  const DepthwiseU8Args& args = block.args;
  const std::int64_t at = pixel * args.channels + block.channel;
  store_row<kWidest>(sums, block.columns, *args.finish, block.finish,
                     std::min<std::int64_t>(kColumns, args.channels - block.channel),
                     static_cast<char*>(args.out) + at * args.finish->element_bytes());
}

HWY_INLINE void load_start(const DepthwiseBlock& block, __m512i* sums) {
  repeat<kWidest>([&](auto v) __attribute__((always_inline)) {
    sums[v] = _mm512_loadu_si512(block.columns.start + v * kLanes);
  });
}

/// Nine taps, the most frequent number: their weights stay in registers.
void nine_taps(const DepthwiseBlock& block) {
  __m512i weights[3][kWidest];
  repeat<3>([&](auto g) __attribute__((always_inline)) {
    repeat<kWidest>([&](auto v) __attribute__((always_inline)) {
      weights[g][v] = _mm512_loadu_si512(block.weights + (g * kWidest + v) * 64);
    });
  });
  for (std::int64_t p = 0; p < block.args.pixels; ++p) {
    __m512i sums[kWidest];
    load_start(block, sums);
    __m512i x[3][kTapsOfQuad];
    repeat<9>([&](auto t) __attribute__((always_inline)) {
      x[t / kTapsOfQuad][t % kTapsOfQuad] = load_tap(block, p, t);
    });
    repeat<3>([&](auto i) __attribute__((always_inline)) { x[2][i + 1] = x[2][0]; });
    repeat<3>([&](auto g) __attribute__((always_inline)) { add_group(x[g], weights[g], sums); });
    store_pixel(block, p, sums);
  }
}

void any_taps(const DepthwiseBlock& block) {
  for (std::int64_t p = 0; p < block.args.pixels; ++p) {
    __m512i sums[kWidest];
    load_start(block, sums);
    const std::int8_t* from = block.weights;
    for (std::int64_t t = 0; t < block.args.taps;
         t += kTapsOfQuad, from += kTapsOfQuad * kColumns) {
      __m512i x[kTapsOfQuad];
      __m512i weights[kWidest];
      repeat<kTapsOfQuad>([&](auto i) __attribute__((always_inline)) {
        x[i] = load_tap(block, p, std::min<std::int64_t>(t + i, block.args.taps - 1));
        weights[i] = _mm512_loadu_si512(from + i * 64);
      });
      add_group(x, weights, sums);
    }
    store_pixel(block, p, sums);
  }
}

void depthwise(const DepthwiseU8Args& args, bool x_signed) {
  const std::int64_t block_bytes = depthwise_bytes(args.taps, kColumns);
  const auto* weights = static_cast<const std::int8_t*>(args.weights);
  for (std::int64_t c = 0; c < args.channels; c += kColumns, weights += block_bytes) {
    const ColumnsU8 columns = args.columns.from(c);
    const DepthwiseBlock block{args,
                               c,
                               weights,
                               columns,
                               load(*args.finish),
                               mask_of(args.channels - c),
                               _mm512_set1_epi8(static_cast<char>(x_signed ? 0x80 : 0))};
    if (args.taps == 9) {
      nine_taps(block);
    } else {
      any_taps(block);
    }
  }
}

}  // namespace
}  // namespace backplane::cpu::avx512
HWY_POP_ATTRIBUTES

namespace backplane::cpu {
namespace {

bool has_vnni() {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

}  // namespace

const KernelsU8* kernels_u8_vnni() {
  static const KernelsU8 kernels = [] {
    using namespace avx512;
    KernelsU8 k = kernels_u8_pairs(Isa::kAvx512);
    k.panel_columns = kColumns;
    k.columns_for = columns_for;
    k.max_rows = max_rows;
    k.lane = lane_of;
    k.place = place;
    k.pack_rows = pack_rows;
    k.wide = nullptr;
    k.tile = find_tile;
    k.depthwise_channels = kColumns;
    k.depthwise_bytes = depthwise_bytes;
    k.pack_depthwise = pack_depthwise;
    k.depthwise_lane = depthwise_lane;
    k.depthwise = depthwise;
    return k;
  }();
  return has_vnni() ? &kernels : nullptr;
}

}  // namespace backplane::cpu
#else
namespace backplane::cpu {
const KernelsU8* kernels_u8_vnni() { return nullptr; }
}  // namespace backplane::cpu
#endif
