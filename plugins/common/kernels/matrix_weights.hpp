// Few rows times weights of 4 bits that stay packed, by the matrix units of CUDA's devices, as text for kernels: the weights become
// float16, as they do where they are written out, and sums are float32. See block_weights.hpp, whose words these are.
#pragma once

namespace backplane::common {

/// 16 columns of the weights, two of them a lane's, times up to 8 rows. Which numbers a lane's are does not matter, as long as rows
/// have the same order: of a word they are those that stand 16 bits apart, the fractions of two halves at once.
inline constexpr char kMatrixWords[] = R"kernel(
FUNCTION u32 pair_less(u32 a, u32 b) {
  u32 made;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(made) : "r"(a), "r"(b));
  return made;
}
FUNCTION u32 pair_times(u32 a, u32 b) {
  u32 made;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(made) : "r"(a), "r"(b));
  return made;
}
// `zero` and `scale` stand in both halves. 1024 + n is a half whose lowest bits are n; 64 + n has it four bits higher.
FUNCTION void numbers_of(u32 word, u32 zero, u32 scale, u32 *to) {
  u32 low = 0x64006400u | zero, high = 0x54005400u | zero << 4;
  UNROLL for (int i = 0; i < 4; i += 2) {
    to[i] = pair_times(pair_less(masked(word, 0x000F000Fu, 0x64006400u), low), scale);
    to[i + 1] = pair_times(pair_less(masked(word, 0x00F000F0u, 0x54005400u), high), scale);
    word >>= 8;
  }
}
)kernel";

inline constexpr char kMatrixGroup[] = R"kernel(
#define WARPS (GROUP / 32)
  LOCAL float met[WARPS * 16 * ROWS];
  int item = (int)LOCAL_ID(0), lane = item % 32, warp = item / 32, quad = lane / 4, in_quad = lane % 4;
  i64 first_row = (i64)GROUP_ID(1) * ROWS, first = PART_GROUP * 16, units = blocks * (BLOCK / UNIT);
  i64 own_columns[2] = {SOONER(first + quad, columns - 1), SOONER(first + quad + 8, columns - 1)};
  int is_even = ((size_t)weights & 15) == 0;
  a += SOONER(first_row + quad % ROWS, rows - 1) * depth;
  int is_wide = IS_WIDE(a);
  float sums[4][4];
  UNROLL for (int s = 0; s < 16; ++s) sums[s / 4][s % 4] = 0.0f;
  _Pragma("unroll 2") for (i64 begin = warp * 4; begin < units; begin += WARPS * 4) {
    int is_unit = begin + in_quad < units;
    i64 k = (is_unit ? begin + in_quad : units - 1) * UNIT, block = k / BLOCK;
    u32 words[2][4], scale[2], zero[2];
    uint4 taken[4];
    UNROLL for (int c = 0; c < 2; ++c) {
      if (is_even) {
        uint4 w = *(const uint4 *)UNIT_AT(own_columns[c], k);
        UNPACK_WORDS(w, words[c]);
      } else {
        read_unit(UNIT_AT(own_columns[c], k), words[c]);
      }
    }
    if (is_wide && is_unit && k + UNIT <= depth) {
      UNROLL for (int i = 0; i < 4; ++i) taken[i] = *(const uint4 *)(a + k + i * 8);
    } else {
      UNROLL for (int i = 0; i < 4; ++i) taken[i] = wide_of(a + k + i * 8, is_unit ? depth - k - i * 8 : 0);
    }
    UNROLL for (int c = 0; c < 2; ++c) {
      scale[c] = (is_unit ? scales[own_columns[c] * blocks + block] : 0u) * 0x10001u;
      zero[c] = ZERO(own_columns[c], block) * 0x10001u;
    }
    UNROLL for (int i = 0; i < 4; ++i) {
      u32 low[4], high[4];
      numbers_of(words[0][i], zero[0], scale[0], low);
      numbers_of(words[1][i], zero[1], scale[1], high);
      uint4 x = taken[i];
      add_product(sums[i % 2 * 2], low[0], high[0], low[1], high[1], __byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632));
      add_product(sums[i % 2 * 2 + 1], low[2], high[2], low[3], high[3], __byte_perm(x.y, x.w, 0x5410),
                  __byte_perm(x.y, x.w, 0x7632));
    }
  }
  UNROLL for (int s = 0; s < 4; ++s) {
    int row = in_quad * 2 + s % 2, column = quad + s / 2 * 8;
    if (row < ROWS) met[(warp * ROWS + row) * 16 + column] = (sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]);
  }
  BARRIER;
  for (int i = item; i < 16 * ROWS; i += GROUP) {
    i64 row = first_row + i / 16, column = first + i % 16;
    float sum = 0.0f;
    UNROLL for (int w = 0; w < WARPS; ++w) sum += met[w * ROWS * 16 + i];
    if (row < rows && column < columns) STORE(T, y, row * columns + column, WITH_BIAS(sum, column));
  }
)kernel";

}  // namespace backplane::common
