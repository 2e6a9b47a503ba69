#include "plugins/cpu/kernels/product_f64.hpp"

#include <algorithm>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/product_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

ProductF64 find_product_f64();

namespace {

using Tag = hn::CappedTag<double, 8>;
using V = hn::Vec<Tag>;

constexpr std::int64_t kColumns = kProductColumnsF64;
// Of the second matrix, so many rows of kColumns are copied at a time: 32 KB.
constexpr std::int64_t kDepth = 256;

/// `count` rows of `width` <= kColumns columns, from b on, side by side; other columns are 0.
void copy_columns(const MatrixF64& b, const double* from, std::int64_t count, std::int64_t width,
                  double* HWY_RESTRICT to) {
  if (width < kColumns) std::fill_n(to, count * kColumns, 0.0);
  if (b.column == 1) {
    for (std::int64_t k = 0; k < count; ++k)
      std::copy_n(from + k * b.row, width, to + k * kColumns);
    return;
  }
  for (std::int64_t j = 0; j < width; ++j) {
    for (std::int64_t k = 0; k < count; ++k) to[k * kColumns + j] = from[k * b.row + j * b.column];
  }
}

/// Adds to kRows rows of kVectors vectors of sums the products of `depth` steps.
template <int kRows, int kVectors>
HWY_INLINE void add_products(const MatrixF64& a, const double* from, const double* HWY_RESTRICT b,
                             std::int64_t depth, double* y, std::int64_t y_row) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::LoadU(d, y + i * y_row + v * lanes);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    V right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * kColumns + v * lanes);
    for (int i = 0; i < kRows; ++i) {
      const V left = hn::Set(d, from[i * a.row + k * a.column]);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, y + i * y_row + v * lanes);
  }
}

/// The same for all of kColumns: by two vectors at a time, which is what registers have room for.
template <int kRows>
void add_tile(const MatrixF64& a, const double* from, const double* b, std::int64_t depth,
              double* y, std::int64_t y_row) {
  const auto step = 2 * static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t j = 0; j < kColumns; j += step)
    add_products<kRows, 2>(a, from, b + j, depth, y + j, y_row);
}

void add_rows(const MatrixF64& a, std::int64_t k, const double* b, std::int64_t rows,
              std::int64_t depth, double* y, std::int64_t y_row) {
  constexpr int kTile = 6;  // with two vectors each, as many sums as AVX2 has registers for
  const double* from = a.data + k * a.column;
  std::int64_t i = 0;
  for (; i + kTile <= rows; i += kTile)
    add_tile<kTile>(a, from + i * a.row, b, depth, y + i * y_row, y_row);
  for (; i + 2 <= rows; i += 2) add_tile<2>(a, from + i * a.row, b, depth, y + i * y_row, y_row);
  for (; i < rows; ++i) add_tile<1>(a, from + i * a.row, b, depth, y + i * y_row, y_row);
}

void multiply(const MatrixF64& a, const MatrixF64& b, std::int64_t rows, std::int64_t depth,
              std::int64_t columns, double* y, std::int64_t y_row) {
  alignas(64) double copied[kDepth * kColumns];
  constexpr std::int64_t kSome =
      64;  // rows whose sums wait here where y has no room for all columns
  alignas(64) double rest[kSome * kColumns];
  for (std::int64_t i = 0; i < rows; ++i) std::fill_n(y + i * y_row, columns, 0.0);
  for (std::int64_t j = 0; j < columns; j += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - j);
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      const std::int64_t steps = std::min(kDepth, depth - k);
      copy_columns(b, b.data + k * b.row + j * b.column, steps, width, copied);
      if (width == kColumns) {
        add_rows(a, k, copied, rows, steps, y + j, y_row);
        continue;
      }
      for (std::int64_t i = 0; i < rows; i += kSome) {
        const std::int64_t some = std::min(kSome, rows - i);
        double* at = y + i * y_row + j;
        for (std::int64_t r = 0; r < some; ++r)
          std::copy_n(at + r * y_row, width, rest + r * kColumns);
        add_rows({a.data + i * a.row, a.row, a.column}, k, copied, some, steps, rest, kColumns);
        for (std::int64_t r = 0; r < some; ++r)
          std::copy_n(rest + r * kColumns, width, at + r * y_row);
      }
    }
  }
}

}  // namespace

ProductF64 find_product_f64() { return multiply; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

ProductF64 product_f64(Isa isa) { BP_SELECT_TARGET(isa, find_product_f64()); }

}  // namespace backplane::cpu
#endif
