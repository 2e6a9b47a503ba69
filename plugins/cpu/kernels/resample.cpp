#include "plugins/cpu/kernels/resample.hpp"

#include <algorithm>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Numbers of a table that is kept: 1.5 MB with their weights, and longer than any image's.
constexpr std::int64_t kMostKept = std::int64_t{1} << 17;
constexpr std::int64_t kSerialWork = 64 * 1024;

template <class T>
const T* weights_of(const common::AxisTaps& axis) {
  if constexpr (std::is_same_v<T, float>) {
    return axis.float_weights.data();
  } else {
    return axis.weights.data();
  }
}

/// The sources of some output elements that follow one another.
template <class T>
struct Taps {
  std::int64_t count, taps;
  const std::int64_t* places;
  const T* weights;
};

// One row of `inner` elements: a sum of whole rows.
template <class T>
void sum_rows(std::int64_t taps, const std::int64_t* places, const T* weights, const T* from, T* to,
              std::int64_t inner) {
  const T *first = from + places[0] * inner, *second = from + places[1] * inner;
  for (std::int64_t i = 0; i < inner; ++i) to[i] = weights[0] * first[i] + weights[1] * second[i];
  for (std::int64_t k = 2; k < taps; ++k) {
    const T* next = from + places[k] * inner;
    const T weight = weights[k];
    for (std::int64_t i = 0; i < inner; ++i) to[i] += weight * next[i];
  }
}

// The last axis: sums within a row.
template <class T>
void sum_columns(const Taps<T>& axis, const T* from, T* to) {
  const std::int64_t* places = axis.places;
  const T* weights = axis.weights;
  if (axis.taps == 2) {
    for (std::int64_t x = 0; x < axis.count; ++x) {
      to[x] = weights[2 * x] * from[places[2 * x]] + weights[2 * x + 1] * from[places[2 * x + 1]];
    }
    return;
  }
  for (std::int64_t x = 0; x < axis.count; ++x, places += axis.taps, weights += axis.taps) {
    T sum = 0;
    for (std::int64_t k = 0; k < axis.taps; ++k) sum += weights[k] * from[places[k]];
    to[x] = sum;
  }
}

/// Without a table: each thread makes the taps of a block and goes over all rows with them.
template <class T>
void resample_blocks(const ResampledAxis& axis, const T* source, T* target, std::int64_t outer,
                     std::int64_t inner, char* scratch, const sdk::Threads& threads) {
  const std::int64_t output = axis.count(), block = axis.block();
  const std::int64_t blocks = ceil_div(output, block);
  const std::int64_t work = outer * inner * block * axis.taps();
  threads.parallel_for(
      static_cast<std::uint64_t>(blocks), static_cast<std::uint64_t>(1 + kSerialWork / 4 / work),
      [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
        char* own = scratch + worker * axis.scratch_bytes();
        auto* places = reinterpret_cast<std::int64_t*>(own);
        auto* weights = reinterpret_cast<T*>(places + block * axis.taps());
        for (auto b = static_cast<std::int64_t>(begin); b < static_cast<std::int64_t>(end); ++b) {
          const std::int64_t first = b * block, last = std::min(output, first + block);
          common::write_taps(axis.rule, axis.request, first, last, places, weights);
          const Taps<T> taps{last - first, axis.taps(), places, weights};
          for (std::int64_t o = 0; o < outer; ++o) {
            const T* from = source + o * axis.input() * inner;
            T* to = target + (o * output + first) * inner;
            if (inner == 1) {
              sum_columns(taps, from, to);
              continue;
            }
            for (std::int64_t y = 0; y < taps.count; ++y) {
              const std::int64_t at = y * taps.taps;
              sum_rows(taps.taps, places + at, weights + at, from, to + y * inner, inner);
            }
          }
        }
      });
}

}  // namespace

ResampledAxis::ResampledAxis(const common::ResampleRule& rule_of, const common::AxisRequest& asked,
                             bool in_double)
    : rule(rule_of), request(asked) {
  table.input = asked.input;
  table.output = asked.output;
  table.taps = common::taps_of(rule_of, asked);
  table.same = common::stays(rule_of, asked);
  if (!table.same && asked.output <= kMostKept / table.taps)
    table = common::make_taps(rule_of, asked, in_double);
}

std::uint64_t ResampledAxis::scratch_bytes() const {
  if (has_table() || same()) return 0;
  return align64(static_cast<std::uint64_t>(block() * taps()) *
                 (sizeof(std::int64_t) + sizeof(double)));
}

template <class T>
void resample_pass(const ResampledAxis& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, char* scratch, const sdk::Threads& threads) {
  if (!axis.has_table())
    return resample_blocks(axis, source, target, outer, inner, scratch, threads);
  const std::int64_t output = axis.count(), taps = axis.taps();
  const Taps<T> all{output, taps, axis.table.places.data(), weights_of<T>(axis.table)};
  const std::int64_t rows = inner == 1 ? outer : outer * output;
  const std::int64_t work = std::max<std::int64_t>(1, (inner == 1 ? output : inner) * taps);
  const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end); ++row) {
      if (inner == 1) {
        sum_columns(all, source + row * axis.input(), target + row * output);
        continue;
      }
      const std::int64_t at = row % output * taps;
      sum_rows(taps, all.places + at, all.weights + at,
               source + row / output * axis.input() * inner, target + row * inner, inner);
    }
  };
  if (rows * work < kSerialWork) return part(0, static_cast<std::uint64_t>(rows), 0);
  threads.parallel_for(static_cast<std::uint64_t>(rows),
                       static_cast<std::uint64_t>(1 + kSerialWork / 4 / work), part);
}

template void resample_pass(const ResampledAxis&, const float*, float*, std::int64_t, std::int64_t,
                            char*, const sdk::Threads&);
template void resample_pass(const ResampledAxis&, const double*, double*, std::int64_t,
                            std::int64_t, char*, const sdk::Threads&);

}  // namespace backplane::cpu
