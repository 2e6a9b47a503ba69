// Weights packed into panels: the form that the tile kernels read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// How the columns of a matrix are cut into panels of whole vectors, of nearly equal width. A panel holds,
/// for each step of the depth, its columns one after another; panels follow each other.
struct Panels {
  struct Panel {
    int64_t column;  // the first
    int vectors;
    int64_t width;  // columns that exist; the rest up to whole vectors is zero
  };
  int64_t columns = 0;
  int lanes = 1;
  int widest = 1;  // vectors
  /// All panels are of the widest, and a single vector that would be left over belongs to the last one.
  bool takes_one_more = false;

  int64_t vectors() const { return (columns + lanes - 1) / lanes; }
  int64_t padded_columns() const { return vectors() * lanes; }
  int64_t count() const { return (vectors() + widest - 1) / widest - (has_one_more() ? 1 : 0); }
  bool has_one_more() const {
    return takes_one_more && vectors() > widest && vectors() % widest == 1;
  }
  int most_vectors() const { return widest + (has_one_more() ? 1 : 0); }
  Panel at(int64_t index) const {
    int64_t begin = vectors() * index / count();
    int64_t end = vectors() * (index + 1) / count();
    if (has_one_more()) {
      begin = index * widest;
      end = index + 1 == count() ? vectors() : begin + widest;
    }
    return {begin * lanes, static_cast<int>(end - begin),
            std::min(columns - begin * lanes, (end - begin) * lanes)};
  }
};

/// A matrix to be packed, element (tap, depth, column) at data[tap * tap_stride + depth * depth_stride +
/// column * column_stride], times `scale` and, where there are any, column_scales[column].
struct WeightView {
  const void* data = nullptr;  // floats, or numbers of 16 bits
  int64_t taps = 1;
  int64_t depth = 0;
  int64_t tap_stride = 0;
  int64_t depth_stride = 0;
  int64_t column_stride = 0;
  const float* column_scales = nullptr;
  float scale = 1.0f;
};

/// Packs a panel to `packed`; numbers of 16 bits as they are, without scales.
void pack_panel(const Panels& panels, const WeightView& weights, const Panels::Panel& panel,
                float* packed);
void pack_panel(const Panels& panels, const WeightView& weights, const Panels::Panel& panel,
                uint16_t* packed);
/// Packs panel `index` to its place in `packed`, which holds padded_columns() * taps * depth floats.
void pack_panel(const Panels& panels, const WeightView& weights, int64_t index, float* packed);

/// Calls part(panel) for all panels, in parallel.
template <class Part>
void for_each_panel(const Panels& panels, const sdk::Threads& threads, const Part& part) {
  threads.parallel_for(static_cast<uint64_t>(panels.count()), 1,
                       [&](uint64_t begin, uint64_t end, uint32_t) {
                         for (uint64_t i = begin; i < end; ++i)
                           part(panels.at(static_cast<int64_t>(i)));
                       });
}

/// Packs all panels, in parallel.
void pack_panels(const Panels& panels, const WeightView& weights, float* packed,
                 const sdk::Threads& threads);

/// Packs all panels of weights of `type`, Float or of 16 bits, as pairs of bfloat16 numbers that follow each other along the
/// depth, the first one in the lower half and after an odd depth a zero; floats with their scales. Allocates.
void pack_pairs(const Panels& panels, const WeightView& weights, sdk::DataType type, Isa isa,
                uint32_t* packed, const sdk::Threads& threads);

}  // namespace backplane::cpu
