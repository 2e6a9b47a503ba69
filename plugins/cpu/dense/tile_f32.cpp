#include "plugins/cpu/dense/tile_f32.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/half_loads-inl.hpp"
#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const TileKernels& tile_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

// How far ahead the panel is fetched into the first-level cache, in bytes: far enough to hide the second
// level's latency and most of the memory's, near enough not to push the rows out.
constexpr int kPrefetchBytes = 2048;
// Steps of the depth from which on a tile takes so long that asking for its results' memory before costs nothing.
constexpr int64_t kFetchDepth = 64;

/// A tile's vector `j` in memory. Of the last one only so many columns may exist.
template <int kVectors>
struct Columns {
  size_t last;  // columns of the last vector; kLanes: all

  explicit HWY_INLINE Columns(int64_t width)
      : last(static_cast<size_t>(width - (kVectors - 1) * kLanes)) {}
  HWY_INLINE HWY_ATTR Vector load(const float* row, int j) const {
    const Tag d;
    if (j + 1 < kVectors || HWY_LIKELY(last == kLanes)) return hn::LoadU(d, row + j * kLanes);
    return load_some(d, row + j * kLanes, last);
  }
  HWY_INLINE HWY_ATTR void store(Vector v, float* row, int j) const {
    const Tag d;
    if (j + 1 < kVectors || HWY_LIKELY(last == kLanes)) return hn::StoreU(v, d, row + j * kLanes);
    store_some(d, v, row + j * kLanes, last);
  }
};

/// The rows of one of a call's tiles.
struct TileRows {
  const float* const* rows;
  float* out;
  const float* residual;
};

/// Asks for the memory of the results, so that it is there when the products are done.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void fetch_results(const TileRows& at, ptrdiff_t stride) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const float* row = at.out + i * stride;
    __builtin_prefetch(row, 1, 3);
    __builtin_prefetch(row + kVectors * kLanes - 1, 1, 3);
  }
}

/// Where the sums of a tile begin: at the bias, or at what an earlier part of the depth left.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void start_sums(const TileArgs& args, const float* out,
                                    Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  const Columns<kVectors> columns(args.width);
  if (args.first) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vector b = args.bias ? columns.load(args.bias, j) : hn::Zero(d);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) acc[i][j] = b;
    }
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] = columns.load(out + i * args.out_stride, j);
      }
    }
  }
}

#undef BP_HAS_PAIR_TILES
#if HWY_TARGET == HWY_AVX3
#define BP_HAS_PAIR_TILES

struct Pair {
  uint32_t bits;
};

/// As below, of pairs, with AVX512_BF16, for which Highway 1.0 has no operation: Intel, "Intel 64 and IA-32 Architectures
/// Software Developer's Manual", volume 2, VDPBF16PS. Numbers that are denormal count as 0.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void add_pairs(const TileArgs& args, const float* const* rows,
                                   Vector (&acc)[kRows][kVectors]) {
  const hn::RebindToUnsigned<Tag> d;
  const auto* HWY_RESTRICT panel = static_cast<const uint32_t*>(args.panel);
  for (int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const uint32_t* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = reinterpret_cast<const uint32_t*>(rows[i] + args.offset);
#pragma GCC unroll 4
    for (int64_t k = 0; k < args.depth; ++k) {
      hn::Vec<decltype(d)> w[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        w[j] = hn::LoadU(d, panel + j * kLanes);
        __builtin_prefetch(panel + kPrefetchBytes / 4 + j * kLanes, 0, 3);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const auto xi = hn::Set(d, x[i][k]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j)
          asm("vdpbf16ps %2, %1, %0" : "+v"(acc[i][j].raw) : "v"(xi.raw), "v"(w[j].raw));
      }
      panel += kVectors * kLanes;
    }
  }
}
#endif

template <class Weight, int kRows, int kVectors>
HWY_INLINE HWY_ATTR void add_products(const TileArgs& args, const float* const* rows,
                                      Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  constexpr int kPrefetched = kPrefetchBytes / static_cast<int>(sizeof(Weight));
  // Vectors of a prefetch, which fetches 64 bytes.
  constexpr int kLineVectors = std::max(1, 64 / (kLanes * static_cast<int>(sizeof(Weight))));
  const auto* HWY_RESTRICT panel = static_cast<const Weight*>(args.panel);
  const int64_t depth = args.depth;
  for (int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const float* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = rows[i] + args.offset;
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; ++k) {
      Vector w[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        w[j] = load_floats(panel + j * kLanes);
        if (kLanes >= 8 && j % kLineVectors == 0) {
          __builtin_prefetch(panel + kPrefetched + j * kLanes, 0, 3);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vector xi = hn::Set(d, x[i][k]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::MulAdd(xi, w[j], acc[i][j]);
      }
      panel += kVectors * kLanes;
    }
  }
}

/// Writes what is final, with the residual added and within its bounds, or what a later part goes on from.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void store_sums(const TileArgs& args, const TileRows& at,
                                    Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  const Columns<kVectors> columns(args.width);
  if (!args.last) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        columns.store(acc[i][j], at.out + i * args.out_stride, j);
      }
    }
    return;
  }
  if (at.residual != nullptr) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] = hn::Add(acc[i][j], columns.load(at.residual + i * args.residual_stride, j));
      }
    }
  }
  // These keep a NaN.
  const Vector lo = hn::Set(d, args.lo);
  const Vector hi = hn::Set(d, args.hi);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vector y = at_least(lo, at_most(hi, acc[i][j]));
      columns.store(y, at.out + i * args.out_stride, j);
    }
  }
}

/// The parts are inlined, so that the sums stay in registers. Several tiles are one call, since where the depth is small a call would
/// take as long as the products.
template <class Weight, int kRows, int kVectors>
HWY_ATTR void tiles(const TileArgs& args) {
  TileRows at{args.rows, args.out, args.residual};
  for (int64_t more = args.more_tiles;; --more) {
    Vector acc[kRows][kVectors];
    if (args.first && args.depth >= kFetchDepth)
      fetch_results<kRows, kVectors>(at, args.out_stride);
    start_sums(args, at.out, acc);
#ifdef BP_HAS_PAIR_TILES
    if constexpr (std::is_same_v<Weight, Pair>) {
      add_pairs(args, at.rows, acc);
    } else
#endif
      add_products<Weight>(args, at.rows, acc);
    store_sums(args, at, acc);
    if (more == 0) return;
    at.rows += kRows;
    at.out += kRows * args.out_stride;
    if (at.residual != nullptr) at.residual += kRows * args.residual_stride;
  }
}

/// The product of an only row: step k of the depth goes into the sums k % kSets. For all panels alike, so that equal columns
/// of the weights have equal results.
template <class Weight, int kVectors>
HWY_ATTR void lone_row(const TileArgs& args) {
  const Tag d;
  constexpr int kSets = 4;
  constexpr int kPrefetched = kPrefetchBytes / static_cast<int>(sizeof(Weight));
  const auto* HWY_RESTRICT panel = static_cast<const Weight*>(args.panel);
  Vector total[1][kVectors];
  start_sums(args, args.out, total);
  Vector acc[kSets][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kSets; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::Zero(d);
  }
  for (int64_t t = 0; t < args.taps; ++t) {
    const float* x = args.rows[t * args.row_pitch] + args.offset;
    int64_t k = 0;
    for (; k + kSets <= args.depth; k += kSets) {
#pragma GCC unroll 8
      for (int i = 0; i < kSets; ++i) {
        const Vector xi = hn::Set(d, x[k + i]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j)
          acc[i][j] = hn::MulAdd(xi, load_floats(panel + j * kLanes), acc[i][j]);
        __builtin_prefetch(panel + kPrefetched, 0, 3);
        panel += kVectors * kLanes;
      }
    }
    for (; k < args.depth; ++k, panel += kVectors * kLanes) {
      const Vector xi = hn::Set(d, x[k]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        total[0][j] = hn::MulAdd(xi, load_floats(panel + j * kLanes), total[0][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kSets; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) total[0][j] = hn::Add(total[0][j], acc[i][j]);
  }
  store_sums(args, {args.rows, args.out, args.residual}, total);
}

/// Fills the rows of the tables for panels of `kVectors` vectors, up to `kRows` rows.
template <int kVectors, int... kRows>
void fill(TileKernels& kernels, std::integer_sequence<int, kRows...>) {
  kernels.tile[kVectors][0] = lone_row<float, kVectors>;
#ifdef BP_HAS_HALF_LOADS
  kernels.half_tile[kVectors][0] = lone_row<HalfBits, kVectors>;
  kernels.bfloat_tile[kVectors][0] = lone_row<BFloatBits, kVectors>;
#endif
#ifdef BP_HAS_PAIR_TILES
  kernels.pair_tile[kVectors][0] = tiles<Pair, 1, kVectors>;
#endif
  ((kernels.tile[kVectors][kRows + 1] = tiles<float, kRows + 1, kVectors>), ...);
#ifdef BP_HAS_HALF_LOADS
  ((kernels.half_tile[kVectors][kRows + 1] = tiles<HalfBits, kRows + 1, kVectors>), ...);
  ((kernels.bfloat_tile[kVectors][kRows + 1] = tiles<BFloatBits, kRows + 1, kVectors>), ...);
#endif
#ifdef BP_HAS_PAIR_TILES
  ((kernels.pair_tile[kVectors][kRows + 1] = tiles<Pair, kRows + 1, kVectors>), ...);
#endif
  kernels.max_rows[kVectors] = sizeof...(kRows);
}

// Tiles use the registers up without spilling: 32 of them with 16 lanes, 16 otherwise. GCC spills at
// 8 rows of 3 vectors.
TileKernels make_table() {
  TileKernels kernels{};
  kernels.lanes = kLanes;
  fill<1>(kernels, std::make_integer_sequence<int, 8>());
#if HWY_TARGET == HWY_AVX3
  fill<2>(kernels, std::make_integer_sequence<int, 8>());
  fill<3>(kernels, std::make_integer_sequence<int, 6>());
  fill<4>(kernels, std::make_integer_sequence<int, 6>());
  kernels.panel_vectors = 4;
#else
  fill<2>(kernels, std::make_integer_sequence<int, 6>());
  kernels.panel_vectors = 2;
#if HWY_TARGET == HWY_AVX2
  // Three vectors need as many registers, but fewer rows share a panel then; one vector is loaded and multiplied once each, and
  // loads are the slower part.
  fill<3>(kernels, std::make_integer_sequence<int, 4>());
  kernels.takes_one_more = true;
#endif
#endif
  return kernels;
}

}  // namespace

const TileKernels& tile_table() {
  static const TileKernels kernels = make_table();
  return kernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const TileKernels& tile_kernels(Isa isa) { BP_SELECT_TARGET(isa, tile_table()); }

}  // namespace backplane::cpu
#endif
