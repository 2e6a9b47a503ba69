#include "plugins/cpu/dense/tile_s16.hpp"

#include <cstring>
#include <utility>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_s16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const IntegerKernels& integer_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kColumns = 16;
constexpr int kTileRows = 4;

template <int kRows>
void whole_tile(const TileS16Args& args, std::int32_t* out, std::ptrdiff_t out_stride) {
  // Sums wrap: in unsigned numbers, where that is defined.
  std::uint32_t sums[kRows][kColumns] = {};
  const std::int16_t* panel = args.panel;
  const std::int16_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    for (std::int64_t p = 0; p < args.pairs; ++p, panel += 2 * kColumns) {
      for (int i = 0; i < kRows; ++i) {
        const std::int16_t* x = rows[i] + args.offset + 2 * p;
        const std::int32_t x0 = x[0];
        const std::int32_t x1 = x[1];
        for (int j = 0; j < kColumns; ++j) {
          sums[i][j] += static_cast<std::uint32_t>(x0 * panel[2 * j] + x1 * panel[2 * j + 1]);
        }
      }
    }
  }
  for (int i = 0; i < kRows; ++i) std::memcpy(out + i * out_stride, sums[i], sizeof(sums[i]));
}

#else
using Tag16 = hn::ScalableTag<std::int16_t>;
using Tag32 = hn::ScalableTag<std::int32_t>;
using Vector32 = hn::Vec<Tag32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag32()));
constexpr int kVectors = 2;
constexpr int kColumns = kVectors * kLanes;
// As many as the registers hold sums of, beside a pair of each row and the panel's vectors.
#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif

template <int kRows>
HWY_ATTR void whole_tile(const TileS16Args& args, std::int32_t* out, std::ptrdiff_t out_stride) {
  const Tag16 d16;
  const Tag32 d32;
  // Where the processor sums pairs itself the second sums stay zero, and the compiler drops them.
  Vector32 sums[kRows][kVectors];
  Vector32 more[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = hn::Zero(d32);
      more[i][j] = hn::Zero(d32);
    }
  }
  const std::int16_t* HWY_RESTRICT panel = args.panel;
  const std::int16_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const std::int16_t* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = rows[i] + args.offset;
    for (std::int64_t p = 0; p < args.pairs; ++p, panel += 2 * kColumns) {
      const auto w0 = hn::LoadU(d16, panel);
      const auto w1 = hn::LoadU(d16, panel + 2 * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        std::int32_t pair;
        std::memcpy(&pair, x[i] + 2 * p, sizeof(pair));
        const auto both = hn::BitCast(d16, hn::Set(d32, pair));
        sums[i][0] = hn::ReorderWidenMulAccumulate(d32, both, w0, sums[i][0], more[i][0]);
        sums[i][1] = hn::ReorderWidenMulAccumulate(d32, both, w1, sums[i][1], more[i][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      const Vector32 sum = hn::RearrangeToOddPlusEven(sums[i][j], more[i][j]);
      hn::StoreU(sum, d32, out + i * out_stride + j * kLanes);
    }
  }
}
#endif

/// Any tile; one whose last columns do not exist is computed whole in a buffer of its own.
template <int kRows>
void tile(const TileS16Args& args) {
  if (args.width == kColumns) {
    whole_tile<kRows>(args, args.out, args.out_stride);
    return;
  }
  HWY_ALIGN std::int32_t out[kRows * kColumns];
  whole_tile<kRows>(args, out, kColumns);
  for (int i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < args.width; ++j) {
      args.out[i * args.out_stride + j] = out[i * kColumns + j];
    }
  }
}

// Plain loops: the compiler makes vectors of this target of them.
void channel_sums(const ChannelSums& args) {
  for (std::int64_t c = 0; c < args.channels; ++c) args.out[c] = 0;
  for (std::int64_t t = 0; t < args.taps; ++t) {
    const std::int16_t* HWY_RESTRICT x = args.rows[t];
    const std::int16_t* HWY_RESTRICT w = args.weights + t * args.channels;
    std::int32_t* HWY_RESTRICT out = args.out;
    for (std::int64_t c = 0; c < args.channels; ++c) {
      out[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(out[c]) +
                                         static_cast<std::uint32_t>(x[c] * w[c]));
    }
  }
}

template <class X>
void widen(const X* x, std::int16_t* y, std::int64_t n, std::int16_t zero) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<std::int16_t>(x[i] - zero);
}

void narrow(const Requantize& args, const std::int32_t* x, std::uint8_t* y, std::int64_t n) {
  // Adding and taking off 1.5 * 2^52 rounds a double to a whole number, to nearest even, in every
  // instruction set; the clamp before keeps it in the range where that holds, and takes NaN away.
  constexpr double kWhole = 6755399441055744.0;
  constexpr double kLimit = 1e6;
  for (std::int64_t i = 0; i < n; ++i) {
    double v = static_cast<double>(x[i]) * (args.scale[i * args.scale_step] * args.factor);
    v = v > -kLimit ? v : -kLimit;
    v = v < kLimit ? v : kLimit;
    v = (v + kWhole) - kWhole;
    std::int32_t whole = static_cast<std::int32_t>(v) + args.zero_point;
    whole = whole > args.least ? whole : args.least;
    whole = whole < args.most ? whole : args.most;
    y[i] = static_cast<std::uint8_t>(whole);
  }
}

template <int... kRows>
IntegerKernels make_table(std::integer_sequence<int, kRows...>) {
  IntegerKernels kernels{};
  kernels.panel_columns = kColumns;
  kernels.max_rows = sizeof...(kRows);
  ((kernels.tile[kRows + 1] = tile<kRows + 1>), ...);
  kernels.channel_sums = channel_sums;
  kernels.widen_u8 = widen<std::uint8_t>;
  kernels.widen_s8 = widen<std::int8_t>;
  kernels.narrow = narrow;
  return kernels;
}

}  // namespace

const IntegerKernels& integer_table() {
  static const IntegerKernels kernels = make_table(std::make_integer_sequence<int, kTileRows>());
  return kernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const IntegerKernels& integer_kernels(Isa isa) { BP_SELECT_TARGET(isa, integer_table()); }

}  // namespace backplane::cpu
#endif
