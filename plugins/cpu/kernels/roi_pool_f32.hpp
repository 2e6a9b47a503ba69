// The inner loop of RoiAlign: the bins of one region, all channels of a block side by side.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// A sampling position on one axis: two neighbours as offsets into the image, and their weights; 0 outside of it.
struct RoiTap {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float low_weight = 0;
  float high_weight = 0;
};

/// A region: out_height * down positions of rows, out_width * across positions of columns.
struct RoiBins {
  const RoiTap* rows;
  const RoiTap* columns;
  std::int64_t out_height, out_width;
  std::int64_t down, across;  // samples of a bin; more than none
  bool average;               // else the greatest of the weighted neighbours
};

/// Channels are in blocks of whole vectors.
inline constexpr std::int64_t kRoiLanes = 16;

/// Writes bins[out_height * out_width][channels] from an image [positions][channels]; `channels` is a multiple of
/// kRoiLanes.
using RoiPoolF32 = void (*)(const RoiBins& region, const float* image, std::int64_t channels,
                            float* bins);

RoiPoolF32 roi_pool_f32(Isa isa);

}  // namespace backplane::cpu
