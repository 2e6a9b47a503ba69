// Products of packed weights of 4 or 8 bits with rows rounded to 8 bits, in integers.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/dense/nbits.hpp"

namespace backplane::cpu {

/// Rows as signed bytes, each block of a row with a scale of its own: its greatest magnitude is 127.
struct RoundedRows {
  std::int8_t* x = nullptr;      // [rows][layout.padded_depth()]
  float* scales = nullptr;       // [rows][layout.blocks()]
  std::int32_t* sums = nullptr;  // [rows][layout.blocks()]: of the bytes of a block
};

struct NBitsIntegerKernels {
  int max_rows;
  /// Fills in `to` from rows [begin, end) of `x`, which are `stride` floats apart.
  void (*round_rows)(const NBitsLayout& layout, const float* x, std::int64_t stride,
                     std::int64_t begin, std::int64_t end, const RoundedRows& to);
  /// As NBitsKernels::thin, for up to max_rows rows from `row` on. Of 8 bits the layout's words are quads.
  void (*thin)(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const RoundedRows& rows, std::int64_t row, int count, float* out);
};

/// Of panels as those of float products: 16 lanes, and 8 with AVX2. Null where there is no instruction for sums of
/// products of bytes that are exact for weights of so many bits.
const NBitsIntegerKernels* nbits_integer_kernels(Isa isa, int bits);
/// Weights of 4 bits, AVX2; null where the build has none.
const NBitsIntegerKernels* nbits_integer_kernels_avx2();

}  // namespace backplane::cpu
