#include "plugins/cpu/kernels/resample.hpp"

#include <algorithm>

namespace backplane::cpu {
namespace {

template <class T>
const T* weights_of(const AxisTaps& axis) {
  if constexpr (std::is_same_v<T, float>) {
    return axis.float_weights.data();
  } else {
    return axis.weights.data();
  }
}

// Rows of `inner` elements: sums of whole rows.
template <class T>
void sum_rows(const AxisTaps& axis, const T* source, T* target, std::int64_t inner,
              std::int64_t row) {
  const std::int64_t block = row / axis.output, y = row % axis.output;
  const T* from = source + block * axis.input * inner;
  const std::int64_t* places = axis.places.data() + y * axis.taps;
  const T* weights = weights_of<T>(axis) + y * axis.taps;
  T* to = target + row * inner;
  const T *first = from + places[0] * inner, *second = from + places[1] * inner;
  for (std::int64_t i = 0; i < inner; ++i) to[i] = weights[0] * first[i] + weights[1] * second[i];
  for (std::int64_t k = 2; k < axis.taps; ++k) {
    const T* next = from + places[k] * inner;
    const T weight = weights[k];
    for (std::int64_t i = 0; i < inner; ++i) to[i] += weight * next[i];
  }
}

// The last axis: sums within a row.
template <class T>
void sum_columns(const AxisTaps& axis, const T* from, T* to) {
  const std::int64_t* places = axis.places.data();
  const T* weights = weights_of<T>(axis);
  if (axis.taps == 2) {
    for (std::int64_t x = 0; x < axis.output; ++x) {
      to[x] = weights[2 * x] * from[places[2 * x]] + weights[2 * x + 1] * from[places[2 * x + 1]];
    }
    return;
  }
  for (std::int64_t x = 0; x < axis.output; ++x, places += axis.taps, weights += axis.taps) {
    T sum = 0;
    for (std::int64_t k = 0; k < axis.taps; ++k) sum += weights[k] * from[places[k]];
    to[x] = sum;
  }
}

}  // namespace

template <class T>
void resample_pass(const AxisTaps& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, const sdk::Threads& threads) {
  const std::int64_t rows = inner == 1 ? outer : outer * axis.output;
  const std::int64_t work =
      std::max<std::int64_t>(1, (inner == 1 ? axis.output : inner) * axis.taps);
  const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end); ++row) {
      if (inner == 1) {
        sum_columns(axis, source + row * axis.input, target + row * axis.output);
      } else {
        sum_rows(axis, source, target, inner, row);
      }
    }
  };
  if (rows * work < 64 * 1024) return part(0, static_cast<std::uint64_t>(rows), 0);
  threads.parallel_for(static_cast<std::uint64_t>(rows),
                       static_cast<std::uint64_t>(1 + 16 * 1024 / work), part);
}

template void resample_pass(const AxisTaps&, const float*, float*, std::int64_t, std::int64_t,
                            const sdk::Threads&);
template void resample_pass(const AxisTaps&, const double*, double*, std::int64_t, std::int64_t,
                            const sdk::Threads&);

}  // namespace backplane::cpu
