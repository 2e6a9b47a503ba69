// The inner loops of normalisations, for float and double.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// The mean of an array and the mean of the squared distances from it.
template <class T>
struct Moments {
  T mean;
  T variance;
};

/// x and y may be the same array.
template <class T>
struct NormalizeLoops {
  Moments<T> (*moments)(const T* x, std::int64_t n);
  /// The mean of x[i]^2.
  T (*mean_square)(const T* x, std::int64_t n);
  /// y[i] = x[i] * scale + shift.
  void (*affine)(const T* x, T* y, std::int64_t n, T scale, T shift);
  /// y[i] = x[i] * scale[i] + shift[i].
  void (*affine_each)(const T* x, T* y, std::int64_t n, const T* scale, const T* shift);
  /// y[i] = (x[i] - mean) * factor * scale[i] + shift[i]; `shift` may be null.
  void (*standardize)(const T* x, T* y, std::int64_t n, T mean, T factor, const T* scale,
                      const T* shift);
};

/// For T float or double.
template <class T>
const NormalizeLoops<T>& normalize_loops(Isa isa);
template <>
const NormalizeLoops<float>& normalize_loops<float>(Isa isa);
template <>
const NormalizeLoops<double>& normalize_loops<double>(Isa isa);

}  // namespace backplane::cpu
