// Pooling of planes, channels first: a line of the result is combined of whole lines of the plane, and then along itself.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

struct PoolLines {
  /// Elements beyond the end of a line that vectors reach.
  static constexpr std::int64_t kBeyond = 64;

  Window window;
  /// Of means: positions of the window that count, for each output column and kBeyond more.
  std::vector<float> counts;
  bool count_padding = false;  // so they do along the other axes

  /// Elements of scratch memory that a plane needs.
  std::int64_t scratch_size() const;
  /// Lines of the result that are made at a time, and the elements from one to the next in the scratch memory.
  std::int64_t block() const;
  std::int64_t pitch() const;
  /// Positions of the window of an output index along an axis: inside of the image, or of the padded one.
  std::int64_t count_at(std::size_t axis, std::int64_t index) const;
};

/// Pools one plane.
template <class T>
using PoolPlane = void (*)(const PoolLines& lines, const T* x, T* y, T* scratch);

struct PoolLoops {
  /// NaN is greater than all; of a window with no position inside it is the least, and the mean 0.
  PoolPlane<float> max, mean;
  PoolPlane<std::uint8_t> max_u8;
  PoolPlane<std::int8_t> max_s8;
};

const PoolLoops& pool_loops(Isa isa);

}  // namespace backplane::cpu
