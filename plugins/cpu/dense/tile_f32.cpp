#include "plugins/cpu/dense/tile_f32.hpp"

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

/// Copies the columns that exist between memory and a whole tile.
template <int kRows, int kVectors>
void copy_edge(const float* from, ptrdiff_t from_stride, float* to, ptrdiff_t to_stride,
               int64_t width) {
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < width; ++j) to[i * to_stride + j] = from[i * from_stride + j];
  }
}

/// Where the sums of a tile begin: at the bias, or at what an earlier part of the depth left.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void start_sums(const TileArgs& args, Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  if (args.first) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vector b = args.bias ? hn::LoadU(d, args.bias + j * kLanes) : hn::Zero(d);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) acc[i][j] = b;
    }
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] = hn::LoadU(d, args.out + i * args.out_stride + j * kLanes);
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
HWY_INLINE HWY_ATTR void add_pairs(const TileArgs& args, Vector (&acc)[kRows][kVectors]) {
  const hn::RebindToUnsigned<Tag> d;
  const auto* HWY_RESTRICT panel = static_cast<const uint32_t*>(args.panel);
  const float* const* rows = args.rows;
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
HWY_INLINE HWY_ATTR void add_products(const TileArgs& args, Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  constexpr int kPrefetched = kPrefetchBytes / static_cast<int>(sizeof(Weight));
  constexpr int kLineVectors = 4 / static_cast<int>(sizeof(Weight));  // vectors of a prefetch
  const auto* HWY_RESTRICT panel = static_cast<const Weight*>(args.panel);
  const float* const* rows = args.rows;
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
HWY_INLINE HWY_ATTR void store_sums(const TileArgs& args, Vector (&acc)[kRows][kVectors]) {
  const Tag d;
  if (!args.last) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        hn::StoreU(acc[i][j], d, args.out + i * args.out_stride + j * kLanes);
      }
    }
    return;
  }
  if (args.residual != nullptr) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        const float* r = args.residual + i * args.residual_stride + j * kLanes;
        acc[i][j] = hn::Add(acc[i][j], hn::LoadU(d, r));
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
      hn::StoreU(y, d, args.out + i * args.out_stride + j * kLanes);
    }
  }
}

/// A tile all of whose columns exist. The parts are inlined, so that the sums stay in registers.
template <class Weight, int kRows, int kVectors>
HWY_ATTR void whole_tile(const TileArgs& args) {
  Vector acc[kRows][kVectors];
  start_sums(args, acc);
#ifdef BP_HAS_PAIR_TILES
  if constexpr (std::is_same_v<Weight, Pair>) {
    add_pairs(args, acc);
  } else
#endif
    add_products<Weight>(args, acc);
  store_sums(args, acc);
}

/// Any tile; one whose last columns do not exist is computed whole in a buffer of its own.
template <class Weight, int kRows, int kVectors>
void tile(const TileArgs& args) {
  constexpr int kWidth = kVectors * kLanes;
  if (HWY_LIKELY(args.width == kWidth)) {
    whole_tile<Weight, kRows, kVectors>(args);
    return;
  }
  HWY_ALIGN float out[kRows * kWidth] = {};
  HWY_ALIGN float residual[kRows * kWidth] = {};
  HWY_ALIGN float bias[kWidth] = {};
  TileArgs whole = args;
  whole.width = kWidth;
  whole.out = out;
  whole.out_stride = kWidth;
  if (args.bias != nullptr) {
    copy_edge<1, kVectors>(args.bias, 0, bias, 0, args.width);
    whole.bias = bias;
  }
  if (!args.first) {
    copy_edge<kRows, kVectors>(args.out, args.out_stride, out, kWidth, args.width);
  }
  if (args.residual != nullptr && args.last) {
    copy_edge<kRows, kVectors>(args.residual, args.residual_stride, residual, kWidth, args.width);
    whole.residual = residual;
    whole.residual_stride = kWidth;
  }
  whole_tile<Weight, kRows, kVectors>(whole);
  copy_edge<kRows, kVectors>(out, kWidth, args.out, args.out_stride, args.width);
}

/// Fills the rows of the tables for panels of `kVectors` vectors, up to `kRows` rows.
template <int kVectors, int... kRows>
void fill(TileKernels& kernels, std::integer_sequence<int, kRows...>) {
  ((kernels.tile[kVectors][kRows + 1] = tile<float, kRows + 1, kVectors>), ...);
#ifdef BP_HAS_HALF_LOADS
  ((kernels.half_tile[kVectors][kRows + 1] = tile<HalfBits, kRows + 1, kVectors>), ...);
  ((kernels.bfloat_tile[kVectors][kRows + 1] = tile<BFloatBits, kRows + 1, kVectors>), ...);
#endif
#ifdef BP_HAS_PAIR_TILES
  ((kernels.pair_tile[kVectors][kRows + 1] = tile<Pair, kRows + 1, kVectors>), ...);
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
