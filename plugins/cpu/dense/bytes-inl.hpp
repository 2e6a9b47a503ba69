// Bytes that become numbers of 16 bits and floats, and 32-bit sums that become bytes, a group of kColumns channels or
// columns at a time. Included by kernel files, once per target, after <hwy/highway.h>; hence the guard that toggles
// instead of #pragma once.
#if defined(BACKPLANE_CPU_BYTES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_BYTES_INL
#undef BACKPLANE_CPU_BYTES_INL
#else
#define BACKPLANE_CPU_BYTES_INL
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>

#include "plugins/cpu/dense/tile_u8.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kColumns = 16;

inline int lane(int column, int) { return column; }

/// What numbers need to become bytes.
using Finish = FinishU8;
inline const FinishU8& load(const FinishU8& finish) { return finish; }

/// One number of the result.
inline void store_one(float sum, const ColumnsU8& columns, std::int64_t column,
                      const FinishU8& finish, void* y) {
  const float v = std::fma(sum, columns.scale[column], columns.shift[column]);
  if (finish.floats) {
    static_cast<float*>(y)[column] = std::min(finish.hi, std::max(finish.lo, v));
    return;
  }
  const auto least = static_cast<float>(finish.least - finish.zero);
  const auto most = static_cast<float>(finish.most - finish.zero);
  const auto whole = static_cast<std::int32_t>(std::nearbyint(std::min(most, std::max(least, v))));
  static_cast<std::uint8_t*>(y)[column] =
      static_cast<std::uint8_t>((whole + finish.zero) ^ finish.flip);
}

inline void store_sums(const std::int32_t* sums, std::int64_t n, const ColumnsU8& columns,
                       const FinishU8& finish, void* y) {
  if (finish.sums) {
    std::memcpy(y, sums, static_cast<std::size_t>(n) * 4);
    return;
  }
  for (std::int64_t j = 0; j < n; ++j)
    store_one(static_cast<float>(sums[j]), columns, j, finish, y);
}

#else
using Tag16 = hn::ScalableTag<std::int16_t>;
using Tag32 = hn::ScalableTag<std::int32_t>;
using TagF = hn::Rebind<float, Tag32>;
using Tag8Of16 = hn::Rebind<std::uint8_t, Tag16>;
using Vector16 = hn::Vec<Tag16>;
using VectorF = hn::Vec<TagF>;
using Vector32 = hn::Vec<Tag32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag32()));
constexpr int kVectors = 2;
constexpr int kColumns = kVectors * kLanes;
// A float of less than 2^22 that it is added to is rounded to a whole number, to nearest even, in the lowest bits.
constexpr float kWhole = 12582912.0F;
constexpr std::int32_t kWholeBits = 0x4B400000;

/// The order of lanes: four columns of each vector in turn, since that is how two vectors of 32 bits become one of 16,
/// 128 bits at a time, and how pairs are made of two vectors of 16 bits.
inline int lane(int column, int) {
  return column / 8 * 4 + column % 4 + (column % 8 < 4 ? 0 : kLanes);
}

HWY_INLINE Vector16 load_wide(const std::uint8_t* x, hn::Vec<Tag8Of16> flip) {
  return hn::PromoteTo(Tag16(), hn::Xor(hn::LoadU(Tag8Of16(), x), flip));
}

/// The factors of two vectors of sums, and what is added.
struct Scales {
  VectorF scale[kVectors], shift[kVectors];

  HWY_INLINE VectorF of(int vector, Vector32 sums) const {
    return hn::MulAdd(hn::ConvertTo(TagF(), sums), scale[vector], shift[vector]);
  }
};

HWY_INLINE Scales load_scales(const ColumnsU8& columns) {
  const TagF df;
  return {{hn::LoadU(df, columns.scale), hn::LoadU(df, columns.scale + kLanes)},
          {hn::LoadU(df, columns.shift), hn::LoadU(df, columns.shift + kLanes)}};
}

#if HWY_TARGET == HWY_AVX2
/// Columns of a panel of one vector, in their order. With its halves changed over as the second vector, its numbers are where those of the
/// first columns of a whole panel are.
constexpr int kHalfColumns = kLanes;

HWY_INLINE Scales load_half_scales(const ColumnsU8& columns) {
  const TagF df;
  const VectorF scale = hn::LoadU(df, columns.scale), shift = hn::LoadU(df, columns.shift);
  return {{scale, hn::SwapAdjacentBlocks(scale)}, {shift, hn::SwapAdjacentBlocks(shift)}};
}
#endif

#if HWY_TARGET == HWY_AVX2
/// What is kept in registers while numbers become bytes.
struct Finish {
  VectorF most;  // less the zero point
  Vector16 zero;
  hn::Vec<hn::ScalableTag<std::uint8_t>> least, flip;

  HWY_INLINE __m256i clamped(__m256i bytes) const {
    return hn::Xor(hn::Max(decltype(least){bytes}, least), flip).raw;
  }
};

HWY_INLINE Finish load(const FinishU8& from) {
  const hn::ScalableTag<std::uint8_t> d8;
  return {hn::Set(TagF(), static_cast<float>(from.most - from.zero)),
          hn::Set(Tag16(), static_cast<std::int16_t>(from.zero)), hn::Set(d8, from.least),
          hn::Set(d8, from.flip)};
}

/// Whole numbers and the zero point. The processor rounds as the sum with kWhole does; what is too small for 32 bits, and NaN,
/// becomes their least number.
HWY_INLINE Vector16 words(VectorF v0, VectorF v1, const Finish& finish) {
  const auto whole = [&](VectorF v) HWY_ATTR {
    return Vector32{_mm256_cvtps_epi32(hn::Min(finish.most, v).raw)};
  };
  return hn::SaturatedAdd(hn::ReorderDemote2To(Tag16(), whole(v0), whole(v1)), finish.zero);
}

/// The bytes of two pairs of vectors of numbers that are in the order of the lanes: each in the order of the columns.
struct TwoRows {
  hn::Vec<hn::ScalableTag<std::uint8_t>> bytes;

  HWY_INLINE TwoRows(Vector16 a, Vector16 b, const Finish& finish) {
    // Of 64 bits in turn.
    const __m256i packed = _mm256_packus_epi16(a.raw, b.raw);
    bytes.raw = finish.clamped(_mm256_permute4x64_epi64(packed, 0xD8));
  }
  HWY_INLINE hn::Vec<Tag8Of16> first() const { return hn::LowerHalf(bytes); }
  HWY_INLINE hn::Vec<Tag8Of16> second() const { return hn::UpperHalf(Tag8Of16(), bytes); }
};

/// Likewise of one pair.
HWY_INLINE hn::Vec<Tag8Of16> to_bytes(VectorF v0, VectorF v1, const Finish& finish) {
  const Vector16 both = words(v0, v1, finish);
  return TwoRows(both, both, finish).first();
}
#else
/// What is kept in registers while numbers become bytes.
struct Finish {
  VectorF least, most;  // less the zero point
  Vector32 taken;       // off the bits of a rounded number
  hn::Vec<Tag8Of16> flip;
};

HWY_INLINE Finish load(const FinishU8& from) {
  const TagF df;
  return {hn::Set(df, static_cast<float>(from.least - from.zero)),
          hn::Set(df, static_cast<float>(from.most - from.zero)),
          hn::Set(Tag32(), kWholeBits - from.zero), hn::Set(Tag8Of16(), from.flip)};
}

HWY_INLINE Vector32 whole(VectorF v, const Finish& finish) {
  const auto clamped = hn::Min(hn::Max(v, finish.least), finish.most);
  const auto bits = hn::BitCast(Tag32(), hn::Add(clamped, hn::Set(TagF(), kWhole)));
  return hn::Sub(bits, finish.taken);
}

/// The bytes of two vectors of numbers that are in the order of the lanes, in the order of the columns.
HWY_INLINE hn::Vec<Tag8Of16> to_bytes(VectorF v0, VectorF v1, const Finish& finish) {
  const auto words = hn::ReorderDemote2To(Tag16(), whole(v0, finish), whole(v1, finish));
  return hn::Xor(hn::DemoteTo(Tag8Of16(), words), finish.flip);
}
#endif

/// Stores two vectors of 32 bits as columns that follow each other.
HWY_INLINE void store_columns(Vector32 v0, Vector32 v1, std::int64_t width, void* y) {
  const Tag32 d32;
  const hn::FixedTag<std::int32_t, 4> block;
  HWY_ALIGN std::int32_t lanes[kColumns];
  hn::Store(v0, d32, lanes);
  hn::Store(v1, d32, lanes + kLanes);
  HWY_ALIGN std::int32_t rest[kColumns];
  auto* to = width == kColumns ? static_cast<std::int32_t*>(y) : rest;
  for (int i = 0; i < kColumns; i += 4) {
    hn::StoreU(hn::Load(block, lanes + lane(i, kColumns)), block, to + i);
  }
  if (width < kColumns) std::memcpy(y, rest, static_cast<std::size_t>(width) * 4);
}

/// A few bytes, by moves that overlap: that is faster than a call.
HWY_INLINE void copy_part(const std::uint8_t* from, std::int64_t n, std::uint8_t* to) {
  if (kColumns > 16 && n > 16) {
    std::memcpy(to, from, static_cast<std::size_t>(n));
  } else if (kColumns > 8 && n >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + n - 8, from + n - 8, 8);
  } else if (n >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + n - 4, from + n - 4, 4);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

/// The results of `width` columns of two vectors of sums.
HWY_INLINE void store_sums(Vector32 sums0, Vector32 sums1, const Scales& scales,
                           const FinishU8& from, const Finish& finish, std::int64_t width,
                           void* y) {
  const Tag8Of16 d8;
  if (from.sums) {
    store_columns(sums0, sums1, width, y);
    return;
  }
  const VectorF v0 = scales.of(0, sums0);
  const VectorF v1 = scales.of(1, sums1);
  if (from.floats) {
    const TagF df;
    const auto clamped = [&](VectorF v) {
      return hn::BitCast(Tag32(), hn::Min(hn::Max(v, hn::Set(df, from.lo)), hn::Set(df, from.hi)));
    };
    store_columns(clamped(v0), clamped(v1), width, y);
  } else if (width == kColumns) {
    hn::StoreU(to_bytes(v0, v1, finish), d8, static_cast<std::uint8_t*>(y));
  } else {
    HWY_ALIGN std::uint8_t bytes[kColumns];
    hn::Store(to_bytes(v0, v1, finish), d8, bytes);
    copy_part(bytes, width, static_cast<std::uint8_t*>(y));
  }
}

template <int kRows>
using Sums = Vector32[kRows][kVectors];

/// Stores the sums of a tile as its rows of results.
struct TileStore {
  explicit TileStore(const TileU8Args& tile)
      : args(tile),
        row_bytes(tile.out_stride * tile.finish->element_bytes()),
        whole_bytes(tile.width == kColumns && !tile.finish->sums && !tile.finish->floats),
        finish(load(*tile.finish)) {}

  template <int kRows>
  HWY_INLINE void rows(const Sums<kRows>& sums, char* out) const {
    rows<kRows>(sums, load_scales(args.columns), out);
  }
  template <int kRows>
  HWY_INLINE void rows(const Sums<kRows>& sums, const Scales& scales, char* out) const {
    if (HWY_LIKELY(whole_bytes)) {
      whole_rows<kRows>(sums, scales, reinterpret_cast<std::uint8_t*>(out));
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i, out += row_bytes) {
        store_sums(sums[i][0], sums[i][1], scales, *args.finish, finish, args.width, out);
      }
    }
  }

  template <int kRows>
  HWY_INLINE void whole_rows(const Sums<kRows>& sums, const Scales& scales,
                             std::uint8_t* out) const {
    const Tag8Of16 d8;
    int i = 0;
#if HWY_TARGET == HWY_AVX2
#pragma GCC unroll 4
    for (; i + 2 <= kRows; i += 2, out += 2 * row_bytes) {
      const TwoRows y(words(scales.of(0, sums[i][0]), scales.of(1, sums[i][1]), finish),
                      words(scales.of(0, sums[i + 1][0]), scales.of(1, sums[i + 1][1]), finish),
                      finish);
      hn::StoreU(y.first(), d8, out);
      hn::StoreU(y.second(), d8, out + row_bytes);
    }
#endif
#pragma GCC unroll 8
    for (; i < kRows; ++i, out += row_bytes) {
      hn::StoreU(to_bytes(scales.of(0, sums[i][0]), scales.of(1, sums[i][1]), finish), d8, out);
    }
  }

  const TileU8Args& args;
  const std::ptrdiff_t row_bytes;
  // The most frequent case, and of few products the one that takes the time.
  const bool whole_bytes;
  const Finish finish;
};
#endif

/// A row's bytes of the columns that exist, and zeros.
inline void load_weights(const PackRowsU8& args, std::int64_t k, std::int8_t* to) {
  std::memset(to, args.flip, kColumns);  // zeros after the flip
  if (k < args.depth)
    std::memcpy(to, args.weights + k * args.stride, static_cast<std::size_t>(args.width));
  for (int j = 0; j < kColumns; ++j) to[j] = static_cast<std::int8_t>(to[j] ^ args.flip);
}

/// Bytes of `n` channels, less than kColumns, of all taps of a pixel, in rows of kColumns.
inline void copy_channels(const DepthwiseU8Args& args, const std::uint8_t* const* rows,
                          std::int64_t channel, std::int64_t n, std::uint8_t* to) {
  for (std::int64_t t = 0; t < args.taps; ++t, to += kColumns) {
    const std::uint8_t* from = rows[t * args.row_pitch] + channel;
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) std::memcpy(to + i, from + i, 8);
    for (; i + 2 <= n; i += 2) std::memcpy(to + i, from + i, 2);
    if (i < n) to[i] = from[i];
  }
}

}  // namespace
}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
