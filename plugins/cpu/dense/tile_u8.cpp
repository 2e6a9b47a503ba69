#include "plugins/cpu/dense/tile_u8.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/tile_u8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const KernelsU8& table_u8();

namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A quad becomes two pairs of 16 bits, the bytes at even places and those at odd ones, whose products with
// weights of 16 bits are summed in 32 bits by one instruction. Weights: per quad the even pair of each
// column, then the odd ones.
constexpr std::uint32_t kEven = 0x00FF00FF;
constexpr std::uint32_t kSigns = 0x80808080;

template <bool kSigned>
std::uint32_t load_quad(const std::uint8_t* x) {
  std::uint32_t quad = 0;
  std::memcpy(&quad, x, sizeof(quad));
  return kSigned ? quad ^ kSigns : quad;
}

/// One number of the result.
void store_one(float sum, const ColumnsU8& columns, std::int64_t column, const FinishU8& finish,
               void* y) {
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

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kColumns = 16;
constexpr int kTileRows = 4;

template <int kRows, bool kSigned>
void sum_tile(const TileU8Args& args, std::int32_t* out) {
  for (int i = 0; i < kRows; ++i) std::memcpy(out + i * kColumns, args.columns.start, kColumns * 4);
  const auto* panel = static_cast<const std::int16_t*>(args.panel);
  const std::uint8_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    for (std::int64_t q = 0; q < args.quads; ++q, panel += 4 * kColumns) {
      for (int i = 0; i < kRows; ++i) {
        const std::uint32_t quad = load_quad<kSigned>(rows[i] + args.offset + 4 * q);
        const std::uint32_t even = quad & kEven;
        const std::uint32_t odd = quad >> 8 & kEven;
        for (int j = 0; j < kColumns; ++j) {
          const auto product = [](std::uint32_t pair, const std::int16_t* w) {
            return static_cast<std::int32_t>(pair & 0xFFFF) * w[0] +
                   static_cast<std::int32_t>(pair >> 16) * w[1];
          };
          const std::int32_t sum =
              product(even, panel + 2 * j) + product(odd, panel + 2 * (kColumns + j));
          std::int32_t& to = out[i * kColumns + j];
          to = static_cast<std::int32_t>(static_cast<std::uint32_t>(to) +
                                         static_cast<std::uint32_t>(sum));
        }
      }
    }
  }
}

void store_sums(const std::int32_t* sums, std::int64_t n, const ColumnsU8& columns,
                const FinishU8& finish, void* y) {
  for (std::int64_t j = 0; j < n; ++j)
    store_one(static_cast<float>(sums[j]), columns, j, finish, y);
}

#else
using Tag16 = hn::ScalableTag<std::int16_t>;
using Tag32 = hn::ScalableTag<std::int32_t>;
using TagF = hn::Rebind<float, Tag32>;
using Tag8 = hn::Rebind<std::uint8_t, Tag32>;
using VectorF = hn::Vec<TagF>;
using Vector32 = hn::Vec<Tag32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag32()));
constexpr int kVectors = 2;
constexpr int kColumns = kVectors * kLanes;
// As many as the registers hold sums of, beside the pairs of a row and the panel's vectors.
#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

/// Floats of bytes less their zero point, after the flip.
HWY_INLINE VectorF load_bytes(const std::uint8_t* x, std::uint8_t flip, std::int32_t zero) {
  const Tag8 d8;
  const Tag32 d32;
  const auto bytes = hn::Xor(hn::LoadU(d8, x), hn::Set(d8, flip));
  return hn::ConvertTo(TagF(), hn::Sub(hn::PromoteTo(d32, bytes), hn::Set(d32, zero)));
}

/// The results of a vector of sums, of the columns from `column` on.
HWY_INLINE void store_vector(VectorF sums, const ColumnsU8& columns, std::int64_t column,
                             const FinishU8& finish, void* y) {
  const TagF df;
  const Tag32 d32;
  const Tag8 d8;
  const VectorF v = hn::MulAdd(sums, hn::LoadU(df, columns.scale + column),
                               hn::LoadU(df, columns.shift + column));
  if (finish.floats) {
    hn::StoreU(hn::Min(hn::Max(v, hn::Set(df, finish.lo)), hn::Set(df, finish.hi)), df,
               static_cast<float*>(y) + column);
    return;
  }
  const auto least = static_cast<float>(finish.least - finish.zero);
  const auto most = static_cast<float>(finish.most - finish.zero);
  const auto whole = hn::NearestInt(hn::Min(hn::Max(v, hn::Set(df, least)), hn::Set(df, most)));
  const auto bytes = hn::DemoteTo(d8, hn::Add(whole, hn::Set(d32, finish.zero)));
  hn::StoreU(hn::Xor(bytes, hn::Set(d8, finish.flip)), d8, static_cast<std::uint8_t*>(y) + column);
}

void store_sums(const std::int32_t* sums, std::int64_t n, const ColumnsU8& columns,
                const FinishU8& finish, void* y) {
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    store_vector(hn::ConvertTo(TagF(), hn::LoadU(Tag32(), sums + j)), columns, j, finish, y);
  }
  for (; j < n; ++j) store_one(static_cast<float>(sums[j]), columns, j, finish, y);
}

template <int kRows, bool kSigned>
HWY_ATTR void sum_tile(const TileU8Args& args, std::int32_t* out) {
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
  const auto* HWY_RESTRICT panel = static_cast<const std::int16_t*>(args.panel);
  const std::uint8_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const std::uint8_t* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = rows[i] + args.offset;
    for (std::int64_t q = 0; q < args.quads; ++q, panel += 4 * kColumns) {
      const auto even0 = hn::LoadU(d16, panel);
      const auto even1 = hn::LoadU(d16, panel + 2 * kLanes);
      const auto odd0 = hn::LoadU(d16, panel + 4 * kLanes);
      const auto odd1 = hn::LoadU(d16, panel + 6 * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const std::uint32_t quad = load_quad<kSigned>(x[i] + 4 * q);
        const auto all = hn::Set(d32, static_cast<std::int32_t>(quad));
        const auto mask = hn::Set(d32, static_cast<std::int32_t>(kEven));
        const auto even = hn::BitCast(d16, hn::And(all, mask));
        const auto odd = hn::BitCast(d16, hn::And(hn::ShiftRight<8>(all), mask));
        sums[i][0] = hn::ReorderWidenMulAccumulate(d32, even, even0, sums[i][0], more[i][0]);
        sums[i][1] = hn::ReorderWidenMulAccumulate(d32, even, even1, sums[i][1], more[i][1]);
        sums[i][0] = hn::ReorderWidenMulAccumulate(d32, odd, odd0, sums[i][0], more[i][0]);
        sums[i][1] = hn::ReorderWidenMulAccumulate(d32, odd, odd1, sums[i][1], more[i][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      const Vector32 start = hn::LoadU(d32, args.columns.start + j * kLanes);
      const Vector32 sum = hn::RearrangeToOddPlusEven(sums[i][j], more[i][j]);
      hn::StoreU(hn::Add(sum, start), d32, out + (i * kVectors + j) * kLanes);
    }
  }
}
#endif

template <int kRows, bool kSigned>
void tile(const TileU8Args& args) {
  HWY_ALIGN std::int32_t sums[kRows * kColumns];
  sum_tile<kRows, kSigned>(args, sums);
  const std::ptrdiff_t bytes = args.out_stride * args.finish->element_bytes();
  for (int i = 0; i < kRows; ++i) {
    char* out = static_cast<char*>(args.out) + i * bytes;
    if (args.finish->sums) {
      std::memcpy(out, sums + i * kColumns, static_cast<std::size_t>(args.width) * 4);
    } else {
      store_sums(sums + i * kColumns, args.width, args.columns, *args.finish, out);
    }
  }
}

template <int kRows>
KernelsU8::Tile find_rows(int rows, bool x_signed) {
  if (rows == kRows) return x_signed ? tile<kRows, true> : tile<kRows, false>;
  if constexpr (kRows > 1) return find_rows<kRows - 1>(rows, x_signed);
  return nullptr;
}

KernelsU8::Tile find_tile(int rows, int, bool x_signed) {
  return find_rows<kTileRows>(rows, x_signed);
}

int columns_for(std::int64_t) { return kColumns; }
int max_rows(int) { return kTileRows; }
int lane(int column, int) { return column; }
int place(int lane, int k, int columns) { return (k % 2 * columns + lane) * 2 + k / 2; }

// Channel by channel in floats: sums of up to 128 products of bytes are whole numbers that floats hold.
std::int64_t depthwise_bytes(std::int64_t taps, std::int64_t channels) {
  return taps * channels * 4;
}

void pack_depthwise(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    void* packed) {
  auto* to = static_cast<float*>(packed);
  for (std::int64_t t = 0; t < taps; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) to[t * channels + c] = weights[c * taps + t];
  }
}

int depthwise_lane(int channel) { return channel; }

void depthwise_pixel(const DepthwiseU8Args& args, std::uint8_t flip, std::int64_t pixel) {
  const auto* weights = static_cast<const float*>(args.weights);
  const std::uint8_t* const* rows = args.rows + pixel;
  void* out = static_cast<char*>(args.out) + pixel * args.channels * args.finish->element_bytes();
  std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const TagF df;
  for (; c + kLanes <= args.channels; c += kLanes) {
    VectorF sum = hn::ConvertTo(df, hn::LoadU(Tag32(), args.columns.start + c));
    for (std::int64_t t = 0; t < args.taps; ++t) {
      const VectorF x = load_bytes(rows[t * args.row_pitch] + c, flip, 0);
      sum = hn::MulAdd(x, hn::LoadU(df, weights + t * args.channels + c), sum);
    }
    store_vector(sum, args.columns, c, *args.finish, out);
  }
#endif
  for (; c < args.channels; ++c) {
    auto sum = static_cast<float>(args.columns.start[c]);
    for (std::int64_t t = 0; t < args.taps; ++t) {
      const auto x = static_cast<std::uint8_t>(rows[t * args.row_pitch][c] ^ flip);
      sum += static_cast<float>(x) * weights[t * args.channels + c];
    }
    store_one(sum, args.columns, c, *args.finish, out);
  }
}

void depthwise(const DepthwiseU8Args& args, bool x_signed) {
  const auto flip = static_cast<std::uint8_t>(x_signed ? 0x80 : 0);
  for (std::int64_t p = 0; p < args.pixels; ++p) depthwise_pixel(args, flip, p);
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
  const Tag32 d32;
  const TagF df;
  const Tag8 d8;
  for (; i + kLanes <= n; i += kLanes) {
    const VectorF a = load_bytes(args.a + i, args.a_flip, args.a_zero);
    const VectorF b = load_bytes(args.b + i, args.b_flip, args.b_zero);
    const auto sum =
        hn::MulAdd(a, hn::Set(df, args.a_scale), hn::Mul(b, hn::Set(df, args.b_scale)));
    const auto whole = hn::NearestInt(hn::Min(hn::Max(sum, hn::Set(df, least)), hn::Set(df, most)));
    const auto bytes = hn::DemoteTo(d8, hn::Add(whole, hn::Set(d32, finish.zero)));
    hn::StoreU(hn::Xor(bytes, hn::Set(d8, finish.flip)), d8, args.y + i);
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
  static constexpr KernelsU8 kKernels{
      kColumns,  2,         columns_for, max_rows,        lane,           place,
      nullptr,   find_tile, 1,           depthwise_bytes, pack_depthwise, depthwise_lane,
      depthwise, greatest,  add};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const KernelsU8& kernels_u8_pairs(Isa isa) { BP_SELECT_TARGET(isa, table_u8()); }

bool multiplies_bytes(Isa isa) { return isa == Isa::kAvx512 && kernels_u8_vnni() != nullptr; }

const KernelsU8& kernels_u8(Isa isa) {
  return multiplies_bytes(isa) ? *kernels_u8_vnni() : kernels_u8_pairs(isa);
}

std::string kernels_key(Isa isa) {
  return multiplies_bytes(isa) ? "vnni" : "pairs " + std::to_string(static_cast<int>(isa));
}

}  // namespace backplane::cpu
#endif
