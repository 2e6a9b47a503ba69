#include "plugins/cpu/dense/winograd_u8.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/winograd_u8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/dense/bytes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const WinogradKernelsU8& winograd_table_u8();

namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
struct Number {
  std::int32_t value;
};
Number operator+(Number a, Number b) {
  return {static_cast<std::int32_t>(static_cast<std::uint32_t>(a.value) +
                                    static_cast<std::uint32_t>(b.value))};
}
Number operator-(Number a, Number b) {
  return {static_cast<std::int32_t>(static_cast<std::uint32_t>(a.value) -
                                    static_cast<std::uint32_t>(b.value))};
}
#else
template <class V>
struct Number {
  // Constructors that are implied are not compiled for the target.
  HWY_ATTR Number() {}
  HWY_ATTR Number(V of) : value(of) {}
  V value;
};
template <class V>
HWY_INLINE Number<V> operator+(Number<V> a, Number<V> b) {
  return {hn::Add(a.value, b.value)};
}
template <class V>
HWY_INLINE Number<V> operator-(Number<V> a, Number<V> b) {
  return {hn::Sub(a.value, b.value)};
}
#endif

/// B^T d of four numbers `step` apart.
template <class T>
HWY_INLINE void transform_input(T* d, int step) {
  const T d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
  d[0] = d0 - d2;
  d[step] = d1 + d2;
  d[2 * step] = d2 - d1;
  d[3 * step] = d1 - d3;
}

template <class T>
HWY_INLINE void transform_tile(T (&d)[kWinogradPointsU8]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) transform_input(d + i, 4);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) transform_input(d + 4 * i, 1);
}

/// A^T m A: the two rows of two pixels in y.
template <class T>
HWY_INLINE void transform_sums(const T (&m)[kWinogradPointsU8], T (&y)[4]) {
  T rows[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = m[i] + m[4 + i] + m[8 + i];
    rows[4 + i] = m[4 + i] - m[8 + i] - m[12 + i];
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    y[2 * i] = rows[4 * i] + rows[4 * i + 1] + rows[4 * i + 2];
    y[2 * i + 1] = rows[4 * i + 1] - rows[4 * i + 2] - rows[4 * i + 3];
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void input(const std::uint8_t* const* rows, std::ptrdiff_t pitch, std::int64_t channels,
           bool x_signed, std::int16_t* points, std::ptrdiff_t point_stride) {
  const int flip = x_signed ? 0x80 : 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    Number d[kWinogradPointsU8];
    for (int i = 0; i < kWinogradPointsU8; ++i) d[i] = {rows[i * pitch][c] ^ flip};
    transform_tile(d);
    for (int i = 0; i < kWinogradPointsU8; ++i) {
      points[i * point_stride + c] = static_cast<std::int16_t>(d[i].value);
    }
  }
}

void output(const WinogradOutputU8& args) {
  std::int32_t sums[4][kColumns];
  for (int j = 0; j < kColumns; ++j) {
    Number m[kWinogradPointsU8];
    Number y[4];
    for (int i = 0; i < kWinogradPointsU8; ++i) m[i] = {args.points[i * args.point_stride + j]};
    transform_sums(m, y);
    for (int i = 0; i < 4; ++i) sums[i][j] = (y[i] + Number{args.columns.start[j]}).value;
  }
  for (std::int64_t y = 0; y < args.rows; ++y) {
    for (std::int64_t x = 0; x < args.pixels; ++x) {
      store_sums(sums[2 * y + x], args.width, args.columns, *args.finish,
                 args.out + y * args.row_bytes + x * args.pixel_bytes);
    }
  }
}
#else
HWY_INLINE void input_channels(const std::uint8_t* const* rows, std::ptrdiff_t pitch,
                               std::int64_t channel, hn::Vec<Tag8Of16> flip, std::int16_t* points,
                               std::ptrdiff_t point_stride) {
  Number<Vector16> d[kWinogradPointsU8];
#pragma GCC unroll 16
  for (int i = 0; i < kWinogradPointsU8; ++i)
    d[i].value = load_wide(rows[i * pitch] + channel, flip);
  transform_tile(d);
#pragma GCC unroll 16
  for (int i = 0; i < kWinogradPointsU8; ++i) {
    hn::StoreU(d[i].value, Tag16(), points + i * point_stride + channel);
  }
}

/// Channels are at least those of a vector, so the last ones are made twice where they fill none.
HWY_ATTR void input(const std::uint8_t* const* rows, std::ptrdiff_t pitch, std::int64_t channels,
                    bool x_signed, std::int16_t* points, std::ptrdiff_t point_stride) {
  const auto flip = hn::Set(Tag8Of16(), static_cast<std::uint8_t>(x_signed ? 0x80 : 0));
  for (std::int64_t c = 0; c < channels; c += kColumns) {
    input_channels(rows, pitch, std::min<std::int64_t>(c, channels - kColumns), flip, points,
                   point_stride);
  }
}

HWY_ATTR void output(const WinogradOutputU8& args) {
  const Tag32 d32;
  const Finish finish = load(*args.finish);
  Number<Vector32> sums[kVectors][4];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    Number<Vector32> m[kWinogradPointsU8];
#pragma GCC unroll 16
    for (int i = 0; i < kWinogradPointsU8; ++i) {
      m[i].value = hn::LoadU(d32, args.points + i * args.point_stride + v * kLanes);
    }
    transform_sums(m, sums[v]);
    const Number<Vector32> start{hn::LoadU(d32, args.columns.start + v * kLanes)};
    for (int i = 0; i < 4; ++i) sums[v][i] = sums[v][i] + start;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if (i / 2 >= args.rows || i % 2 >= args.pixels) continue;
    store_sums(sums[0][i].value, sums[1][i].value, load_scales(args.columns), *args.finish, finish,
               args.width, args.out + i / 2 * args.row_bytes + i % 2 * args.pixel_bytes);
  }
}
#endif

}  // namespace

const WinogradKernelsU8& winograd_table_u8() {
  static constexpr WinogradKernelsU8 kKernels{input, output};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const WinogradKernelsU8& winograd_kernels_u8(Isa isa) {
  BP_SELECT_TARGET(isa, winograd_table_u8());
}

void winograd_filter_u8(const std::int8_t (&w)[9], std::int16_t (&u)[kWinogradPointsU8]) {
  // 2 G of three numbers that are `step` apart.
  const auto transform = [](const auto* from, int step, auto* to, int to_step) {
    const int a = from[0], b = from[step], c = from[2 * step];
    const int numbers[4] = {2 * a, a + b + c, a - b + c, 2 * c};
    for (int i = 0; i < 4; ++i) to[i * to_step] = static_cast<std::int16_t>(numbers[i]);
  };
  std::int16_t columns[12];
  for (int x = 0; x < 3; ++x) transform(w + x, 3, columns + x, 3);
  for (int y = 0; y < 4; ++y) transform(columns + 3 * y, 1, u + 4 * y, 1);
}

}  // namespace backplane::cpu
#endif
