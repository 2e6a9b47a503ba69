// Matrix products and convolutions, as text for kernels: y[m][p] = the sum over c and t of
// a[m][c * TAPS + t] * b[c][offset(t) + p], with TAPS 1 for a plain product. What follows a sum (factor, bias,
// residual, activation) is done before it is stored.
//
// The batch is two-dimensional: item `batch` is (batch / inner, batch % inner), and each operand has a step
// for both parts. With ROWED the positions p are those of padded lines of `pitch` elements, of which the
// first `line` are stored, and, with DEEP, of padded planes of `lines` lines, of which the first `rows`.
//
// TY is the type of what is stored, BT that of the bias. With INTEGER a and b hold integers between -255 and 255 as floats, and
// the sums are exact in 32 bits: 256 products at most are added in floats, which hold their sum exactly. With HAS_SCALES a sum is
// scaled, rounded and moved by y's zero point; SCALES_BY: b has one scale (0), one for each column (1) or row (2).
#pragma once

namespace backplane::common {

inline constexpr char kProductArguments[] = R"kernel(
#define BATCH_ARGUMENTS \
  i64 rows_m, i64 size_p, i64 size_c, i64 a_m, i64 a_k, i64 b_c, i64 b_p, i64 y_m, i64 inner, \
  i64 a_outer, i64 a_inner, i64 b_outer, i64 b_inner, i64 y_outer, i64 y_inner, \
  i64 bias_m, i64 bias_inner, i64 pitch, i64 line, i64 lines, i64 rows, float factor
#if HAS_BIAS
#define BIAS_ARGUMENT IN(BT, bias),
#define AT_BIAS AT(bias); bias += batch % inner * bias_inner
#else
#define BIAS_ARGUMENT
#define AT_BIAS
#endif
#if HAS_RESIDUAL
#define RESIDUAL_ARGUMENT IN(T, residual),
#define AT_RESIDUAL AT(residual); residual += batch / inner * y_outer + batch % inner * y_inner
#define RESIDUAL(at) + LOAD(T, residual, at)
#else
#define RESIDUAL_ARGUMENT
#define AT_RESIDUAL
#define RESIDUAL(at)
#endif
#if TAPS > 1
#define TAPS_ARGUMENT IN(i32, tap_table),
#define AT_TAPS AT(tap_table)
#define OFFSET(t) tap_table[t]
#else
#define TAPS_ARGUMENT
#define AT_TAPS
#define OFFSET(t) 0
#endif
#if INTEGER && HAS_SCALES
#define SCALE_ARGUMENTS IN(ST, a_scale), IN(ST, b_scale), IN(ST, y_scale), IN(TY, y_zero),
#define AT_SCALES AT(a_scale); AT(b_scale); AT(y_scale); AT(y_zero)
#define SCALE(m, p) \
  ((float)LOAD(ST, a_scale, 0) * \
   (float)LOAD(ST, b_scale, SCALES_BY == 0 ? 0 : SCALES_BY == 1 ? (p) : batch % inner * bias_inner + (m)) / \
   (float)LOAD(ST, y_scale, 0))
#define RESULT(s, m, p) saturate((float)(s) * SCALE(m, p), (i32)LOAD(TY, y_zero, 0))
#else
#define SCALE_ARGUMENTS
#define AT_SCALES
#define RESULT(s, m, p) ACTIVATE(s)
#endif
#define AT_ALL \
  i64 batch = GLOBAL_ID(2); \
  AT(a); AT(b); AT(y); AT_TAPS; AT_BIAS; AT_RESIDUAL; AT_SCALES; \
  a += batch / inner * a_outer + batch % inner * a_inner; \
  b += batch / inner * b_outer + batch % inner * b_inner; \
  y += batch / inner * y_outer + batch % inner * y_inner

/* Where position p of row m is stored; -1: nowhere. */
FUNCTION i64 place_of(i64 p, i64 size_p, i64 pitch, i64 line, i64 lines, i64 rows) {
  if (p >= size_p) return -1;
#if ROWED
  i64 row = p / pitch, column = p % pitch;
  if (column >= line) return -1;
#if DEEP
  i64 plane = row / lines;
  row = row % lines;
  if (row >= rows) return -1;
  return (plane * rows + row) * line + column;
#else
  return row * line + column;
#endif
#else
  return p;
#endif
}
)kernel";

/// For processors: a work item computes MR rows of NV vectors of VW floats. A_PANEL: a is packed as
/// [m / MR][k][MR]. B_PANEL: b is packed as [p / (NV * VW)][k][NV * VW]; otherwise, without B_SLACK, the last
/// tile is moved back so that no load passes the end. ROW_AXIS: of the launch, 0 or 1; items along axis 0 follow each other, so
/// that they share what is read along the other. Stands after kVectorWords and, without INTEGER, kStoreLine (lines.hpp).
inline constexpr char kVectorProduct[] = R"kernel(
#define IT JOIN(int, VW)
#define ISTORE JOIN(vstore, VW)
#define TN (VW * NV)

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict a, i64 a_at, GLOBAL const float *restrict b, i64 b_at,
           TAPS_ARGUMENT BIAS_ARGUMENT RESIDUAL_ARGUMENT SCALE_ARGUMENTS
           OUT(TY, y), BATCH_ARGUMENTS) {
  AT_ALL;
  i64 m0 = GLOBAL_ID(ROW_AXIS) * MR, p0 = GLOBAL_ID(1 - ROW_AXIS) * TN;
#if B_PANEL
  i64 first = p0;
  b += p0 * size_c * TAPS;
#elif B_SLACK
  i64 first = p0;
  b += first;
#else
  i64 first = p0 + TN > size_p ? size_p - TN : p0;
  b += first;
#endif
#if A_PANEL
  a += m0 * size_c * TAPS;
#else
  GLOBAL const float *row[MR];
#pragma unroll
  for (int i = 0; i < MR; ++i) row[i] = a + (m0 + i < rows_m ? m0 + i : rows_m - 1) * a_m;
#endif
  VT acc[MR][NV];
#pragma unroll
  for (int i = 0; i < MR; ++i)
#pragma unroll
    for (int j = 0; j < NV; ++j) acc[i][j] = (VT)(0.0f);
#if INTEGER
  IT total[MR][NV];
#pragma unroll
  for (int i = 0; i < MR; ++i)
#pragma unroll
    for (int j = 0; j < NV; ++j) total[i][j] = (IT)(0);
  for (i64 c_first = 0; c_first < size_c; c_first += EXACT_CHANNELS) {
  i64 c_end = c_first + EXACT_CHANNELS < size_c ? c_first + EXACT_CHANNELS : size_c;
#else
  i64 c_first = 0, c_end = size_c;
#endif
  for (i64 c = c_first; c < c_end; ++c) {
    for (int t = 0; t < TAPS; ++t) {
#if B_PANEL
      GLOBAL const float *restrict from = b + (c * TAPS + t) * TN;
#else
      GLOBAL const float *restrict from = b + c * b_c + OFFSET(t);
#endif
      VT v[NV];
#pragma unroll
      for (int j = 0; j < NV; ++j) v[j] = VLOAD(j, from);
#pragma unroll
      for (int i = 0; i < MR; ++i) {
#if A_PANEL
        VT w = (VT)(a[i]);
#else
        VT w = (VT)(row[i][(c * TAPS + t) * a_k]);
#endif
#pragma unroll
        for (int j = 0; j < NV; ++j) acc[i][j] = fma(w, v[j], acc[i][j]);
      }
#if A_PANEL
      a += MR;
#endif
    }
  }
#if INTEGER
#pragma unroll
  for (int i = 0; i < MR; ++i)
#pragma unroll
    for (int j = 0; j < NV; ++j) {
      total[i][j] += JOIN(convert_int, VW)(acc[i][j]);
      acc[i][j] = (VT)(0.0f);
    }
  }
#endif
  // From here on plain loops: unrolled with the sums they would be most of the program.
  ACC sums[MR * TN];
#pragma unroll
  for (int i = 0; i < MR; ++i) {
#if !INTEGER && HAS_BIAS && !BIAS_ALONG
    VT added = (VT)(bias[(m0 + i < rows_m ? m0 + i : rows_m - 1) * bias_m]);
#endif
#pragma unroll
    for (int j = 0; j < NV; ++j) {
#if INTEGER
      ISTORE(total[i][j], j, sums + i * TN);
#else
      VT s = acc[i][j];
#if HAS_FACTOR
      s *= factor;
#endif
#if HAS_BIAS && !BIAS_ALONG
      s += added;
#endif
      VSTORE(s, j, sums + i * TN);
#endif
    }
  }
  int height = rows_m - m0 < MR ? (int)(rows_m - m0) : MR;
  // Stored in runs of positions that lie together.
  int k = p0 > first ? (int)(p0 - first) : 0;
  while (k < TN && first + k < size_p) {
    i64 p = first + k, left = size_p - p;
    if (left > TN - k) left = TN - k;
#if ROWED
    i64 rest = pitch - p % pitch;
    i64 at = place_of(p, size_p, pitch, line, lines, rows);
    if (at < 0) {
      k += (int)(rest < TN ? rest : TN);
      continue;
    }
    if (left > line - p % pitch) left = line - p % pitch;
#else
    i64 at = p;
#endif
    int run = (int)left;
#pragma unroll 1
    for (int i = 0; i < height; ++i) {
      i64 m = m0 + i, to = m * y_m + at;
      const ACC *from_sums = sums + i * TN + k;
#if INTEGER
      int j = 0;
      i32 base = 0;
#if HAS_BIAS
      base = bias[m * bias_m];
#endif
#if HAS_SCALES && SCALES_BY != 1
      float scale = SCALE(m, 0), zero = (float)LOAD(TY, y_zero, 0);
#pragma unroll 1
      for (; j + VW <= run; j += VW) {
        VT v = rint(JOIN(convert_float, VW)(VLOAD(0, from_sums + j) + (IT)(base)) * scale) + zero;
        v = v < (VT)(LOWEST) ? (VT)(LOWEST) : v;
        v = v > (VT)(HIGHEST) ? (VT)(HIGHEST) : v;
        ISTORE(JOIN(JOIN(convert_, OCL_TY), VW)(v), 0, y + to + j);
      }
#elif !HAS_SCALES
#pragma unroll 1
      for (; j + VW <= run; j += VW) ISTORE(VLOAD(0, from_sums + j) + (IT)(base), 0, y + to + j);
#endif
#pragma unroll 1
      for (; j < run; ++j) STORE(TY, y, to + j, RESULT(from_sums[j] + base, m, p + j));
#elif HAS_BIAS && BIAS_ALONG && HAS_RESIDUAL
      store_line(from_sums, run, y + to, bias + m * bias_m + p, residual + to);
#elif HAS_BIAS && BIAS_ALONG
      store_line(from_sums, run, y + to, bias + m * bias_m + p);
#elif HAS_RESIDUAL
      store_line(from_sums, run, y + to, residual + to);
#else
      store_line(from_sums, run, y + to);
#endif
    }
    k += run;
  }
}
)kernel";

/// For everything else: a group of 16 x 16 computes a tile of 64 x 64 through local memory.
inline constexpr char kLocalProduct[] = R"kernel(
#define TILE 64
#define DEPTH 16
KERNEL run(IN(T, a), IN(T, b), TAPS_ARGUMENT BIAS_ARGUMENT RESIDUAL_ARGUMENT SCALE_ARGUMENTS OUT(TY, y),
           BATCH_ARGUMENTS) {
  AT_ALL;
  LOCAL ACC tile_a[DEPTH][TILE + 1];
  LOCAL ACC tile_b[DEPTH][TILE + 1];
  int column = LOCAL_ID(0), row = LOCAL_ID(1), item = row * 16 + column;
  i64 p0 = (i64)GROUP_ID(0) * TILE, m0 = (i64)GROUP_ID(1) * TILE, size_k = size_c * TAPS;
  ACC acc[4][4];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) acc[i][j] = 0;
  for (i64 k0 = 0; k0 < size_k; k0 += DEPTH) {
    for (int n = item; n < DEPTH * TILE; n += 256) {
      int ka = n % DEPTH, ma = n / DEPTH, kb = n / TILE, pb = n % TILE;
      i64 k = k0 + ka, m = m0 + ma;
      tile_a[ka][ma] = k < size_k && m < rows_m ? (ACC)LOAD(T, a, m * a_m + k * a_k) : (ACC)0;
      k = k0 + kb;
      i64 p = p0 + pb;
      tile_b[kb][pb] = k < size_k && p < size_p
                           ? (ACC)LOAD(T, b, k / TAPS * b_c + OFFSET(k % TAPS) + p * b_p)
                           : (ACC)0;
    }
    BARRIER;
    for (int k = 0; k < DEPTH; ++k) {
      for (int i = 0; i < 4; ++i) {
        ACC w = tile_a[k][row + 16 * i];
        for (int j = 0; j < 4; ++j) acc[i][j] += w * tile_b[k][column + 16 * j];
      }
    }
    BARRIER;
  }
  for (int i = 0; i < 4; ++i) {
    i64 m = m0 + row + 16 * i;
    for (int j = 0; j < 4; ++j) {
      i64 p = p0 + column + 16 * j;
      i64 at = place_of(p, size_p, pitch, line, lines, rows);
      if (m >= rows_m || at < 0) continue;
      ACC s = acc[i][j];
#if HAS_FACTOR
      s *= factor;
#endif
#if HAS_BIAS
      s += (ACC)LOAD(BT, bias, m * bias_m + BIAS_ALONG * p);
#endif
      s = s RESIDUAL(m * y_m + at);
      STORE(TY, y, m * y_m + at, RESULT(s, m, p));
    }
  }
}
)kernel";

/// For few positions: a work item computes one sum, along the contiguous row of a.
inline constexpr char kDotProduct[] = R"kernel(
KERNEL run(IN(T, a), IN(T, b), TAPS_ARGUMENT BIAS_ARGUMENT RESIDUAL_ARGUMENT SCALE_ARGUMENTS OUT(TY, y),
           BATCH_ARGUMENTS) {
  AT_ALL;
  i64 m = GLOBAL_ID(0), p = GLOBAL_ID(1), k = 0, size_k = size_c * TAPS;
  if (m >= rows_m) return;
  a += m * a_m;
  b += p * b_p;
  ACC part[8];
  for (int j = 0; j < 8; ++j) part[j] = 0;
  for (; k + 8 <= size_k; k += 8)
    for (int j = 0; j < 8; ++j)
      part[j] += (ACC)LOAD(T, a, (k + j) * a_k) *
                 (ACC)LOAD(T, b, (k + j) / TAPS * b_c + OFFSET((k + j) % TAPS));
  ACC s = 0;
  for (; k < size_k; ++k)
    s += (ACC)LOAD(T, a, k * a_k) * (ACC)LOAD(T, b, k / TAPS * b_c + OFFSET(k % TAPS));
  for (int j = 0; j < 8; ++j) s += part[j];
#if HAS_FACTOR
  s *= factor;
#endif
#if HAS_BIAS
  s += (ACC)LOAD(BT, bias, m * bias_m + BIAS_ALONG * p);
#endif
  i64 at = place_of(p, size_p, pitch, line, lines, rows);
  if (at < 0) return;
  s = s RESIDUAL(m * y_m + at);
  STORE(TY, y, m * y_m + at, RESULT(s, m, p));
}
)kernel";

}  // namespace backplane::common
