// Products of few rows and a matrix, as text for kernels: there is little to compute, and the time is what the matrix takes to come from
// memory. So items read 16 bytes at a time, ask for many such words before they need the first, and meet when all is read.
//
//   y[matrix][row][column] = ACTIVATE(factor * the sum over k of a[matrix][row][k] b[matrix][k][column] + addend_factor * c + bias)
//
// c has y's steps. The program says T (of a, b, c, bias and y; sums are float), V, the elements of T in 16 bytes, and
//
//   ROWS      how many rows there are, or more of them
//   APART     0: b lies as [depth][columns], 1: as [columns][depth]; `b_step` elements are from one of the first axis to the next
//   PER       columns of an item: V that lie together; with APART any number
//   ACROSS    items beside each other along the columns; 1 with APART
//   LANES     items that share columns, each at its own places along the depth
//   GROUP     items of a group: ACROSS * LANES, with APART any multiple of that
//   UNROLLED  places along the depth, of LANES items, that are asked for at once
//   IS_PART   1: of a part of the depth (GROUP_ID(1)), whose sums are stored as they are, [parts][matrices][rows][columns]
//
// ROWS, PER and all numbers of items are powers of two.
#pragma once

namespace backplane::common {

inline constexpr char kRowProductWords[] = R"kernel(
#define UNROLL _Pragma("unroll")
#define SOONER(a, b) ((a) < (b) ? (a) : (b))
// What becomes of a sum.
#if HAS_ADDEND
#define WITH_ADDEND(sum, at) FMA(addend_factor, (float)LOAD(T, c, at), factor * (sum))
#else
#define WITH_ADDEND(sum, at) (factor * (sum))
#endif
#if HAS_BIAS
#define WITH_BIAS(sum, at) ((sum) + (float)LOAD(T, bias, at))
#else
#define WITH_BIAS(sum, at) (sum)
#endif
#define STORE_RESULT(sum, matrix, row, column)                                            \
  {                                                                                       \
    i64 place = (matrix) * y_matrix + (row) * y_row + (column);                           \
    float whole = WITH_BIAS(WITH_ADDEND(sum, place), (matrix) * bias_matrix + (column));  \
    STORE(T, y, place, ACTIVATE(whole));                                                  \
  }
)kernel";

/// Before the kernel. That one group at a time is enough has the compiler keep all words that are asked for at once in registers: else
/// it asks for some when it has used others, to leave room for more groups.
inline constexpr char kRowProductBounds[] = R"kernel(
#ifdef __CUDACC__
#undef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP, 1)
#else
#endif
)kernel";

/// Stands after kWideRows (rows.hpp).
inline constexpr char kRowProductGroup[] = R"kernel(
#define WIDE JOIN(wide_, T)
#define UNPACK(words, to) JOIN(unpack_, T)(words, to)
#define NOTHING(words) (words.x = 0, words.y = 0, words.z = 0, words.w = 0)
#define SHARED (LANES * ACROSS)
#define SIDES (GROUP / SHARED)
#define SUMS (ROWS * PER)
#define ROW(r) (ROWS == 1 ? 0 : SOONER(r, rows - 1))
// Numbers of a side that are stored, and that an item with all of the depth would have beside its neighbours.
#define NEAR (SUMS * ACROSS)
#ifdef __CUDACC__
#define TOGETHER (SHARED < 32 ? SHARED : 32)
#define HELD (NEAR > TOGETHER ? NEAR / TOGETHER : 1)
  LOCAL float met[GROUP / TOGETHER * NEAR];
#else
  LOCAL float met[GROUP * SUMS];
#endif
  int item = (int)LOCAL_ID(0), across = item % ACROSS, lane = item / ACROSS % LANES, side = item / SHARED;
  i64 matrix = GROUP_ID(2), part = GROUP_ID(1), strip = (i64)GROUP_ID(0) * (SIDES * ACROSS * PER);
  i64 begin = part * part_depth, end = SOONER(begin + part_depth, depth);
  a += matrix * a_matrix;
  b += matrix * b_matrix;
  float sums[SUMS];
  UNROLL for (int s = 0; s < SUMS; ++s) sums[s] = 0.0f;
#define ALWAYS(u) 1
#if APART
  i64 first = strip + side * PER;
  int is_wide = IS_WIDE(a) && IS_WIDE(b) && a_k == 1 && depth % V == 0 && b_step % V == 0 && (ROWS == 1 || a_row % V == 0);
#define IS_INSIDE(u) (k + (u) * (LANES * V) < end)
#define TAKE(IS_THERE)                                                                                             \
  {                                                                                                                \
    WIDE w[UNROLLED * PER], x[UNROLLED * ROWS];                                                                    \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                                    \
      UNROLL for (int c = 0; c < PER; ++c) {                                                                       \
        NOTHING(w[u * PER + c]);                                                                                   \
        if (IS_THERE(u)) w[u * PER + c] = *(GLOBAL const WIDE *)(from[c] + k + u * (LANES * V));                   \
      }                                                                                                            \
    }                                                                                                              \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                                    \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                                      \
        NOTHING(x[u * ROWS + r]);                                                                                  \
        if (IS_THERE(u)) x[u * ROWS + r] = *(GLOBAL const WIDE *)(a + ROW(r) * a_row + k + u * (LANES * V)); \
      }                                                                                                            \
    }                                                                                                              \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                                    \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                                      \
        VALUE(T) own[V];                                                                                           \
        UNPACK(x[u * ROWS + r], own);                                                                              \
        UNROLL for (int c = 0; c < PER; ++c) {                                                                     \
          VALUE(T) near[V];                                                                                        \
          UNPACK(w[u * PER + c], near);                                                                            \
          UNROLL for (int e = 0; e < V; ++e) sums[r * PER + c] = FMA((float)own[e], (float)near[e], sums[r * PER + c]); \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }
  GLOBAL const STORAGE(T) *from[PER];
  UNROLL for (int c = 0; c < PER; ++c) from[c] = b + SOONER(first + c, columns - 1) * b_step;
  if (is_wide) {
    for (i64 k = begin + lane * V; k < end; k += LANES * V * UNROLLED) {
      if (IS_INSIDE(UNROLLED - 1)) {
        TAKE(ALWAYS)
      } else {
        TAKE(IS_INSIDE)
      }
    }
  } else {
    _Pragma("unroll 4") for (i64 k = begin + lane; k < end; k += LANES) {
      float near[PER];
      UNROLL for (int c = 0; c < PER; ++c) near[c] = (float)LOAD(T, from[c], k);
      UNROLL for (int r = 0; r < ROWS; ++r) {
        float own = (float)LOAD(T, a, ROW(r) * a_row + k * a_k);
        UNROLL for (int c = 0; c < PER; ++c) sums[r * PER + c] = FMA(own, near[c], sums[r * PER + c]);
      }
    }
  }
#else
  // Where columns are read one by one, those of neighbours lie beside each other.
  int is_wide = IS_WIDE(b) && b_step % V == 0;
  i64 first = is_wide ? strip + across * V : strip + across, gap = is_wide ? 1 : ACROSS;
#define IS_INSIDE(u) (k + (u) * LANES < end)
#define TAKE(IS_THERE)                                                                                       \
  {                                                                                                          \
    WIDE w[UNROLLED];                                                                                        \
    float x[UNROLLED * ROWS];                                                                                \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                              \
      NOTHING(w[u]);                                                                                         \
      if (IS_THERE(u)) w[u] = *(GLOBAL const WIDE *)(from + u * jump);                                       \
    }                                                                                                        \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                              \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                                \
        x[u * ROWS + r] = 0.0f;                                                                              \
        if (IS_THERE(u)) x[u * ROWS + r] = (float)LOAD(T, a, ROW(r) * a_row + (k + u * LANES) * a_k); \
      }                                                                                                      \
    }                                                                                                        \
    UNROLL for (int u = 0; u < UNROLLED; ++u) {                                                              \
      VALUE(T) near[V];                                                                                      \
      UNPACK(w[u], near);                                                                                    \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                                \
        UNROLL for (int e = 0; e < V; ++e)                                                                   \
          sums[r * V + e] = FMA(x[u * ROWS + r], (float)near[e], sums[r * V + e]);                           \
      }                                                                                                      \
    }                                                                                                        \
  }
  if (is_wide && first + V <= columns) {
    i64 k = begin + lane, jump = LANES * b_step;
    GLOBAL const STORAGE(T) *from = b + k * b_step + first;
    for (; k < end; k += LANES * UNROLLED, from += jump * UNROLLED) {
      if (IS_INSIDE(UNROLLED - 1)) {
        TAKE(ALWAYS)
      } else {
        TAKE(IS_INSIDE)
      }
    }
  } else if (first < columns) {
    _Pragma("unroll 2") for (i64 k = begin + lane; k < end; k += LANES) {
      float near[V];
      UNROLL for (int e = 0; e < V; ++e) near[e] = (float)LOAD(T, b, k * b_step + SOONER(first + e * gap, columns - 1));
      UNROLL for (int r = 0; r < ROWS; ++r) {
        float own = (float)LOAD(T, a, ROW(r) * a_row + k * a_k);
        UNROLL for (int e = 0; e < V; ++e) sums[r * V + e] = FMA(own, near[e], sums[r * V + e]);
      }
    }
  }
#endif
#ifdef __CUDACC__
  // Neighbours with the same columns halve the sums between them, as long as there are several.
  int kept = 0;
  UNROLL for (int d = ACROSS, half = SUMS / 2; d < TOGETHER; d *= 2, half /= 2) {
    int is_upper = half > 0 && (item & d) != 0;
    UNROLL for (int s = 0; s < SUMS; ++s) {
      if (s < half || (half == 0 && s == 0)) {
        float given = is_upper ? sums[s] : sums[s + half], own = is_upper ? sums[s + half] : sums[s];
        sums[s] = own + __shfl_xor_sync(0xffffffffu, given, d);
      }
    }
    kept += is_upper ? half : 0;
  }
  if (item % TOGETHER < NEAR) {
    UNROLL for (int s = 0; s < HELD; ++s) met[item / TOGETHER * NEAR + (kept + s) * ACROSS + across] = sums[s];
  }
#else
  for (int s = 0; s < SUMS; ++s) met[item * SUMS + s] = sums[s];
#endif
  BARRIER;
  for (int i = item; i < SIDES * NEAR; i += GROUP) {
    int of_side = i / NEAR, at = i % NEAR % ACROSS, s = i % NEAR / ACROSS;
    float sum = 0.0f;
#ifdef __CUDACC__
    UNROLL for (int m = 0; m < SHARED / TOGETHER; ++m) sum += met[(of_side * (SHARED / TOGETHER) + m) * NEAR + i % NEAR];
#else
    for (int l = 0; l < LANES; ++l) sum += met[(of_side * SHARED + l * ACROSS + at) * SUMS + s];
#endif
    i64 row = s / PER;
#if APART
    i64 column = strip + of_side * PER + s % PER;
#else
    i64 column = is_wide ? strip + at * PER + s % PER : strip + s % PER * ACROSS + at;
#endif
    if (row >= rows || column >= columns) continue;
#if IS_PART
    STORE(f32, y, ((part * matrices + matrix) * rows + row) * columns + column, sum);
#else
    STORE_RESULT(sum, matrix, row, column)
#endif
  }
)kernel";

/// Adds what the parts found, in their order.
inline constexpr char kRowProductParts[] = R"kernel(
  i64 i = GLOBAL_ID(0), all = matrices * rows * columns;
  if (i < all) {
    float sum = 0.0f;
    _Pragma("unroll 8") for (i64 p = 0; p < parts; ++p) sum += LOAD(f32, found, p * all + i);
    i64 column = i % columns, row = i / columns;
    STORE_RESULT(sum, row / rows, row % rows, column)
  }
)kernel";

}  // namespace backplane::common
