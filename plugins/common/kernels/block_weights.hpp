// Products with weights that stay packed, as text for kernels on devices: numbers of BITS bits (2, 4 or 8) in blocks of BLOCK, a
// power of two, with a scale and a zero point each, as com.microsoft's MatMulNBits has them.
//
// A column of the weights is `blocks` blocks along the depth, whose last may pass it; numbers lie in bytes, the lowest bits first.
//
// The program says T (of a, bias and what weights are written as), TS (of scales), ZEROS (0: there are none, and the middle is zero;
// 1: packed as the weights are, `zero_bytes` a column; 2: elements of TZ), and UNIT, the numbers that are read at once: of one block,
// and of 16 bytes at most.
#pragma once

namespace backplane::common {

inline constexpr char kBlockWords[] = R"kernel(
#define UNROLL _Pragma("unroll")
#define MASK ((1u << BITS) - 1u)
#define NUMBERS (32 / BITS)
#define WORDS (UNIT / NUMBERS)
#define SOONER(a, b) ((a) < (b) ? (a) : (b))
#define SCALE(column, block) ((float)LOAD(TS, scales, (column) * blocks + (block)))
// 2^23 + n is a float whose lowest bits are n, and what is subtracted from it is exact.
#define SHIFTED(word, e) BITS_FLOAT(0x4B000000u | ((word) >> ((e) * BITS) & MASK))
#if ZEROS == 2
#define BASE(column, block) ((float)LOAD(TZ, zeros, (column) * blocks + (block)))
#define NUMBER(word, e, base) ((SHIFTED(word, e) - 8388608.0f) - (base))
#else
#if ZEROS == 1
#define ZERO(column, block) ((u32)zeros[(column) * zero_bytes + (block) * BITS / 8] >> ((block) * BITS % 8) & MASK)
#else
#define ZERO(column, block) (1u << (BITS - 1))
#endif
#define BASE(column, block) (8388608.0f + (float)ZERO(column, block))
#define NUMBER(word, e, base) (SHIFTED(word, e) - (base))
#endif
// 2^BITS + n is a float whose highest bits of the fraction are n. What is too much of a product with it is taken off sums.
#define RAISE ((float)(1 << BITS))
#define MOVED(word, by) ((by) > 0 ? (word) >> ((by) & 31) : (word) << (-(by) & 31))
#define RAISED(word, e) BITS_FLOAT(masked(MOVED(word, ((e) + 1) * BITS - 23), MASK << (23 - BITS), (127u + BITS) << 23))
// (word & mask) | bits; by instruction, since of two constants NVRTC makes two.
#ifdef __CUDACC__
FUNCTION u32 masked(u32 word, u32 mask, u32 bits) {
  u32 made;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(made) : "r"(word), "r"(mask), "r"(bits));
  return made;
}
#else
#define masked(word, mask, bits) (((word) & (mask)) | (bits))
#endif
#if HAS_BIAS
#define WITH_BIAS(sum, column) ((sum) + (float)LOAD(T, bias, column))
#else
#define WITH_BIAS(sum, column) (sum)
#endif
#if ZEROS == 2
#define ZERO_OF(column, block) BASE(column, block)
#else
#define ZERO_OF(column, block) ((float)ZERO(column, block))
#endif
#define UNIT_AT(column, k) (weights + ((column) * blocks * BLOCK + (k)) * BITS / 8)

#if WORDS == 4
#define WIDE_WORDS uint4
#define UNPACK_WORDS(w, to) ((to)[0] = w.x, (to)[1] = w.y, (to)[2] = w.z, (to)[3] = w.w)
#elif WORDS == 2
#define WIDE_WORDS uint2
#define UNPACK_WORDS(w, to) ((to)[0] = w.x, (to)[1] = w.y)
#else
#define WIDE_WORDS u32
#define UNPACK_WORDS(w, to) ((to)[0] = w)
#endif
FUNCTION void read_unit(GLOBAL const u8 *p, u32 *to) {
  if (((size_t)p & (WORDS * 4 - 1)) == 0) {
    WIDE_WORDS w = *(GLOBAL const WIDE_WORDS *)p;
    UNPACK_WORDS(w, to);
  } else {
    for (int i = 0; i < WORDS; ++i, p += 4) to[i] = (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
  }
}
)kernel";

/// A group, which is PART_GROUP of its product's, has SIDES * COLUMNS columns and ROWS rows of a. LANES items share COLUMNS columns: a
/// lane reads units of them, at distances of LANES * UNIT, each once for all rows. All that a step reads of the weights, and of a lone
/// row, is asked for before any of it is needed: rows of a model that decodes wait for memory and for little else.
inline constexpr char kPackedGroup[] = R"kernel(
#define SIDES (GROUP / LANES)
#define SUMS (ROWS * COLUMNS)
#define STEP (NUMBERS > V ? NUMBERS : V)
#ifdef __CUDACC__
#define TOGETHER (LANES < 32 ? LANES : 32)
  LOCAL float scratch[SUMS * (GROUP / TOGETHER)];
#else
  LOCAL float scratch[SUMS * GROUP];
#endif
  int item = (int)LOCAL_ID(0), lane = item % LANES, side = item / LANES;
  i64 first_row = (i64)GROUP_ID(1) * ROWS, first = (PART_GROUP * SIDES + side) * COLUMNS;
  int is_even = ((size_t)weights & (WORDS * 4 - 1)) == 0;
  int is_wide = IS_WIDE(a) && (rows == 1 || depth % V == 0);
  float sums[SUMS];
  UNROLL for (int s = 0; s < SUMS; ++s) sums[s] = 0.0f;
  for (i64 k = (i64)lane * UNIT; k < depth; k += LANES * UNIT) {
    i64 block = k / BLOCK;
    u32 words[COLUMNS * WORDS];
    float scale[COLUMNS], zero[COLUMNS], part[SUMS], own[ROWS];
    if (is_even) {
      UNROLL for (int c = 0; c < COLUMNS; ++c) {
        WIDE_WORDS w = *(GLOBAL const WIDE_WORDS *)UNIT_AT(SOONER(first + c, columns - 1), k);
        UNPACK_WORDS(w, words + c * WORDS);
      }
    } else {
      UNROLL for (int c = 0; c < COLUMNS; ++c) read_unit(UNIT_AT(SOONER(first + c, columns - 1), k), words + c * WORDS);
    }
#if ROWS == 1
    JOIN(wide_, T) taken[UNIT / V];
    if (is_wide && k + UNIT <= depth) {
      UNROLL for (int w = 0; w < UNIT / V; ++w) taken[w] = *(GLOBAL const JOIN(wide_, T) *)(a + first_row * depth + k + w * V);
    } else {
      UNROLL for (int w = 0; w < UNIT / V; ++w) taken[w] = wide_of(a + first_row * depth + k + w * V, depth - k - w * V);
    }
#endif
    UNROLL for (int c = 0; c < COLUMNS; ++c) {
      i64 column = SOONER(first + c, columns - 1);
      scale[c] = SCALE(column, block);
      zero[c] = ZERO_OF(column, block);
    }
    UNROLL for (int s = 0; s < SUMS; ++s) part[s] = 0.0f;
    UNROLL for (int r = 0; r < ROWS; ++r) own[r] = 0.0f;
    // Words move to the front, so that no index depends on the step. Unrolled, they need not, but OpenCL's compilers take seconds.
#ifdef __CUDACC__
    UNROLL
#endif
    for (int at = 0; at < UNIT; at += STEP) {
      float number[COLUMNS * STEP];
      UNROLL for (int c = 0; c < COLUMNS; ++c)
        UNROLL for (int e = 0; e < STEP; ++e) number[c * STEP + e] = RAISED(words[c * WORDS + e / NUMBERS], e % NUMBERS);
      UNROLL for (int r = 0; r < ROWS; ++r) {
        VALUE(T) x[STEP];
#if ROWS == 1
        UNROLL for (int e = 0; e < STEP; e += V) {
          JOIN(wide_, T) w = taken[e / V];
          JOIN(unpack_, T)(w, (x + e));
        }
#else
        GLOBAL const STORAGE(T) *row = a + SOONER(first_row + r, rows - 1) * depth + k + at;
        if (is_wide && k + at + STEP <= depth) {
          UNROLL for (int e = 0; e < STEP; e += V) {
            JOIN(wide_, T) w = *(GLOBAL const JOIN(wide_, T) *)(row + e);
            JOIN(unpack_, T)(w, (x + e));
          }
        } else {
          UNROLL for (int e = 0; e < STEP; ++e) x[e] = k + at + e < depth ? LOAD(T, row, e) : 0.0f;
        }
#endif
        UNROLL for (int e = 0; e < STEP; ++e) {
          own[r] += (float)x[e];
          UNROLL for (int c = 0; c < COLUMNS; ++c)
            part[r * COLUMNS + c] = FMA((float)x[e], number[c * STEP + e], part[r * COLUMNS + c]);
        }
      }
      UNROLL for (int w = 0; w + STEP / NUMBERS < COLUMNS * WORDS; ++w) words[w] = words[w + STEP / NUMBERS];
#if ROWS == 1
      UNROLL for (int w = 0; w + STEP / V < UNIT / V; ++w) taken[w] = taken[w + STEP / V];
#endif
    }
    UNROLL for (int s = 0; s < SUMS; ++s) {
      float less = FMA(-RAISE, own[s / COLUMNS], part[s]);
      sums[s] = FMA(FMA(-zero[s % COLUMNS], own[s / COLUMNS], less), scale[s % COLUMNS], sums[s]);
    }
  }
#ifdef __CUDACC__
  UNROLL for (int d = TOGETHER / 2; d > 0; d /= 2)
    UNROLL for (int s = 0; s < SUMS; ++s) sums[s] += __shfl_xor_sync(0xffffffffu, sums[s], d);
  if (LANES > TOGETHER) {
    UNROLL for (int s = 0; s < SUMS; ++s)
      if (lane % TOGETHER == s % TOGETHER) scratch[item / TOGETHER * SUMS + s] = sums[s];
    BARRIER;
    UNROLL for (int s = 0; s < SUMS; ++s) {
      if (s % LANES == lane) {
        sums[s] = 0.0f;
        for (int l = 0; l < LANES / TOGETHER; ++l) sums[s] += scratch[(side * (LANES / TOGETHER) + l) * SUMS + s];
      }
    }
  }
#else
  for (int s = 0; s < SUMS; ++s) scratch[s * GROUP + item] = sums[s];
  BARRIER;
  for (int d = LANES / 2; d > 0; d /= 2) {
    for (int s = 0; lane < d && s < SUMS; ++s) scratch[s * GROUP + item] += scratch[s * GROUP + item + d];
    BARRIER;
  }
#endif
  // Lanes take turns to store sums.
  UNROLL for (int s = 0; s < SUMS; ++s) {
    i64 row = first_row + s / COLUMNS, column = first + s % COLUMNS;
    if (s % LANES == lane && row < rows && column < columns) {
#ifdef __CUDACC__
      float sum = sums[s];
#else
      float sum = scratch[s * GROUP + side * LANES];
#endif
      STORE(T, y, row * columns + column, WITH_BIAS(sum, column));
    }
  }
)kernel";

/// V elements of T, zeros after `count` of them.
inline constexpr char kWideOf[] = R"kernel(
FUNCTION JOIN(wide_, T) wide_of(GLOBAL const STORAGE(T) *p, i64 count) {
  VALUE(T) x[V];
  for (int e = 0; e < V; ++e) x[e] = e < count ? LOAD(T, p, e) : 0.0f;
  JOIN(wide_, T) w;
  JOIN(pack_, T)(w, x);
  return w;
}
)kernel";

/// Of VW bytes with BITS bits each number, every PLANES-th number is of one plane, a vector when it is unpacked; such are CHUNK numbers.
inline constexpr char kPlaneWords[] = R"kernel(
#define PLANES (8 / BITS)
#define CHUNK (VW * PLANES)
)kernel";

/// Body of a walk over rows and whole blocks of the depth: rows as floats whose chunks are planes, zeros at the end.
inline constexpr char kRowPlanes[] = R"kernel(
  i64 k = i0 / CHUNK * CHUNK + i0 % VW * PLANES + i0 % CHUNK / VW;
  y[i1 * padded + i0] = k < depth ? (float)LOAD(T, a, i1 * depth + k) : 0.0f;
)kernel";

/// For an item that has a core to itself, in a group of its own: COLUMNS columns and ROWS rows, which are planes, in vectors of VW floats.
/// A chunk is of one block.
inline constexpr char kPackedTile[] = R"kernel(
#define VT JOIN(float, VW)
#define BYTES JOIN(uchar, VW)
#define VLOAD JOIN(vload, VW)
  i64 first_row = (i64)GROUP_ID(1) * ROWS, first = (i64)GROUP_ID(0) * COLUMNS;
  VT sums[ROWS][COLUMNS];
  UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int c = 0; c < COLUMNS; ++c) sums[r][c] = (VT)(0.0f);
  for (i64 block = 0; block < blocks; ++block) {
    float scale[COLUMNS], moved[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) {
      i64 column = SOONER(first + c, columns - 1);
      scale[c] = SCALE(column, block);
      moved[c] = NUMBER(0u, 0, BASE(column, block)) * scale[c];
    }
    for (i64 k = block * BLOCK; k < (block + 1) * BLOCK; k += CHUNK) {
      VT weight[COLUMNS][PLANES];
      UNROLL for (int c = 0; c < COLUMNS; ++c) {
        BYTES bytes = VLOAD(0, UNIT_AT(SOONER(first + c, columns - 1), k));
        UNROLL for (int p = 0; p < PLANES; ++p)
          weight[c][p] = fma(JOIN(convert_float, VW)(bytes >> (BYTES)(p * BITS) & (BYTES)(MASK)), (VT)(scale[c]), (VT)(moved[c]));
      }
      UNROLL for (int r = 0; r < ROWS; ++r) {
        GLOBAL const float *row = planes + SOONER(first_row + r, rows - 1) * padded + k;
        UNROLL for (int p = 0; p < PLANES; ++p) {
          VT x = VLOAD(p, row);
          UNROLL for (int c = 0; c < COLUMNS; ++c) sums[r][c] = fma(x, weight[c][p], sums[r][c]);
        }
      }
    }
  }
  UNROLL for (int r = 0; r < ROWS; ++r)
    UNROLL for (int c = 0; c < COLUMNS; ++c) {
      float parts[VW], sum = 0.0f;
      JOIN(vstore, VW)(sums[r][c], 0, parts);
      for (int l = 0; l < VW; ++l) sum += parts[l];
      i64 row = first_row + r, column = first + c;
      if (row < rows && column < columns) STORE(T, y, row * columns + column, WITH_BIAS(sum, column));
    }
)kernel";

/// Body of a walk over columns and steps of STEP numbers: writes weights out, element k of column c at c * column_step + k * depth_step.
/// IS_ALONG: i0 is the step, and depth_step is 1; otherwise i0 is the column.
inline constexpr char kWriteWeights[] = R"kernel(
#define STEP UNIT
#if IS_ALONG
  i64 column = i1, k = i0 * STEP, block = k / BLOCK;
#else
  i64 column = i0, k = i1 * STEP, block = k / BLOCK;
#endif
  u32 words[WORDS];
  read_unit(UNIT_AT(first_column + column, k), words);
  float base = BASE(first_column + column, block), scale = SCALE(first_column + column, block);
  VALUE(T) number[STEP];
  UNROLL for (int e = 0; e < STEP; ++e) number[e] = NUMBER(words[e / NUMBERS], e % NUMBERS, base) * scale;
  y += column * column_step + k * depth_step;
#if IS_ALONG
  if (k + STEP <= depth) {
    UNROLL for (int e = 0; e < STEP; e += V) WRITE(T, y + e, (number + e));
    return;
  }
#endif
  UNROLL for (int e = 0; e < STEP; ++e) {
    if (k + e < depth) STORE(T, y, e * depth_step, number[e]);
  }
)kernel";

/// Writes weights as floats in panels, [columns / PANEL][depth][PANEL]: an item, in a group of its own, does a block of a panel's
/// columns, in loops over neighbouring columns, of which compilers make vectors.
inline constexpr char kWritePanels[] = R"kernel(
  i64 block = GROUP_ID(0), panel = GROUP_ID(1), first = panel * PANEL, k0 = block * BLOCK;
  float base[PANEL], scale[PANEL];
  for (int c = 0; c < PANEL; ++c) {
    i64 column = SOONER(first_column + first + c, columns - 1);
    base[c] = BASE(column, block);
    scale[c] = SCALE(column, block);
  }
  y += (panel * depth + k0) * PANEL;
  for (int k = 0; k < BLOCK; k += UNIT) {
    u32 words[WORDS][PANEL];
    for (int c = 0; c < PANEL; ++c) {
      u32 own[WORDS];
      read_unit(UNIT_AT(SOONER(first_column + first + c, columns - 1), k0 + k), own);
      for (int w = 0; w < WORDS; ++w) words[w][c] = own[w];
    }
    for (int e = 0; e < UNIT && k0 + k + e < depth; ++e)
      for (int c = 0; c < PANEL; ++c) y[(k + e) * PANEL + c] = NUMBER(words[e / NUMBERS][c], e % NUMBERS, base[c]) * scale[c];
  }
)kernel";

}  // namespace backplane::common
