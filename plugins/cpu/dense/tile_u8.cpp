#include "plugins/cpu/dense/tile_u8.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_u8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/dense/bytes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const KernelsU8& table_u8();

namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes of rows become numbers of 16 bits, two of which are multiplied by two weights of 16 bits and summed in 32
// bits by one instruction. Weights: per pair of numbers the two of each lane, bytes that are widened by the first tile
// of a panel.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kTileRows = 4;

void widen_bytes(const std::uint8_t* x, std::int64_t n, std::uint8_t flip, std::int16_t* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<std::int16_t>(x[i] ^ flip);
}

template <int kRows, PanelForm kForm, bool kRaw>
void sum_tile(const TileU8Args& args, std::int32_t* out) {
  std::uint32_t sums[kRows][kColumns] = {};  // sums wrap
  if constexpr (!kRaw) {
    for (int i = 0; i < kRows; ++i) std::memcpy(sums[i], args.columns.start, sizeof(sums[i]));
  }
  for (std::int64_t p = 0; p < 2 * args.quads; ++p) {
    std::int16_t widened[2 * kColumns];
    const auto* w = static_cast<const std::int16_t*>(args.panel) + p * 2 * kColumns;
    if constexpr (kForm != PanelForm::kWide) {
      const auto* bytes = static_cast<const std::int8_t*>(args.panel) + p * 2 * kColumns;
      std::copy_n(bytes, 2 * kColumns, widened);
      w = widened;
    }
    if constexpr (kForm == PanelForm::kBytesKept) {
      std::memcpy(args.kept + p * 2 * kColumns, w, sizeof(widened));
    }
    for (int i = 0; i < kRows; ++i) {
      const std::int32_t x0 = args.wide[i * args.wide_stride + 2 * p];
      const std::int32_t x1 = args.wide[i * args.wide_stride + 2 * p + 1];
      for (int j = 0; j < kColumns; ++j) {
        sums[i][j] += static_cast<std::uint32_t>(x0 * w[2 * j] + x1 * w[2 * j + 1]);
      }
    }
  }
  std::memcpy(out, sums, sizeof(sums));
}

template <int kRows, PanelForm kForm, bool kRaw>
void tile(const TileU8Args& args) {
  if constexpr (kRaw) {
    sum_tile<kRows, kForm, true>(args, static_cast<std::int32_t*>(args.out));
    return;
  }
  const std::ptrdiff_t bytes = args.out_stride * args.finish->element_bytes();
  TileU8Args one = args;
  auto* out = static_cast<char*>(args.out);
  for (std::int64_t t = 0; t <= args.more_tiles; ++t, one.wide += kRows * args.wide_stride) {
    std::int32_t sums[kRows * kColumns];
    sum_tile<kRows, kForm, false>(one, sums);
    for (int i = 0; i < kRows; ++i, out += bytes)
      store_sums(sums + i * kColumns, args.width, args.columns, *args.finish, out);
  }
}

#else
// As many as the registers hold sums of, beside a pair of a row and the panel's vectors.
#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif

#if HWY_TARGET != HWY_AVX2
/// Two vectors, in the order of the lanes.
struct Floats {
  VectorF v0, v1;
};

/// Floats of bytes less their zero point, after the flip.
HWY_INLINE Floats load_floats(const std::uint8_t* x, std::uint8_t flip, std::int32_t zero) {
  const Tag16 d16;
  const Tag32 d32;
  const auto words = hn::Sub(load_wide(x, hn::Set(Tag8Of16(), flip)),
                             hn::Set(d16, static_cast<std::int16_t>(zero)));
  const auto nothing = hn::Zero(d16);
  const auto whole0 = hn::ShiftRight<16>(hn::BitCast(d32, hn::InterleaveLower(nothing, words)));
  const auto whole1 =
      hn::ShiftRight<16>(hn::BitCast(d32, hn::InterleaveUpper(d16, nothing, words)));
  return {hn::ConvertTo(TagF(), whole0), hn::ConvertTo(TagF(), whole1)};
}
#endif

template <bool kSigned>
HWY_INLINE Vector16 load_wide(const std::uint8_t* x) {
  if constexpr (kSigned) return load_wide(x, hn::Set(Tag8Of16(), std::uint8_t{0x80}));
  return hn::PromoteTo(Tag16(), hn::LoadU(Tag8Of16(), x));
}

void widen_bytes(const std::uint8_t* x, std::int64_t n, std::uint8_t flip, std::int16_t* y) {
  const Tag16 d16;
  const auto flips = hn::Set(Tag8Of16(), flip);
  std::int64_t i = 0;
  for (; i + kColumns <= n; i += kColumns) hn::StoreU(load_wide(x + i, flips), d16, y + i);
  if (i < n && n >= kColumns) {
    i = n - kColumns;
    hn::StoreU(load_wide(x + i, flips), d16, y + i);
    return;
  }
  // The few channels of a first layer.
  const hn::FixedTag<std::int16_t, 8> eight;
  const hn::Rebind<std::uint8_t, decltype(eight)> bytes;
  for (; i + 8 <= n; i += 8) {
    const auto some = hn::Xor(hn::LoadU(bytes, x + i), hn::Set(bytes, flip));
    hn::StoreU(hn::PromoteTo(eight, some), eight, y + i);
  }
  for (; i < n; ++i) y[i] = static_cast<std::int16_t>(x[i] ^ flip);
}

/// The weights of a pair of numbers.
template <PanelForm kForm>
struct Panel {
  const void* from;
  std::int16_t* kept;

  HWY_INLINE Vector16 load(std::int64_t at) const {
    const Tag16 d16;
    if constexpr (kForm == PanelForm::kWide) {
      return hn::LoadU(d16, static_cast<const std::int16_t*>(from) + at);
    }
    const hn::Rebind<std::int8_t, Tag16> d8;
    const auto w = hn::PromoteTo(d16, hn::LoadU(d8, static_cast<const std::int8_t*>(from) + at));
    if constexpr (kForm == PanelForm::kBytesKept) hn::StoreU(w, d16, kept + at);
    return w;
  }
};

// x86 sums the products of a pair itself. Elsewhere a lane holds those of one number until it is summed with its neighbour,
// so that what a sum starts with comes in after that.
constexpr bool kSumsPairs = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

HWY_INLINE Vector32 first_sums(const std::int32_t* start) {
  return kSumsPairs ? hn::LoadU(Tag32(), start) : hn::Zero(Tag32());
}

HWY_INLINE Vector32 whole_sums(Vector32 sums, Vector32 more, const std::int32_t* start) {
  const Vector32 whole = hn::RearrangeToOddPlusEven(sums, more);
  return kSumsPairs ? whole : hn::Add(whole, hn::LoadU(Tag32(), start));
}

/// kPanel: the vectors of a panel.
template <int kRows, PanelForm kForm, bool kRaw, int kPanel>
HWY_INLINE HWY_ATTR void sum_tile(const TileU8Args& args, const std::int16_t* HWY_RESTRICT x,
                                  Vector32 (&sums)[kRows][kPanel]) {
  const Tag16 d16;
  const Tag32 d32;
  // Where the processor sums pairs itself the second sums stay zero, and the compiler drops them.
  Vector32 more[kRows][kPanel];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPanel; ++j) {
      sums[i][j] = kRaw ? hn::Zero(d32) : first_sums(args.columns.start + j * kLanes);
      more[i][j] = hn::Zero(d32);
    }
  }
  const Panel<kForm> panel{args.panel, args.kept};
  for (std::int64_t p = 0; p < 2 * args.quads; ++p, x += 2) {
    Vector16 w[kPanel];
#pragma GCC unroll 2
    for (int j = 0; j < kPanel; ++j) w[j] = panel.load((p * kPanel + j) * 2 * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      std::int32_t pair = 0;
      std::memcpy(&pair, x + i * args.wide_stride, sizeof(pair));
      const auto both = hn::BitCast(d16, hn::Set(d32, pair));
#pragma GCC unroll 2
      for (int j = 0; j < kPanel; ++j)
        sums[i][j] = hn::ReorderWidenMulAccumulate(d32, both, w[j], sums[i][j], more[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPanel; ++j) {
      sums[i][j] = kRaw ? hn::RearrangeToOddPlusEven(sums[i][j], more[i][j])
                        : whole_sums(sums[i][j], more[i][j], args.columns.start + j * kLanes);
    }
  }
}

template <int kRows>
HWY_INLINE HWY_ATTR void store_raw(const Sums<kRows>& sums, void* out) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      hn::StoreU(sums[i][j], Tag32(), static_cast<std::int32_t*>(out) + i * kColumns + j * kLanes);
    }
  }
}

template <int kRows, PanelForm kForm, bool kRaw>
HWY_ATTR void tile(const TileU8Args& args) {
  if constexpr (kRaw) {
    Sums<kRows> sums;
    sum_tile<kRows, kForm, true, kVectors>(args, args.wide, sums);
    store_raw<kRows>(sums, args.out);
    return;
  }
  const TileStore store(args);
  const std::int16_t* x = args.wide;
  auto* out = static_cast<char*>(args.out);
  for (std::int64_t t = 0; t <= args.more_tiles; ++t, x += kRows * args.wide_stride) {
    Sums<kRows> sums;
    sum_tile<kRows, kForm, false, kVectors>(args, x, sums);
    store.rows<kRows>(sums, out);
    out += kRows * store.row_bytes;
  }
}
#endif

#undef BP_HALF_PANELS
#if HWY_TARGET == HWY_AVX2
#define BP_HALF_PANELS
template <int kRows, PanelForm kForm>
HWY_ATTR void half_tile(const TileU8Args& args) {
  const TileStore store(args);
  const Scales scales = load_half_scales(args.columns);
  const std::int16_t* x = args.wide;
  auto* out = static_cast<char*>(args.out);
  for (std::int64_t t = 0; t <= args.more_tiles; ++t, x += kRows * args.wide_stride) {
    Vector32 half[kRows][1];
    sum_tile<kRows, kForm, false, 1>(args, x, half);
    Sums<kRows> sums;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      sums[i][0] = half[i][0];
      sums[i][1] = hn::SwapAdjacentBlocks(half[i][0]);
    }
    store.rows<kRows>(sums, scales, out);
    out += kRows * store.row_bytes;
  }
}
#endif

void widen(const std::uint8_t* x, std::int64_t n, bool x_signed, std::int16_t* y) {
  widen_bytes(x, n, static_cast<std::uint8_t>(x_signed ? 0x80 : 0), y);
}

void widen_pixels(const PixelRowsU8& rows, bool x_signed, std::int16_t* y) {
  const auto flip = static_cast<std::uint8_t>(x_signed ? 0x80 : 0);
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::int16_t, std::min(16, HWY_MAX_BYTES / 2)> d16;
  HWY_ALIGN std::uint8_t places[16] = {};
  for (std::int64_t i = 0; i < 4 * rows.channels; ++i)
    places[i] = static_cast<std::uint8_t>(i / rows.channels * 4 + i % rows.channels);
  const auto numbers = hn::Load(d8, places);
  const auto flips = hn::Set(d8, flip);
#endif
  for (std::int64_t i = 0; i < rows.count; ++i, y += rows.stride) {
    std::int16_t* to = y;
    for (std::int64_t t = 0; t < rows.taps; ++t, to += rows.pixels * rows.channels) {
      const std::uint8_t* from = rows.table[t * rows.count + i];
      for (std::int64_t p = 0; p < rows.pixels; p += 4) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, rows.pixels - p); ++k)
          widen_bytes(from + 4 * (p + k), rows.channels, flip, to + (p + k) * rows.channels);
#else
        const auto x = hn::Xor(hn::TableLookupBytes(hn::LoadU(d8, from + 4 * p), numbers), flips);
        std::int16_t* pixels = to + p * rows.channels;
#if HWY_MAX_BYTES == 16
        hn::StoreU(hn::PromoteTo(d16, hn::LowerHalf(x)), d16, pixels);
        hn::StoreU(hn::PromoteTo(d16, hn::UpperHalf(hn::Half<decltype(d8)>(), x)), d16, pixels + 8);
#else
        hn::StoreU(hn::PromoteTo(d16, x), d16, pixels);
#endif
#endif
      }
    }
  }
}

template <int kRows, PanelForm kForm, bool kRaw>
WideKernelsU8::Tile find_rows(int rows, [[maybe_unused]] int columns) {
  if (rows == kRows) {
#ifdef BP_HALF_PANELS
    if (columns == kHalfColumns && !kRaw) return half_tile<kRows, kForm>;
#endif
    return tile<kRows, kForm, kRaw>;
  }
  if constexpr (kRows > 1) return find_rows<kRows - 1, kForm, kRaw>(rows, columns);
  return nullptr;
}

WideKernelsU8::Tile find_tile(int rows, int columns, PanelForm form) {
  switch (form) {
    case PanelForm::kBytes:
      return find_rows<kTileRows, PanelForm::kBytes, false>(rows, columns);
    case PanelForm::kBytesKept:
      return find_rows<kTileRows, PanelForm::kBytesKept, false>(rows, columns);
    case PanelForm::kWide:
      break;
  }
  return find_rows<kTileRows, PanelForm::kWide, false>(rows, columns);
}

WideKernelsU8::Tile find_raw_tile(int rows) {
  return find_rows<kTileRows, PanelForm::kWide, true>(rows, kColumns);
}

int columns_for([[maybe_unused]] std::int64_t width) {
#ifdef BP_HALF_PANELS
  if (width <= kHalfColumns) return kHalfColumns;
#endif
  return kColumns;
}
int panel_lane(int column, int columns) {
  return columns == kColumns ? lane(column, columns) : column;
}
int max_rows(int) { return kTileRows; }
int place(int lane, int k, int columns) { return (k / 2 * columns + lane) * 2 + k % 2; }

void pack_rows(const PackRowsU8& args) {
  int lanes[kColumns];
  for (int j = 0; j < kColumns; ++j) lanes[j] = lane(j, kColumns);
  std::int32_t sums[kColumns] = {};
  auto* to = static_cast<std::int8_t*>(args.panel);
  for (std::int64_t k = 0; k < (args.depth + 3) / 4 * 4; k += 2, to += 2 * kColumns) {
    std::int8_t rows[2][kColumns];
    for (int i = 0; i < 2; ++i) load_weights(args, k + i, rows[i]);
    for (int j = 0; j < kColumns; ++j) {
      sums[j] += rows[0][j] + rows[1][j];
      to[2 * lanes[j]] = rows[0][j];
      to[2 * lanes[j] + 1] = rows[1][j];
    }
  }
  std::memcpy(args.sums, sums, static_cast<std::size_t>(args.width) * 4);
}

// Channel by channel, two taps at a time. A unit of kColumns channels: per pair of taps the two weights of each lane.
std::int64_t tap_pairs(std::int64_t taps) { return (taps + 1) / 2; }

std::int64_t depthwise_bytes(std::int64_t taps, std::int64_t channels) {
  return tap_pairs(taps) * 2 * ((channels + kColumns - 1) / kColumns * kColumns) *
         static_cast<std::int64_t>(sizeof(std::int16_t));
}

int depthwise_lane(int channel) {
  return channel / kColumns * kColumns + lane(channel % kColumns, kColumns);
}

void pack_depthwise(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    void* packed) {
  auto* to = static_cast<std::int16_t*>(packed);
  std::memset(packed, 0, static_cast<std::size_t>(depthwise_bytes(taps, channels)));
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t unit = c / kColumns * tap_pairs(taps) * 2 * kColumns;
    const int at = lane(static_cast<int>(c % kColumns), kColumns);
    for (std::int64_t t = 0; t < taps; ++t) {
      to[unit + (t / 2 * kColumns + at) * 2 + t % 2] = weights[c * taps + t];
    }
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
/// The channels of a unit of a pixel; the bytes of tap t are at row(t).
template <int kTaps, bool kSigned, class Row>
void depthwise_unit(const DepthwiseU8Args& args, const Finish&, const std::int16_t* weights,
                    const ColumnsU8& columns, std::int64_t width, void* out, const Row& row) {
  std::int32_t sums[kColumns];
  std::memcpy(sums, columns.start, sizeof(sums));
  for (std::int64_t t = 0; t < args.taps; ++t) {
    const std::uint8_t* x = row(t);
    for (std::int64_t c = 0; c < width; ++c) {
      sums[c] += (x[c] ^ (kSigned ? 0x80 : 0)) * weights[(t / 2 * kColumns + c) * 2 + t % 2];
    }
  }
  store_sums(sums, width, columns, *args.finish, out);
}
#else
template <int kTaps, bool kSigned, class Row>
HWY_INLINE void depthwise_unit(const DepthwiseU8Args& args, const Finish& finish,
                               const std::int16_t* weights, const ColumnsU8& columns,
                               std::int64_t width, void* out, const Row& row) {
  const Tag16 d16;
  const Tag32 d32;
  Vector32 sums[kVectors];
  Vector32 more[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    sums[j] = first_sums(columns.start + j * kLanes);
    more[j] = hn::Zero(d32);
  }
  const std::int64_t taps = kTaps > 0 ? kTaps : args.taps;
#pragma GCC unroll 8
  for (std::int64_t t = 0; t < taps; t += 2, weights += 2 * kColumns) {
    const auto a = load_wide<kSigned>(row(t));
    // What follows the last tap meets weights of zero.
    const auto b = t + 1 < taps ? load_wide<kSigned>(row(t + 1)) : a;
    sums[0] = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d16, a, b),
                                            hn::LoadU(d16, weights), sums[0], more[0]);
    sums[1] = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d16, a, b),
                                            hn::LoadU(d16, weights + kColumns), sums[1], more[1]);
  }
  store_sums(whole_sums(sums[0], more[0], columns.start),
             whole_sums(sums[1], more[1], columns.start + kLanes), load_scales(columns),
             *args.finish, finish, width, out);
}
#endif

/// kTaps: args.taps, or 0 for any number.
template <int kTaps, bool kSigned>
HWY_ATTR void depthwise_pixels(const DepthwiseU8Args& args) {
  const std::int64_t element = args.finish->element_bytes();
  const std::int64_t unit_weights = tap_pairs(args.taps) * 2 * kColumns;
  const Finish finish = load(*args.finish);
  HWY_ALIGN std::uint8_t tail[kMostTapsU8 * kColumns];
  std::memset(tail, 0, static_cast<std::size_t>(args.taps * kColumns));
  for (std::int64_t c = 0; c < args.channels; c += kColumns) {
    const auto* weights =
        static_cast<const std::int16_t*>(args.weights) + c / kColumns * unit_weights;
    const ColumnsU8 columns = args.columns.from(c);
    const std::int64_t width = std::min<std::int64_t>(kColumns, args.channels - c);
    for (std::int64_t p = 0; p < args.pixels; ++p) {
      const std::uint8_t* const* rows = args.rows + p;
      auto* out = static_cast<char*>(args.out) + (p * args.channels + c) * element;
      if (width == kColumns) {
        const auto row = [&](std::int64_t t) { return rows[t * args.row_pitch] + c; };
        depthwise_unit<kTaps, kSigned>(args, finish, weights, columns, width, out, row);
      } else {
        copy_channels(args, rows, c, width, tail);
        const auto row = [&](std::int64_t t) { return tail + t * kColumns; };
        depthwise_unit<kTaps, kSigned>(args, finish, weights, columns, width, out, row);
      }
    }
  }
}

void depthwise(const DepthwiseU8Args& args, bool x_signed) {
  if (args.taps == 9) {
    x_signed ? depthwise_pixels<9, true>(args) : depthwise_pixels<9, false>(args);
  } else {
    x_signed ? depthwise_pixels<0, true>(args) : depthwise_pixels<0, false>(args);
  }
}

template <class T>
void greatest_of(const std::uint8_t* const* rows, std::ptrdiff_t row_pitch, std::int64_t taps, T* y,
                 std::int64_t channels) {
  std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; c + lanes <= channels; c += lanes) {
    auto best = hn::LoadU(d, reinterpret_cast<const T*>(rows[0]) + c);
    for (std::int64_t t = 1; t < taps; ++t) {
      best = hn::Max(best, hn::LoadU(d, reinterpret_cast<const T*>(rows[t * row_pitch]) + c));
    }
    hn::StoreU(best, d, y + c);
  }
#endif
  for (; c < channels; ++c) {
    T best = reinterpret_cast<const T*>(rows[0])[c];
    for (std::int64_t t = 1; t < taps; ++t) {
      best = std::max(best, reinterpret_cast<const T*>(rows[t * row_pitch])[c]);
    }
    y[c] = best;
  }
}

void greatest(const std::uint8_t* const* rows, std::ptrdiff_t row_pitch, std::int64_t taps,
              std::uint8_t* y, std::int64_t channels, bool is_signed) {
  if (is_signed) {
    greatest_of(rows, row_pitch, taps, reinterpret_cast<std::int8_t*>(y), channels);
  } else {
    greatest_of(rows, row_pitch, taps, y, channels);
  }
}

#if HWY_TARGET == HWY_AVX2
/// Eight bytes less their zero point, as floats.
template <bool kSigned>
HWY_INLINE VectorF eight_floats(const std::uint8_t* x, Vector32 zero) {
  const hn::Rebind<std::conditional_t<kSigned, std::int8_t, std::uint8_t>, Tag32> d8;
  const auto bytes = hn::LoadU(d8, reinterpret_cast<const hn::TFromD<decltype(d8)>*>(x));
  return hn::ConvertTo(TagF(), hn::Sub(hn::PromoteTo(Tag32(), bytes), zero));
}

/// Whole vectors of bytes; returns how many are done. The flip of signed bytes adds 128, as leaving it out of the zero point does.
template <bool kSignedA, bool kSignedB>
HWY_ATTR std::int64_t add_vectors(const AddU8& args, std::int64_t n) {
  const Tag32 d32;
  const TagF df;
  const auto a_zero = hn::Set(d32, args.a_zero - (kSignedA ? 128 : 0));
  const auto b_zero = hn::Set(d32, args.b_zero - (kSignedB ? 128 : 0));
  const auto a_scale = hn::Set(df, args.a_scale), b_scale = hn::Set(df, args.b_scale);
  const Finish finish = load(args.finish);
  const auto sum = [&](std::int64_t i) HWY_ATTR {
    return hn::MulAdd(eight_floats<kSignedA>(args.a + i, a_zero), a_scale,
                      hn::Mul(eight_floats<kSignedB>(args.b + i, b_zero), b_scale));
  };
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    // Packed as they come, four of each vector in turn.
    const __m256i bytes = _mm256_packus_epi16(words(sum(i), sum(i + 8), finish).raw,
                                              words(sum(i + 16), sum(i + 24), finish).raw);
    const auto in_order =
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.y + i), finish.clamped(in_order));
  }
  return i;
}

std::int64_t add_vectors(const AddU8& args, std::int64_t n) {
  if (args.a_flip != 0)
    return args.b_flip != 0 ? add_vectors<true, true>(args, n) : add_vectors<true, false>(args, n);
  return args.b_flip != 0 ? add_vectors<false, true>(args, n) : add_vectors<false, false>(args, n);
}
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
std::int64_t add_vectors(const AddU8&, std::int64_t) { return 0; }
#else
std::int64_t add_vectors(const AddU8& args, std::int64_t n) {
  const TagF df;
  const auto sum = [&](VectorF a, VectorF b) {
    return hn::MulAdd(a, hn::Set(df, args.a_scale), hn::Mul(b, hn::Set(df, args.b_scale)));
  };
  const Finish to = load(args.finish);
  std::int64_t i = 0;
  for (; i + kColumns <= n; i += kColumns) {
    const Floats a = load_floats(args.a + i, args.a_flip, args.a_zero);
    const Floats b = load_floats(args.b + i, args.b_flip, args.b_zero);
    hn::StoreU(to_bytes(sum(a.v0, b.v0), sum(a.v1, b.v1), to), Tag8Of16(), args.y + i);
  }
  return i;
}
#endif

void add(const AddU8& args, std::int64_t n) {
  const FinishU8& finish = args.finish;
  const auto least = static_cast<float>(finish.least - finish.zero);
  const auto most = static_cast<float>(finish.most - finish.zero);
  for (std::int64_t i = add_vectors(args, n); i < n; ++i) {
    const auto a = static_cast<float>((args.a[i] ^ args.a_flip) - args.a_zero);
    const auto b = static_cast<float>((args.b[i] ^ args.b_flip) - args.b_zero);
    const float sum = std::min(most, std::max(least, std::fma(a, args.a_scale, b * args.b_scale)));
    const auto whole = static_cast<std::int32_t>(std::nearbyint(sum));
    args.y[i] = static_cast<std::uint8_t>((whole + finish.zero) ^ finish.flip);
  }
}

}  // namespace

const KernelsU8& table_u8() {
  static constexpr WideKernelsU8 kWide{widen, widen_pixels, find_tile, find_raw_tile};
  static constexpr KernelsU8 kKernels{
      kColumns,       columns_for,    max_rows,  panel_lane, place,
      pack_rows,      nullptr,        &kWide,    kColumns,   depthwise_bytes,
      pack_depthwise, depthwise_lane, depthwise, greatest,   add};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const KernelsU8& kernels_u8_pairs(Isa isa) { BP_SELECT_TARGET(isa, table_u8()); }

std::int64_t tap_quad_bytes(std::int64_t taps, std::int64_t channels, int columns) {
  const std::int64_t quads = (taps + kTapsOfQuad - 1) / kTapsOfQuad;
  return quads * kTapsOfQuad * columns * ((channels + columns - 1) / columns);
}

void pack_tap_quads(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    const TapUnit& unit, void* packed) {
  const std::int64_t columns = unit.columns, step = kTapsOfQuad * columns;
  std::memset(packed, 0, static_cast<std::size_t>(tap_quad_bytes(taps, channels, unit.columns)));
  for (std::int64_t c = 0; c < channels; ++c) {
    std::int8_t* const to = static_cast<std::int8_t*>(packed) +
                            c / columns * tap_quad_bytes(taps, columns, unit.columns) +
                            unit.lane(static_cast<int>(c % columns), unit.columns) * kTapsOfQuad;
    for (std::int64_t t = 0; t < taps; ++t)
      to[t / kTapsOfQuad * step + t % kTapsOfQuad] = weights[c * taps + t];
  }
}

namespace {

/// Those that multiply bytes; nullptr where there are none.
const KernelsU8* kernels_of_bytes(Isa isa) {
  if (isa == Isa::kAmx) return kernels_u8_amx();
  if (isa == Isa::kAvx512) return kernels_u8_vnni();
  return isa == Isa::kAvx2 ? kernels_u8_avxvnni() : nullptr;
}

}  // namespace

const KernelsU8& kernels_u8(Isa isa) {
  const KernelsU8* const bytes = kernels_of_bytes(isa);
  return bytes != nullptr ? *bytes : kernels_u8_pairs(isa);
}

std::string kernels_key(Isa isa) {
  const char* const form = kernels_of_bytes(isa) != nullptr ? "bytes " : "pairs ";
  return form + std::to_string(static_cast<int>(isa));
}

}  // namespace backplane::cpu
#endif
