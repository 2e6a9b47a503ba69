// Weights packed into panels: the form that the tile kernels read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// How the columns of a matrix are cut into panels of whole vectors, of nearly equal width. A panel holds,
/// for each step of the depth, its columns one after another; panels follow each other.
class Panels {
 public:
  struct Panel {
    int64_t column;  // the first
    int vectors;
    int64_t width;  // columns that exist; the rest up to whole vectors is zero
  };
  Panels() = default;
  /// `widest` is the vectors of the widest panel. Where it `takes_one_more`, all panels are of the widest, and a single
  /// vector that would be left over belongs to the last one.
  Panels(int64_t columns, int lanes, int widest, bool takes_one_more = false)
      : columns_(columns),
        lanes_(lanes),
        widest_(widest),
        vectors_((columns + lanes - 1) / lanes),
        has_one_more_(takes_one_more && vectors_ > widest && vectors_ % widest == 1),
        is_even_(has_one_more_ || vectors_ % widest == 0),
        count_((vectors_ + widest - 1) / widest - (has_one_more_ ? 1 : 0)) {}

  int lanes() const { return lanes_; }
  int64_t padded_columns() const { return vectors_ * lanes_; }
  int64_t count() const { return count_; }
  int most_vectors() const { return widest_ + (has_one_more_ ? 1 : 0); }
  Panel at(int64_t index) const {
    const int64_t begin = is_even_ ? index * widest_ : vectors_ * index / count_;
    int64_t end = is_even_ ? begin + widest_ : vectors_ * (index + 1) / count_;
    if (index + 1 == count_) end = vectors_;
    return {begin * lanes_, static_cast<int>(end - begin),
            std::min(columns_ - begin * lanes_, (end - begin) * lanes_)};
  }

 private:
  int64_t columns_ = 0;
  int lanes_ = 1;
  int widest_ = 1;
  int64_t vectors_ = 0;
  bool has_one_more_ = false;
  bool is_even_ =
      true;  // whether all panels but the last are of the widest; at() is called too often to divide
  int64_t count_ = 0;
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
