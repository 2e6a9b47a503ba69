#include "plugins/cpu/dense/panels.hpp"

namespace backplane::cpu {

void pack_panel(const Panels& panels, const WeightView& weights, int64_t index, float* packed) {
  const Panels::Panel panel = panels.at(index);
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * panels.lanes;
  float* out = packed + panel.column * weights.taps * weights.depth;
  // A few steps of the depth at a time, so that both sides of a transposition stay in the cache.
  constexpr int64_t kSteps = 16;
  for (int64_t tap = 0; tap < weights.taps; ++tap) {
    const float* from = weights.data + tap * weights.tap_stride;
    for (int64_t k0 = 0; k0 < weights.depth; k0 += kSteps) {
      const int64_t steps = std::min(kSteps, weights.depth - k0);
      for (int64_t j = 0; j < pitch; ++j) {
        if (j >= panel.width) {
          for (int64_t k = 0; k < steps; ++k) out[k * pitch + j] = 0.0f;
          continue;
        }
        const int64_t column = panel.column + j;
        const float scale =
            weights.column_scales ? weights.scale * weights.column_scales[column] : weights.scale;
        const float* source = from + column * weights.column_stride + k0 * weights.depth_stride;
        for (int64_t k = 0; k < steps; ++k) {
          out[k * pitch + j] = source[k * weights.depth_stride] * scale;
        }
      }
      out += steps * pitch;
    }
  }
}

void pack_panels(const Panels& panels, const WeightView& weights, float* packed,
                 const sdk::Threads& threads) {
  threads.parallel_for(static_cast<uint64_t>(panels.count()), 1,
                       [&](uint64_t begin, uint64_t end, uint32_t) {
                         for (uint64_t i = begin; i < end; ++i) {
                           pack_panel(panels, weights, static_cast<int64_t>(i), packed);
                         }
                       });
}

}  // namespace backplane::cpu
