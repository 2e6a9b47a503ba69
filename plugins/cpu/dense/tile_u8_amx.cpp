// Products of bytes by AMX's tiles: 16 rows of 64 bytes by 64 weights of 16 columns in one instruction, which reads the panels of
// VNNI's kernels as they are: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, TDPBUSD.
#include "plugins/cpu/dense/finish_avx512.hpp"
#include "plugins/cpu/dense/tile_shapes.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu::avx512 {
namespace {

template <int kVectors>
HWY_INLINE void finish_rows(const LinesU8Args& args, const std::int32_t* from, std::int64_t rows,
                            char* out) {
  const Finish finish = load(*args.finish);
  const std::ptrdiff_t row_bytes = args.out_stride * args.finish->element_bytes();
  for (std::int64_t i = 0; i < rows; ++i, from += kColumns, out += row_bytes) {
    __m512i sums[kVectors];
    repeat<kVectors>([&](auto v) __attribute__((always_inline)) {
      sums[v] = _mm512_add_epi32(_mm512_load_si512(from + v * kLanes),
                                 _mm512_loadu_si512(args.columns.start + v * kLanes));
    });
    store_row<kVectors>(sums, args.columns, *args.finish, finish, args.width, out);
  }
}

}  // namespace
}  // namespace backplane::cpu::avx512
HWY_POP_ATTRIBUTES

// Highway 1.0 has no operation for it. Functions, templates and lambdas below are compiled for it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8")
namespace backplane::cpu::avx512 {
namespace {

constexpr std::int64_t kTileRows = 16, kTileBytes = 64;
/// Rows of a pass: two tiles, so that each tile of weights that is loaded serves two products, as each of rows does.
constexpr std::int64_t kPassRows = 2 * kTileRows;

// The tiles of a pass: 0 and 1 are sums of its upper rows by the columns of two vectors, 2 and 3 of its lower rows; 4 and 5 are those
// rows, 6 and 7 the weights. GCC wants the numbers themselves where tiles are named.
constexpr int kFirstOfWeights = 6;
constexpr bool is_lower(int tile) { return tile == 2 || tile == 3 || tile == 5; }

void set_up(std::int64_t upper, std::int64_t lower) {
  TileShapes shapes;
  for (int tile = 0; tile < TileShapes::kTiles; ++tile) {
    const std::int64_t count = tile >= kFirstOfWeights ? kTileRows : is_lower(tile) ? lower : upper;
    shapes.set(tile, count, kTileBytes);
  }
  shapes.use();
}

/// Rows that follow each other, and what they are multiplied by: a panel's columns of one vector or two.
struct Pass {
  const std::uint8_t* upper;
  const std::uint8_t* lower;
  std::ptrdiff_t stride;
  std::int64_t steps;  // of 64 bytes
  const std::int8_t* weights;
  std::ptrdiff_t weight_stride;
};

/// sums[i][j] of the vectors, kColumns numbers from row to row.
template <bool kHasLower, bool kHasRight>
HWY_INLINE void multiply(const Pass& pass, std::int32_t* sums) {
  constexpr std::ptrdiff_t kSumsStride = kColumns * 4;
  _tile_zero(0);
  if constexpr (kHasRight) _tile_zero(1);
  if constexpr (kHasLower) _tile_zero(2);
  if constexpr (kHasLower && kHasRight) _tile_zero(3);
  const std::int8_t* weights = pass.weights;
  for (std::int64_t k = 0; k < pass.steps; ++k, weights += kTileRows * pass.weight_stride) {
    _tile_loadd(6, weights, pass.weight_stride);
    _tile_loadd(4, pass.upper + k * kTileBytes, pass.stride);
    _tile_dpbusd(0, 4, 6);
    if constexpr (kHasLower) {
      _tile_loadd(5, pass.lower + k * kTileBytes, pass.stride);
      _tile_dpbusd(2, 5, 6);
    }
    if constexpr (kHasRight) {
      _tile_loadd(7, weights + kTileBytes, pass.weight_stride);
      _tile_dpbusd(1, 4, 7);
      if constexpr (kHasLower) _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kSumsStride);
  if constexpr (kHasRight) _tile_stored(1, sums + kLanes, kSumsStride);
  if constexpr (kHasLower) _tile_stored(2, sums + kTileRows * kColumns, kSumsStride);
  if constexpr (kHasLower && kHasRight)
    _tile_stored(3, sums + kTileRows * kColumns + kLanes, kSumsStride);
}

template <int kVectors, bool kHasLower>
HWY_INLINE void multiply_panel(const LinesU8Args& args, const std::uint8_t* lines,
                               std::int32_t* sums) {
  constexpr std::ptrdiff_t kStride = kVectors * kTileBytes;
  Pass pass{lines,
            lines + kTileRows * args.stride,
            args.stride,
            args.bytes / kTileBytes,
            static_cast<const std::int8_t*>(args.panel),
            kStride};
  for (int v = 0; v < kVectors; v += 2, pass.weights += 2 * kTileBytes)
    multiply<kHasLower, (kVectors > 1)>(pass, sums + v * kLanes);
}

template <int kVectors>
void multiply_lines(const LinesU8Args& args) {
  alignas(64) std::int32_t sums[kPassRows * kColumns];
  const std::ptrdiff_t row_bytes = args.out_stride * args.finish->element_bytes();
  const std::uint8_t* lines = args.lines;
  char* out = static_cast<char*>(args.out);
  std::int64_t configured = 0;
  for (std::int64_t left = args.rows; left > 0;) {
    const std::int64_t rows = std::min(left, kPassRows);
    const std::int64_t lower = std::max<std::int64_t>(rows - kTileRows, 0);
    if (rows != configured) set_up(rows - lower, lower);
    configured = rows;
    if (lower > 0) {
      multiply_panel<kVectors, true>(args, lines, sums);
    } else {
      multiply_panel<kVectors, false>(args, lines, sums);
    }
    finish_rows<kVectors>(args, sums, rows, out);
    lines += rows * args.stride;
    out += rows * row_bytes;
    left -= rows;
  }
  // Registers that hold nothing are not saved when threads change.
  _tile_release();
}

void multiply_any(const LinesU8Args& args) {
  if (args.columns_of_panel == kColumns) return multiply_lines<4>(args);
  return args.columns_of_panel == 2 * kLanes ? multiply_lines<2>(args) : multiply_lines<1>(args);
}

}  // namespace
}  // namespace backplane::cpu::avx512
HWY_POP_ATTRIBUTES

namespace backplane::cpu {

const KernelsU8* kernels_u8_amx() {
  static const KernelsU8 kernels = [] {
    KernelsU8 k = *kernels_u8_vnni();
    k.line_bytes = avx512::kTileBytes;
    k.lines = avx512::multiply_any;
    return k;
  }();
  return best_isa() == Isa::kAmx ? &kernels : nullptr;
}

}  // namespace backplane::cpu
#else
namespace backplane::cpu {
const KernelsU8* kernels_u8_amx() { return nullptr; }
}  // namespace backplane::cpu
#endif
