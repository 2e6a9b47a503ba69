#include "plugins/cpu/dense/tile_u8.hpp"

#include <algorithm>
#include <cstring>

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

template <int kRows, PanelForm kForm, bool kRaw>
HWY_INLINE HWY_ATTR void sum_tile(const TileU8Args& args, const std::int16_t* HWY_RESTRICT x,
                                  Sums<kRows>& sums) {
  const Tag16 d16;
  const Tag32 d32;
  // Where the processor sums pairs itself the second sums stay zero, and the compiler drops them.
  Sums<kRows> more;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = kRaw ? hn::Zero(d32) : hn::LoadU(d32, args.columns.start + j * kLanes);
      more[i][j] = hn::Zero(d32);
    }
  }
  const Panel<kForm> panel{args.panel, args.kept};
  for (std::int64_t p = 0; p < 2 * args.quads; ++p, x += 2) {
    const auto w0 = panel.load(p * 2 * kColumns);
    const auto w1 = panel.load(p * 2 * kColumns + kColumns);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      std::int32_t pair = 0;
      std::memcpy(&pair, x + i * args.wide_stride, sizeof(pair));
      const auto both = hn::BitCast(d16, hn::Set(d32, pair));
      sums[i][0] = hn::ReorderWidenMulAccumulate(d32, both, w0, sums[i][0], more[i][0]);
      sums[i][1] = hn::ReorderWidenMulAccumulate(d32, both, w1, sums[i][1], more[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = hn::RearrangeToOddPlusEven(sums[i][j], more[i][j]);
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
    sum_tile<kRows, kForm, true>(args, args.wide, sums);
    store_raw<kRows>(sums, args.out);
    return;
  }
  const TileStore store(args);
  const std::int16_t* x = args.wide;
  auto* out = static_cast<char*>(args.out);
  for (std::int64_t t = 0; t <= args.more_tiles; ++t, x += kRows * args.wide_stride) {
    Sums<kRows> sums;
    sum_tile<kRows, kForm, false>(args, x, sums);
    store.rows<kRows>(sums, out);
    out += kRows * store.row_bytes;
  }
}
#endif

void widen(const std::uint8_t* x, std::int64_t n, bool x_signed, std::int16_t* y) {
  widen_bytes(x, n, static_cast<std::uint8_t>(x_signed ? 0x80 : 0), y);
}

template <int kRows, PanelForm kForm, bool kRaw>
WideKernelsU8::Tile find_rows(int rows) {
  if (rows == kRows) return tile<kRows, kForm, kRaw>;
  if constexpr (kRows > 1) return find_rows<kRows - 1, kForm, kRaw>(rows);
  return nullptr;
}

WideKernelsU8::Tile find_tile(int rows, PanelForm form) {
  switch (form) {
    case PanelForm::kBytes:
      return find_rows<kTileRows, PanelForm::kBytes, false>(rows);
    case PanelForm::kBytesKept:
      return find_rows<kTileRows, PanelForm::kBytesKept, false>(rows);
    case PanelForm::kWide:
      break;
  }
  return find_rows<kTileRows, PanelForm::kWide, false>(rows);
}

WideKernelsU8::Tile find_raw_tile(int rows) {
  return find_rows<kTileRows, PanelForm::kWide, true>(rows);
}

int columns_for(std::int64_t) { return kColumns; }
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
template <bool kSigned>
HWY_INLINE Vector16 load_wide(const std::uint8_t* x) {
  if constexpr (kSigned) return load_wide(x, hn::Set(Tag8Of16(), std::uint8_t{0x80}));
  return hn::PromoteTo(Tag16(), hn::LoadU(Tag8Of16(), x));
}

template <int kTaps, bool kSigned, class Row>
HWY_INLINE void depthwise_unit(const DepthwiseU8Args& args, const Finish& finish,
                               const std::int16_t* weights, const ColumnsU8& columns,
                               std::int64_t width, void* out, const Row& row) {
  const Tag16 d16;
  const Tag32 d32;
  Vector32 sums[kVectors];
  Vector32 more[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    sums[j] = hn::LoadU(d32, columns.start + j * kLanes);
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
  store_sums(hn::RearrangeToOddPlusEven(sums[0], more[0]),
             hn::RearrangeToOddPlusEven(sums[1], more[1]), load_scales(columns), *args.finish,
             finish, width, out);
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

void add(const AddU8& args, std::int64_t n) {
  const FinishU8& finish = args.finish;
  const auto least = static_cast<float>(finish.least - finish.zero);
  const auto most = static_cast<float>(finish.most - finish.zero);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const TagF df;
  const auto sum = [&](VectorF a, VectorF b) {
    return hn::MulAdd(a, hn::Set(df, args.a_scale), hn::Mul(b, hn::Set(df, args.b_scale)));
  };
  const Finish to = load(finish);
  for (; i + kColumns <= n; i += kColumns) {
    const Floats a = load_floats(args.a + i, args.a_flip, args.a_zero);
    const Floats b = load_floats(args.b + i, args.b_flip, args.b_zero);
    hn::StoreU(to_bytes(sum(a.v0, b.v0), sum(a.v1, b.v1), to), Tag8Of16(), args.y + i);
  }
#endif
  for (; i < n; ++i) {
    const auto a = static_cast<float>((args.a[i] ^ args.a_flip) - args.a_zero);
    const auto b = static_cast<float>((args.b[i] ^ args.b_flip) - args.b_zero);
    const float sum = std::min(most, std::max(least, std::fma(a, args.a_scale, b * args.b_scale)));
    const auto whole = static_cast<std::int32_t>(std::nearbyint(sum));
    args.y[i] = static_cast<std::uint8_t>((whole + finish.zero) ^ finish.flip);
  }
}

}  // namespace

const KernelsU8& table_u8() {
  static constexpr WideKernelsU8 kWide{widen, find_tile, find_raw_tile};
  static constexpr KernelsU8 kKernels{
      kColumns,       columns_for,    max_rows,  lane,     place,
      pack_rows,      nullptr,        &kWide,    kColumns, depthwise_bytes,
      pack_depthwise, depthwise_lane, depthwise, greatest, add};
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
