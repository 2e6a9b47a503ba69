// exp(-gamma * |x - v|^2) of rows x and many fixed vectors v.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// The vectors, side by side in panels: feature f of vector v is at [v / width][f][v % width]; zeros behind the last one.
struct RadialVectors {
  std::vector<float> panels;
  std::int64_t count = 0, features = 0, width = 1;

  std::int64_t panel_count() const { return (count + width - 1) / width; }
  /// The columns that a row of results has room for.
  std::int64_t padded() const { return panel_count() * width; }
};

struct RadialBasis {
  std::int64_t width;  // of a panel
  /// y[row * y_pitch + v] for `rows` rows and the vectors of panels [first, end). The squares are sums of
  /// differences: products of what lies close together and far from zero would lose it.
  void (*rows)(const RadialVectors& vectors, float gamma, const float* x, std::int64_t rows,
               std::int64_t first, std::int64_t end, float* y, std::int64_t y_pitch);
};

const RadialBasis& radial_basis(Isa isa);

/// `vectors`: [count, features].
RadialVectors pack_radial(Isa isa, const float* vectors, std::int64_t count, std::int64_t features);

}  // namespace backplane::cpu
