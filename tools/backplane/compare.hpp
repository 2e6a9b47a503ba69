// Is a result what it should be?
#pragma once

#include <string>

#include "backplane/backplane.hpp"

namespace backplane::cli {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-7;
};

struct Comparison {
  std::string difference;  ///< "" when right; else where and what
  double max_abs =
      0;  ///< greatest difference; infinite where a NaN or an infinity stands against a number
  double max_rel = 0;  ///< greatest difference relative to the wanted element
};

/// Types and shapes must be equal. Floats are right within atol + rtol * |want|, NaN equals NaN, infinities by
/// sign; everything else exactly. With `values` false, types and shapes only.
Comparison compare(const ValueView& got, const ValueView& want, const Tolerance& tolerance,
                   bool values);

/// One element against another; `max_*` grow. For all but strings.
bool is_right(double got, double want, const Tolerance& tolerance, Comparison& comparison);

}  // namespace backplane::cli
