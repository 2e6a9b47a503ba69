// Products by AMX, whose instruction multiplies two tiles of 16 rows and 64 bytes, here pairs of bfloat16 numbers, and
// adds to a tile of floats: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, TDPBF16PS.
#include "plugins/cpu/dense/tile_amx_bf16.hpp"

#include "plugins/cpu/dense/tile_shapes.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace backplane::cpu {
namespace bfloat_tiles {
namespace {

constexpr int kTileSide = 16;                   // rows of a tile, and vectors' lanes
constexpr int64_t kTileBytes = kTileSide * 64;  // of a whole tile
constexpr int64_t kPairBytes = 4;

/// The compiler does not know that loads of tiles read memory.
HWY_INLINE void keep_stores_before() { asm volatile("" ::: "memory"); }

/// How the pairs of a tap are cut: into `steps` steps of `pairs` pairs each, as many as the tiles are set up for, and one of `rest`.
struct Cut {
  int64_t pairs, steps, rest;

  explicit Cut(int64_t depth) {
    const int64_t least = (depth + kTileSide - 1) / kTileSide;
    // Equal steps need no copies that are padded with zeros.
    const bool equal = least > 0 && depth % least == 0;
    pairs = equal ? depth / least : kTileSide;
    steps = depth / pairs;
    rest = depth - steps * pairs;
  }
};

/// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights. Of at most 16 rows, tiles 0 to 3 lie side by side, 4 holds rows and 5 to 7
/// weights.
void set_up(const Cut& cut, int64_t rows) {
  TileShapes shapes;
  const bool two = rows > kTileSide;
  for (int tile = 0; tile < TileShapes::kTiles; ++tile) {
    const bool is_lower = two && (tile == 2 || tile == 3 || tile == 5);
    const bool is_weights = tile > 5 || (tile == 5 && !two);
    const int64_t high = is_weights ? cut.pairs
                         : is_lower ? rows - kTileSide
                         : two      ? kTileSide
                                    : rows;
    const bool is_operand = tile == 4 || (tile == 5 && two);
    shapes.set(tile, high, is_operand ? cut.pairs * kPairBytes : 64);
  }
  shapes.use();
}

/// The rows of a tile at one tap.
struct Lines {
  const float* const* rows;
  int64_t count;
  ptrdiff_t offset;
  bool is_even;  // whether they are equally far from each other
  ptrdiff_t distance;

  HWY_INLINE Lines(const float* const* all_rows, int64_t row_count, ptrdiff_t of_tap)
      : rows(all_rows), count(row_count), offset(of_tap), is_even(true), distance(0) {
    if (count < 2) return;
    const auto step = reinterpret_cast<intptr_t>(rows[1]) - reinterpret_cast<intptr_t>(rows[0]);
    const __m512i all = _mm512_set1_epi64(step);
    for (int64_t i = 0; i + 1 < count; i += 8) {
      const auto left = std::min<int64_t>(8, count - 1 - i);
      const auto mask = static_cast<__mmask8>((1U << left) - 1);
      const __m512i here = _mm512_maskz_loadu_epi64(mask, rows + i);
      const __m512i next = _mm512_maskz_loadu_epi64(mask, rows + i + 1);
      if (_mm512_mask_cmpneq_epi64_mask(mask, _mm512_sub_epi64(next, here), all) != 0)
        is_even = false;
    }
    distance = step;
  }

  /// Copies `pairs` pairs of each row from pair `first` on, and zeros up to 16.
  HWY_INLINE void gather(int64_t first, int64_t pairs, char* to) const {
    const auto mask = static_cast<__mmask16>((1U << pairs) - 1);
    for (int64_t i = 0; i < count; ++i, to += 64)
      _mm512_store_si512(to, _mm512_maskz_loadu_epi32(mask, rows[i] + offset + first));
    keep_stores_before();
  }
};

/// Rows of weights up to `rows`, and zeros up to 16, of `tiles` tiles side by side.
HWY_INLINE void copy_weights(const char* panel, ptrdiff_t pitch, int64_t rows, int tiles,
                             char* to) {
  for (int tile = 0; tile < tiles; ++tile, panel += 64) {
    for (int64_t i = 0; i < kTileSide; ++i, to += 64) {
      _mm512_store_si512(to,
                         i < rows ? _mm512_loadu_si512(panel + i * pitch) : _mm512_setzero_si512());
    }
  }
  keep_stores_before();
}

/// Where the operands of one step lie.
struct Operands {
  const char* upper;
  ptrdiff_t upper_distance;
  const char* lower;
  ptrdiff_t lower_distance;
  const char* weights;
  ptrdiff_t weights_distance;  // of rows
  ptrdiff_t weights_next;      // of tiles
};

/// Adds the products of a step. kHigh of 2: to sums of up to 32 rows; of 1: of up to 16 rows.
template <int kHigh, int kWide>
HWY_INLINE void add_step(const Operands& x) {
  _tile_loadd(4, x.upper, x.upper_distance);
  if constexpr (kHigh == 2) {
    _tile_loadd(6, x.weights, x.weights_distance);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, x.lower, x.lower_distance);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kWide == 2) {
      _tile_loadd(7, x.weights + x.weights_next, x.weights_distance);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  } else {
    _tile_loadd(5, x.weights, x.weights_distance);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kWide > 1) {
      _tile_loadd(6, x.weights + x.weights_next, x.weights_distance);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kWide > 2) {
      _tile_loadd(7, x.weights + 2 * x.weights_next, x.weights_distance);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kWide > 3) {
      _tile_loadd(5, x.weights + 3 * x.weights_next, x.weights_distance);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
}

constexpr int64_t kSumsPitch = 4 * kTileSide;  // floats

/// Sums over all taps of `kWide` vectors of columns, to `sums`, whose rows are kSumsPitch apart.
template <int kHigh, int kWide>
// NOLINTNEXTLINE(readability-function-cognitive-complexity): its sums are tiles, which stay in one function
void sum_products(const TileArgs& args, const float* const* rows, int64_t count, const Cut& cut,
                  ptrdiff_t pitch, const char* weights, float* sums) {
  alignas(64) char upper_copy[kTileBytes];
  alignas(64) char lower_copy[kTileBytes];
  alignas(64) char weights_copy[kWide * kTileBytes];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  Operands x{};
  for (int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const Lines upper(rows, std::min<int64_t>(kTileSide, count), args.offset);
    const Lines lower(rows + (kHigh == 2 ? kTileSide : 0), kHigh == 2 ? count - kTileSide : 0,
                      args.offset);
    x.upper = reinterpret_cast<const char*>(rows[0] + args.offset);
    x.upper_distance = upper.is_even ? upper.distance : 64;
    if constexpr (kHigh == 2) {
      x.lower = reinterpret_cast<const char*>(rows[kTileSide] + args.offset);
      x.lower_distance = lower.is_even ? lower.distance : 64;
    }
    x.weights_distance = pitch;
    x.weights_next = 64;
    for (int64_t s = 0; s < cut.steps; ++s) {
      if (!upper.is_even) {
        upper.gather(s * cut.pairs, cut.pairs, upper_copy);
        x.upper = upper_copy;
      }
      if (kHigh == 2 && !lower.is_even) {
        lower.gather(s * cut.pairs, cut.pairs, lower_copy);
        x.lower = lower_copy;
      }
      x.weights = weights;
      add_step<kHigh, kWide>(x);
      x.upper += cut.pairs * kPairBytes;
      x.lower += cut.pairs * kPairBytes;
      weights += cut.pairs * pitch;
    }
    if (cut.rest == 0) continue;
    upper.gather(cut.steps * cut.pairs, cut.rest, upper_copy);
    if constexpr (kHigh == 2) lower.gather(cut.steps * cut.pairs, cut.rest, lower_copy);
    copy_weights(weights, pitch, cut.rest, kWide, weights_copy);
    add_step<kHigh, kWide>({upper_copy, 64, lower_copy, 64, weights_copy, 64, kTileBytes});
    weights += cut.rest * pitch;
  }
  constexpr ptrdiff_t kPitch = kSumsPitch * sizeof(float);
  _tile_stored(0, sums, kPitch);
  if constexpr (kHigh == 2) _tile_stored(2, sums + kTileSide * kSumsPitch, kPitch);
  if constexpr (kWide > 1) _tile_stored(1, sums + kTileSide, kPitch);
  if constexpr (kHigh == 2 && kWide > 1)
    _tile_stored(3, sums + kTileSide * kSumsPitch + kTileSide, kPitch);
  if constexpr (kHigh == 1 && kWide > 2) _tile_stored(2, sums + 2 * kTileSide, kPitch);
  if constexpr (kHigh == 1 && kWide > 3) _tile_stored(3, sums + 3 * kTileSide, kPitch);
}

/// Adds the bias or what an earlier part of the depth left, and finishes what is final.
void finish(const TileArgs& args, const float* sums, int64_t first, int64_t rows, int vectors) {
  const __m512 lo = _mm512_set1_ps(args.lo), hi = _mm512_set1_ps(args.hi);
  for (int v = 0; v < vectors; ++v) {
    const int64_t column = v * int64_t{kTileSide};
    const auto left = std::min<int64_t>(kTileSide, args.width - column);
    const auto mask = static_cast<__mmask16>((1U << left) - 1);
    __m512 bias = _mm512_setzero_ps();
    if (args.bias != nullptr) bias = _mm512_maskz_loadu_ps(mask, args.bias + column);
    for (int64_t i = 0; i < rows; ++i) {
      float* out = args.out + (first + i) * args.out_stride + column;
      __m512 y = _mm512_load_ps(sums + i * kSumsPitch + column);
      y = _mm512_add_ps(y, args.first ? bias : _mm512_maskz_loadu_ps(mask, out));
      if (args.last) {
        if (args.residual != nullptr) {
          const float* residual = args.residual + (first + i) * args.residual_stride + column;
          y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, residual));
        }
        // These keep a NaN. With a mask, since GCC 12 warns of what the forms without one leave undefined.
        y = _mm512_maskz_max_ps(mask, lo, _mm512_maskz_min_ps(mask, hi, y));
      }
      _mm512_mask_storeu_ps(out, mask, y);
    }
  }
}

void sum_columns(const TileArgs& args, const float* const* rows, int64_t count, const Cut& cut,
                 int vectors, float* sums) {
  const ptrdiff_t pitch = vectors * ptrdiff_t{64};
  const auto* weights = static_cast<const char*>(args.panel);
  if (count > kTileSide) {
    for (int v = 0; v < vectors; v += 2, weights += 128) {
      if (v + 1 < vectors) {
        sum_products<2, 2>(args, rows, count, cut, pitch, weights, sums + v * kTileSide);
      } else {
        sum_products<2, 1>(args, rows, count, cut, pitch, weights, sums + v * kTileSide);
      }
    }
    return;
  }
  switch (vectors) {
    case 1:
      return sum_products<1, 1>(args, rows, count, cut, pitch, weights, sums);
    case 2:
      return sum_products<1, 2>(args, rows, count, cut, pitch, weights, sums);
    case 3:
      return sum_products<1, 3>(args, rows, count, cut, pitch, weights, sums);
    default:
      return sum_products<1, 4>(args, rows, count, cut, pitch, weights, sums);
  }
}

void tile(const TileArgs& args, int64_t rows, int vectors) {
  alignas(64) float sums[kHighTileRows * kSumsPitch];
  const Cut cut(args.depth);
  int64_t set_up_for = 0;
  for (int64_t first = 0; first < rows; first += kHighTileRows) {
    const int64_t count = std::min(kHighTileRows, rows - first);
    if (count != set_up_for) set_up(cut, count);
    set_up_for = count;
    sum_columns(args, args.rows + first, count, cut, vectors, sums);
    finish(args, sums, first, count, vectors);
  }
  // Other code, and the switch to another thread, is faster without them.
  _tile_release();
}

void round(const float* from, void* to, int64_t n) {
  auto* y = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; i += 2 * kTileSide) {
    const int64_t left = n - i;
    if (left >= 2 * kTileSide) {
      const auto both =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + kTileSide), _mm512_loadu_ps(from + i));
      _mm512_storeu_si512(y + i, reinterpret_cast<const __m512i&>(both));
    } else {
      const auto mask = static_cast<__mmask32>((1U << left) - 1);
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from + i);
      const __m512 high =
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> kTileSide), from + i + kTileSide);
      const auto both = _mm512_cvtne2ps_pbh(high, low);
      _mm512_mask_storeu_epi16(y + i, mask, reinterpret_cast<const __m512i&>(both));
    }
  }
}

}  // namespace
}  // namespace bfloat_tiles
}  // namespace backplane::cpu
HWY_POP_ATTRIBUTES

namespace backplane::cpu {

const HighTiles* high_tiles(Isa isa) {
  static constexpr HighTiles kTiles{bfloat_tiles::tile, bfloat_tiles::round};
  return isa == Isa::kAmx ? &kTiles : nullptr;
}

}  // namespace backplane::cpu
#else
namespace backplane::cpu {
const HighTiles* high_tiles(Isa) { return nullptr; }
}  // namespace backplane::cpu
#endif
