// Where the greatest or least element of rows and columns is.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

struct ArgChoice {
  bool least;
  bool last;  // of equal elements the last one
};

inline constexpr std::int64_t kArgTile = 128;

struct ArgScan {
  /// The index among n > 0 neighbouring elements.
  std::int64_t (*row)(const void* x, std::int64_t n);
  /// The index along each column: element k of column j is x[k * stride + j]; j < width <= kArgTile.
  void (*columns)(const void* x, std::int64_t n, std::int64_t stride, std::int64_t width,
                  std::int64_t* y);
};

/// For elements of `type`, a number type. Errors: BP_UNSUPPORTED for others.
ArgScan arg_scan(Isa isa, sdk::DataType type, const ArgChoice& choice);

}  // namespace backplane::cpu
