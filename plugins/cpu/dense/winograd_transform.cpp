#include "plugins/cpu/dense/winograd_transform.hpp"

#include <cstddef>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/winograd_transform.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const WinogradKernels& winograd_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

/// Moves `count` lanes: whole vectors, or the last channels of a pixel.
struct Whole {
  HWY_INLINE Vector load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE void store(Vector v, float* p) const { hn::StoreU(v, Tag(), p); }
};
struct Part {
  hn::Mask<Tag> mask;
  HWY_INLINE Vector load(const float* p) const { return load_first(mask, Tag(), p); }
  HWY_INLINE void store(Vector v, float* p) const { store_first(mask, Tag(), v, p); }
};

/// One dimension of B^T d.
HWY_INLINE void transform_in(const Vector* d, Vector* out) {
  const Tag t;
  const Vector two = hn::Set(t, 2.0f);
  const Vector four = hn::Set(t, 4.0f);
  const Vector five = hn::Set(t, 5.0f);
  const Vector a = hn::NegMulAdd(four, d[2], d[4]);
  const Vector b = hn::NegMulAdd(four, d[1], d[3]);
  const Vector c = hn::Sub(d[4], d[2]);
  const Vector e = hn::Mul(two, hn::Sub(d[3], d[1]));
  out[0] = hn::MulAdd(four, d[0], hn::NegMulAdd(five, d[2], d[4]));
  out[1] = hn::Add(a, b);
  out[2] = hn::Sub(a, b);
  out[3] = hn::Add(c, e);
  out[4] = hn::Sub(c, e);
  out[5] = hn::MulAdd(four, d[1], hn::NegMulAdd(five, d[3], d[5]));
}

/// One dimension of A^T m.
HWY_INLINE void transform_out(const Vector* m, Vector* out) {
  const Tag t;
  const Vector s = hn::Add(m[1], m[2]);
  const Vector d = hn::Sub(m[1], m[2]);
  const Vector u = hn::Add(m[3], m[4]);
  const Vector e = hn::Sub(m[3], m[4]);
  out[0] = hn::Add(hn::Add(m[0], s), u);
  out[1] = hn::MulAdd(hn::Set(t, 2.0f), e, d);
  out[2] = hn::MulAdd(hn::Set(t, 4.0f), u, s);
  out[3] = hn::Add(hn::MulAdd(hn::Set(t, 8.0f), e, d), m[5]);
}

template <class Access>
HWY_INLINE void input_channels(const Access& access, const WinogradTile& tile, const float* first,
                               float* points, int64_t point_stride) {
  const Tag t;
  Vector rows[6][6];  // B^T d, transposed: [point of y][x]
  for (int64_t x = 0; x < 6; ++x) {
    Vector column[6];
    Vector out[6];
    const bool x_inside = x >= tile.x_begin && x < tile.x_end;
    for (int64_t y = 0; y < 6; ++y) {
      const bool inside = x_inside && y >= tile.y_begin && y < tile.y_end;
      column[y] = inside ? access.load(first + y * tile.height_stride + x * tile.width_stride)
                         : hn::Zero(t);
    }
    transform_in(column, out);
    for (int64_t y = 0; y < 6; ++y) rows[y][x] = out[y];
  }
  for (int64_t y = 0; y < 6; ++y) {
    Vector out[6];
    transform_in(rows[y], out);
    for (int64_t x = 0; x < 6; ++x) access.store(out[x], points + (y * 6 + x) * point_stride);
  }
}

void input(const WinogradTile& tile, const float* first, int64_t channels, float* points,
           int64_t point_stride) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    input_channels(Whole{}, tile, first + c, points + c, point_stride);
  }
  if (c < channels) {
    const Part part{hn::FirstN(Tag(), static_cast<size_t>(channels - c))};
    input_channels(part, tile, first + c, points + c, point_stride);
  }
}

struct OutputArgs {
  const WinogradTile& tile;
  const WinogradTile& residual_tile;
  int64_t point_stride;
  float lo, hi;
};

template <class Access>
HWY_INLINE void output_channels(const Access& access, const OutputArgs& args, const float* points,
                                const float* bias, const float* residual, float* y) {
  const Tag t;
  Vector rows[4][6];
  for (int64_t x = 0; x < 6; ++x) {
    Vector column[6];
    Vector out[4];
    for (int64_t i = 0; i < 6; ++i)
      column[i] = access.load(points + (i * 6 + x) * args.point_stride);
    transform_out(column, out);
    for (int64_t i = 0; i < 4; ++i) rows[i][x] = out[i];
  }
  const Vector b = bias != nullptr ? access.load(bias) : hn::Zero(t);
  const Vector lo = hn::Set(t, args.lo);
  const Vector hi = hn::Set(t, args.hi);
  for (int64_t i = 0; i < args.tile.y_end; ++i) {
    Vector out[4];
    transform_out(rows[i], out);
    for (int64_t x = 0; x < args.tile.x_end; ++x) {
      Vector v = hn::Add(out[x], b);
      if (residual != nullptr) {
        const float* r = residual + i * args.residual_tile.height_stride;
        v = hn::Add(v, access.load(r + x * args.residual_tile.width_stride));
      }
      v = at_least(lo, at_most(hi, v));
      access.store(v, y + i * args.tile.height_stride + x * args.tile.width_stride);
    }
  }
}

void output(const WinogradTile& tile, const float* points, int64_t point_stride, const float* bias,
            const float* residual, const WinogradTile& residual_tile, float lo, float hi,
            int64_t channels, float* y) {
  const OutputArgs args{tile, residual_tile, point_stride, lo, hi};
  int64_t c = 0;
  const auto at = [&c](const float* p) { return p != nullptr ? p + c : nullptr; };
  for (; c + kLanes <= channels; c += kLanes) {
    output_channels(Whole{}, args, points + c, at(bias), at(residual), y + c);
  }
  if (c < channels) {
    const Part part{hn::FirstN(Tag(), static_cast<size_t>(channels - c))};
    output_channels(part, args, points + c, at(bias), at(residual), y + c);
  }
}

}  // namespace

const WinogradKernels& winograd_table() {
  static constexpr WinogradKernels kKernels = {input, output};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const WinogradKernels& winograd_kernels(Isa isa) { BP_SELECT_TARGET(isa, winograd_table()); }

void winograd_filters(const float (*w)[kWinogradFilters], float* u, int64_t point_stride) {
  constexpr float kG[6][3] = {{1.0f / 4, 0, 0},
                              {-1.0f / 6, -1.0f / 6, -1.0f / 6},
                              {-1.0f / 6, 1.0f / 6, -1.0f / 6},
                              {1.0f / 24, 1.0f / 12, 1.0f / 6},
                              {1.0f / 24, -1.0f / 12, 1.0f / 6},
                              {0, 0, 1}};
  float half[6][3][kWinogradFilters];
  for (int i = 0; i < 6; ++i) {
    for (int x = 0; x < 3; ++x) {
      for (int64_t f = 0; f < kWinogradFilters; ++f) {
        half[i][x][f] = kG[i][0] * w[x][f] + kG[i][1] * w[3 + x][f] + kG[i][2] * w[6 + x][f];
      }
    }
  }
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      float* to = u + (i * 6 + j) * point_stride;
      for (int64_t f = 0; f < kWinogradFilters; ++f) {
        to[f] = half[i][0][f] * kG[j][0] + half[i][1][f] * kG[j][1] + half[i][2][f] * kG[j][2];
      }
    }
  }
}

}  // namespace backplane::cpu
#endif
