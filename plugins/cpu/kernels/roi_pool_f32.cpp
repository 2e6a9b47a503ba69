#include "plugins/cpu/kernels/roi_pool_f32.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/roi_pool_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

RoiPoolF32 find_roi_pool();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

struct Sum {
  HWY_INLINE static V add(V total, V weight, V value) { return hn::MulAdd(weight, value, total); }
};
struct Greatest {
  // A NaN is passed over, unless it comes first.
  HWY_INLINE static V add(V total, V weight, V value) {
    const V weighted = hn::Mul(weight, value);
    return hn::IfThenElse(hn::Lt(total, weighted), weighted, total);
  }
};

/// One bin of kVectors vectors of channels.
template <class Fold, int kVectors>
void fold_bin(const RoiBins& region, const RoiTap* rows, const RoiTap* columns, const float* image,
              float* bin) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const float* first = image + rows[0].low + columns[0].low;
  const V weight = hn::Set(d, rows[0].low_weight * columns[0].low_weight);
  V total[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    total[v] = region.average
                   ? hn::Zero(d)
                   : hn::Mul(weight, hn::LoadU(d, first + static_cast<size_t>(v) * lanes));
  }
  const auto fold = [&](const float* from, float factor) HWY_ATTR {
    const V w = hn::Set(d, factor);
    for (int v = 0; v < kVectors; ++v) {
      total[v] = Fold::add(total[v], w, hn::LoadU(d, from + static_cast<size_t>(v) * lanes));
    }
  };
  for (std::int64_t y = 0; y < region.down; ++y) {
    const RoiTap& row = rows[y];
    for (std::int64_t x = 0; x < region.across; ++x) {
      const RoiTap& column = columns[x];
      fold(image + row.low + column.low, row.low_weight * column.low_weight);
      fold(image + row.low + column.high, row.low_weight * column.high_weight);
      fold(image + row.high + column.low, row.high_weight * column.low_weight);
      fold(image + row.high + column.high, row.high_weight * column.high_weight);
    }
  }
  const V scale =
      hn::Set(d, region.average ? 1.0f / static_cast<float>(region.down * region.across) : 1.0f);
  for (int v = 0; v < kVectors; ++v)
    hn::StoreU(hn::Mul(total[v], scale), d, bin + static_cast<size_t>(v) * lanes);
}

template <class Fold>
void pool_bins(const RoiBins& region, const float* image, std::int64_t channels, float* bins) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t y = 0; y < region.out_height; ++y) {
    const RoiTap* rows = region.rows + y * region.down;
    for (std::int64_t x = 0; x < region.out_width; ++x, bins += channels) {
      const RoiTap* columns = region.columns + x * region.across;
      std::int64_t c = 0;
      for (; c + 4 * lanes <= channels; c += 4 * lanes)
        fold_bin<Fold, 4>(region, rows, columns, image + c, bins + c);
      for (; c < channels; c += lanes)
        fold_bin<Fold, 1>(region, rows, columns, image + c, bins + c);
    }
  }
}

void pool(const RoiBins& region, const float* image, std::int64_t channels, float* bins) {
  region.average ? pool_bins<Sum>(region, image, channels, bins)
                 : pool_bins<Greatest>(region, image, channels, bins);
}

}  // namespace

RoiPoolF32 find_roi_pool() { return pool; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

RoiPoolF32 roi_pool_f32(Isa isa) { BP_SELECT_TARGET(isa, find_roi_pool()); }

}  // namespace backplane::cpu
#endif
