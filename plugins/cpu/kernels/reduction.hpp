// A reduction planned for a shape: which axes are folded, as few loops as possible.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {

/// The axes of a dense input split into those that are kept and those that are folded, neighbours of
/// one kind merged, axes of one element dropped.
struct ReductionShape {
  struct Axis {
    std::int64_t dim;
    std::int64_t stride;  // elements of the input
  };
  std::vector<Axis> kept;    // outermost first; without the last axis if that is kept
  std::vector<Axis> folded;  // likewise
  std::int64_t last = 1;     // the length of the last axis, whose stride is 1
  bool last_folded = true;
  std::int64_t kept_count = 1;    // the product of `kept`
  std::int64_t folded_count = 1;  // the product of `folded`

  /// The number of elements folded into one.
  std::int64_t depth() const { return folded_count * (last_folded ? last : 1); }
};

/// `axes` are in [0, rank), ascending.
inline ReductionShape plan_reduction(sdk::DimsView dims, const std::vector<int>& axes) {
  struct Run {
    std::int64_t dim, stride;
    bool folded;
  };
  std::vector<Run> runs;  // innermost first
  std::int64_t stride = 1;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    const bool folded = std::binary_search(axes.begin(), axes.end(), static_cast<int>(axis));
    if (dims[axis] != 1) {
      if (!runs.empty() && runs.back().folded == folded) {
        runs.back().dim *= dims[axis];
      } else {
        runs.push_back({dims[axis], stride, folded});
      }
    }
    stride *= dims[axis];
  }
  ReductionShape shape;
  if (!runs.empty()) {
    shape.last = runs[0].dim;
    shape.last_folded = runs[0].folded;
  }
  for (std::size_t i = runs.size(); i-- > 1;) {
    (runs[i].folded ? shape.folded : shape.kept).push_back({runs[i].dim, runs[i].stride});
    (runs[i].folded ? shape.folded_count : shape.kept_count) *= runs[i].dim;
  }
  return shape;
}

/// Where the index-th combination of `axes` starts, in elements.
inline std::int64_t axes_offset(const std::vector<ReductionShape::Axis>& axes, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    offset += index % axes[axis].dim * axes[axis].stride;
    index /= axes[axis].dim;
  }
  return offset;
}

/// The loops that fold elements of type T into accumulators of type Acc.
template <class T, class Acc>
struct FoldLoops {
  Acc start;
  void (*rows)(const T* x, std::int64_t rows, std::int64_t n, Acc* y);
  void (*columns)(const T* x, std::int64_t stride, std::int64_t rows, Acc* acc, std::int64_t n);
  void (*join)(Acc* total, const Acc* acc, std::int64_t n);  // total[i] with acc[i]
};

/// The kept indices [begin, end) where the last axis is folded. Those that lie one behind the other go a block at a time:
/// a call, and finding where it begins, cost as much as a short row.
template <class T, class Acc, class Y, class Finish>
void fold_rows(const ReductionShape& shape, const FoldLoops<T, Acc>& loops, const T* x, Y* y,
               const Finish& finish, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kRows = 256;
  alignas(64) std::array<Acc, kRows> total;
  alignas(64) std::array<Acc, kRows> acc;
  const std::int64_t line = shape.kept.empty() ? 1 : shape.kept.back().dim;
  std::int64_t rows = 0;
  for (std::int64_t i = begin; i < end; i += rows) {
    rows = std::min({kRows, end - i, line - i % line});
    const T* base = x + axes_offset(shape.kept, i);
    if (shape.folded_count == 1 && shape.last > 0) {
      loops.rows(base, rows, shape.last, total.data());
    } else {
      std::fill_n(total.begin(), rows, loops.start);
      for (std::int64_t f = 0; f < shape.folded_count && shape.last > 0; ++f) {
        loops.rows(base + axes_offset(shape.folded, f), rows, shape.last, acc.data());
        loops.join(total.data(), acc.data(), rows);
      }
    }
    finish(total.data(), y + i, rows);
  }
}

/// How many elements are folded at a time where the last axis is kept: what stays in the first-level cache.
inline constexpr std::int64_t kFoldTile = 256;

/// Whether the last axis is so short, and so few elements lie below the kept axis before it, that going from one index of
/// that to the next would cost more than folding.
inline bool is_narrow(const ReductionShape& shape) {
  return !shape.last_folded && shape.kept.size() == 1 && shape.folded.size() == 1 &&
         shape.last > 0 && shape.last < 16 && shape.folded_count * shape.last <= kFoldTile;
}

/// Rows of `width` elements, `stride` apart, one behind the other.
template <std::int64_t kWidth, class T>
void pack_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t width, T* to) {
  const std::int64_t n = kWidth > 0 ? kWidth : width;
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

/// The kept indices [begin, end) of a narrow shape, many beside one another.
template <class T, class Acc, class Y, class Finish>
void fold_narrow(const ReductionShape& shape, const FoldLoops<T, Acc>& loops, const T* x, Y* y,
                 const Finish& finish, std::int64_t begin, std::int64_t end) {
  const std::int64_t last = shape.last;
  const auto pack = last == 2   ? pack_rows<2, T>
                    : last == 3 ? pack_rows<3, T>
                    : last == 4 ? pack_rows<4, T>
                                : pack_rows<0, T>;
  alignas(64) std::array<Acc, kFoldTile> total;
  alignas(64) std::array<T, kFoldTile> packed;
  const std::int64_t most = kFoldTile / last;
  for (std::int64_t i = begin; i < end; i += most) {
    const std::int64_t rows = std::min(most, end - i);
    const T* base = x + i * shape.kept[0].stride;
    std::fill_n(total.begin(), rows * last, loops.start);
    for (std::int64_t f = 0; f < shape.folded_count; ++f) {
      pack(base + f * last, shape.kept[0].stride, rows, last, packed.data());
      loops.columns(packed.data(), 0, 1, total.data(), rows * last);
    }
    finish(total.data(), y + i * last, rows * last);
  }
}

/// y = the folds of x for every kept index; finish(acc, y, n) makes n elements of y of their accumulators.
template <class T, class Acc, class Y, class Finish>
void run_reduction(const ReductionShape& shape, const FoldLoops<T, Acc>& loops, const T* x, Y* y,
                   const sdk::Threads& threads, double ns_each, const Finish& finish) {
  const auto depth_ns = ns_each * static_cast<double>(shape.depth());
  if (shape.last_folded) {
    constexpr double kNsRow = 0.5;
    split_loop(threads, shape.kept_count, depth_ns + kNsRow, 1,
               [&](std::int64_t begin, std::int64_t end) {
                 fold_rows(shape, loops, x, y, finish, begin, end);
               });
    return;
  }
  if (is_narrow(shape)) {
    split_loop(threads, shape.kept_count, static_cast<double>(shape.depth() * shape.last), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 fold_narrow(shape, loops, x, y, finish, begin, end);
               });
    return;
  }
  // The last axis is kept: fold whole rows, a tile at a time.
  constexpr std::int64_t kTile = kFoldTile;
  constexpr std::int64_t kRows = 512;  // then into the total: sums of sums lose fewer bits
  const std::int64_t tiles = (shape.last + kTile - 1) / kTile;
  const auto inner_rows = shape.folded.empty() ? std::int64_t{1} : shape.folded.back().dim;
  const auto inner_stride = shape.folded.empty() ? std::int64_t{0} : shape.folded.back().stride;
  const std::int64_t blocks = inner_rows == 0 ? 0 : shape.folded_count / inner_rows;
  split_loop(threads, shape.kept_count * tiles, depth_ns * static_cast<double>(kTile), 1,
             [&](std::int64_t begin, std::int64_t end) {
               alignas(64) std::array<Acc, kTile> total;
               alignas(64) std::array<Acc, kTile> acc;
               for (std::int64_t part = begin; part < end; ++part) {
                 const std::int64_t from = part % tiles * kTile;
                 const std::int64_t n = std::min(kTile, shape.last - from);
                 const T* base = x + axes_offset(shape.kept, part / tiles) + from;
                 std::fill_n(total.begin(), n, loops.start);
                 for (std::int64_t block = 0; block < blocks; ++block) {
                   const T* rows = base + axes_offset(shape.folded, block * inner_rows);
                   if (blocks == 1 && inner_rows <= kRows) {
                     loops.columns(rows, inner_stride, inner_rows, total.data(), n);
                     break;
                   }
                   for (std::int64_t row = 0; row < inner_rows; row += kRows) {
                     std::fill_n(acc.begin(), n, loops.start);
                     loops.columns(rows + row * inner_stride, inner_stride,
                                   std::min(kRows, inner_rows - row), acc.data(), n);
                     loops.join(total.data(), acc.data(), n);
                   }
                 }
                 Y* out = y + part / tiles * shape.last + from;
                 finish(total.data(), out, n);
               }
             });
}

}  // namespace backplane::cpu
