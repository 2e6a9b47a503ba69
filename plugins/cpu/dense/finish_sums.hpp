// What is done to the 32-bit sums of products of bytes: zero points that are known only while a network runs
// are taken off, and sums become floats, in place, while a tile is in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/dense/activation.hpp"

namespace backplane::cpu {

/// sum[i][j] += row[i * row_step] * column[j]; no column: nothing. Sums wrap.
struct SumTerm {
  const std::int32_t* row = nullptr;
  std::int64_t row_step = 0;  // 0: one number for all rows
  const std::int32_t* column = nullptr;
};

/// y[i][j] = f(sum[i][j] * (factor * scale[j]) + bias[j] + residual[i][j]), each step rounded to float as in
/// the nodes that it stands for.
struct SumsToFloats {
  float factor = 1;
  const float* scale = nullptr;
  std::int64_t scale_step = 0;      // 0: one for all columns
  const float* bias = nullptr;      // null: none
  const float* residual = nullptr;  // null: none
  std::int64_t residual_stride = 0;
  Activation activation;
};

/// A tile of sums: rows and columns are numbered as in the whole matrix. Strides count elements.
struct SumTile {
  void* data;
  std::int64_t stride;
  std::int64_t row, rows;
  std::int64_t column, columns;
};

struct FinishSums {
  using Function = void (*)(const FinishSums& finish, const SumTile& tile);

  SumTerm terms[2];
  bool floats = false;
  SumsToFloats to_floats;
  Function function = nullptr;
  const ActivationKernels* activations = nullptr;  // of floats

  /// Chooses the function; to be called when all else is set.
  void choose(Isa isa);
  void run(const SumTile& tile) const;
};

/// The sum of a row's bytes, each after `flip` (0, or 0x80 for signed ones, then 128 more each).
using SumBytes = std::uint32_t (*)(const std::uint8_t* x, std::int64_t n, std::uint8_t flip);
SumBytes sum_bytes(Isa isa);

}  // namespace backplane::cpu
