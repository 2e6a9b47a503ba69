// Products of bytes by VNNI's instruction, which multiplies four of them and adds the products to 32 bits:
// Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, VPDPBUSD.
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <hwy/base.h>
#include <immintrin.h>
#include <utility>

// Highway 1.0 has no operation for it. Functions, templates and lambdas below are compiled for it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kWidest = 4;  // vectors of a panel
constexpr int kColumns = kWidest * kLanes;
static_assert(kTapsOfQuad == kWidest,
              "a group of taps fills as many vectors of quads as a panel has");
// A float beyond it has no 32-bit integer; every byte is far below.
constexpr float kLimit = 1e9F;

template <int... kIndices, class Body>
HWY_INLINE void repeat(std::integer_sequence<int, kIndices...>, const Body& body) {
  (body(std::integral_constant<int, kIndices>()), ...);
}

/// body(0) to body(kCount - 1), each with its index as a constant: GCC keeps an array in registers only where
/// no index has ever been a variable.
template <int kCount, class Body>
HWY_INLINE void repeat(const Body& body) {
  repeat(std::make_integer_sequence<int, kCount>(), body);
}

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
int lane_of(int column, int columns) {
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
HWY_INLINE void store_floats(const __m512i* sums, const TileU8Args& args, float* y) {
  __m512i values[kVectors];
  repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
    const __m512 value =
        _mm512_max_ps(_mm512_set1_ps(args.finish->lo), scaled(sums[v], args.columns, v));
    values[v] = _mm512_castps_si512(_mm512_min_ps(_mm512_set1_ps(args.finish->hi), value));
  });
  store_columns<kVectors>(values, args.width, y);
}

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
  const bool floats = args.finish->floats;
  const bool plain = args.finish->sums;
  const Finish finish = load(*args.finish);
  const __mmask64 mask = mask_of(args.width);
  repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    if (plain) {
      store_columns<kVectors>(sums[i], args.width,
                              static_cast<std::int32_t*>(args.out) + i * args.out_stride);
    } else if (floats) {
      store_floats<kVectors>(sums[i], args, static_cast<float*>(args.out) + i * args.out_stride);
    } else {
      store_bytes<kVectors>(sums[i], args.columns, finish,
                            static_cast<std::uint8_t*>(args.out) + i * args.out_stride, mask);
    }
  });
}

// Six rows of four vectors leave registers for weights and a quad.
constexpr int kRowsOfWidest = 6;
int max_rows(int columns) { return columns == kColumns ? kRowsOfWidest : kMaxRowsU8; }

int columns_for(std::int64_t width) {
  if (width > 2 * kLanes) return kColumns;
  return width > kLanes ? 2 * kLanes : kLanes;
}

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

HWY_INLINE void store_pixel(const DepthwiseBlock& block, std::int64_t pixel, const __m512i* sums) {
  const DepthwiseU8Args& args = block.args;
  const std::int64_t at = pixel * args.channels + block.channel;
  if (args.finish->floats) {
    TileU8Args tail{};
    tail.columns = block.columns;
    tail.finish = args.finish;
    tail.width = std::min<std::int64_t>(kColumns, args.channels - block.channel);
    store_floats<kWidest>(sums, tail, static_cast<float*>(args.out) + at);
  } else {
    store_bytes<kWidest>(sums, block.columns, block.finish,
                         static_cast<std::uint8_t*>(args.out) + at, block.mask);
  }
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
}  // namespace backplane::cpu
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
