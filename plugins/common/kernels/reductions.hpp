// Reductions, as text for kernels. A row of elements is folded in eight parts, which processors put into one
// vector register and which keeps rounding errors small.
#pragma once

namespace backplane::common {

/// FOLD_ROW folds `n` elements, `stride` apart, into `acc`. The program defines T (elements), ACC, START (the
/// empty fold), STEP(acc, v) and MEET(acc, acc); and, where these are not the elements of T at x, ELEMENT(k) and in
/// ROW_PARAMETERS the parameters of which it is, with a comma after each.
inline constexpr char kFoldRow[] = R"kernel(
#ifndef ELEMENT
#define ROW_PARAMETERS GLOBAL const STORAGE(T) *x,
#define ELEMENT(k) LOAD(T, x, k)
#endif
FUNCTION ACC fold_row(ROW_PARAMETERS i64 n, i64 stride, ACC acc) {
  i64 r = 0;
  if (n >= 16) {
    ACC part[8];
    for (int j = 0; j < 8; ++j) part[j] = START;
    for (; r + 8 <= n; r += 8) {
      for (int j = 0; j < 8; ++j) {
        ACC v = (ACC)ELEMENT((r + j) * stride);
        part[j] = STEP(part[j], v);
      }
    }
    for (int j = 0; j < 8; ++j) acc = MEET(acc, part[j]);
  }
  for (; r < n; ++r) {
    ACC v = (ACC)ELEMENT(r * stride);
    acc = STEP(acc, v);
  }
  return acc;
}
)kernel";

/// One softmax along `n` elements: the greatest, the sum of the exponentials, the quotients. With IS_LOG, the
/// logarithm of these. KEEPS: y holds the exponentials until they are scaled, and is as exact as REAL.
inline constexpr char kSoftmaxBody[] = R"kernel(
  x += i1 * n * inner + i0;
  y += i1 * n * inner + i0;
  REAL greatest = LOAD(T, x, 0);
  for (i64 k = 1; k < n; ++k) {
    REAL v = LOAD(T, x, k * inner);
    greatest = v > greatest || v != v ? v : greatest;
  }
#if KEEPS && !IS_LOG
#define EXPONENTIAL(e, k) \
  REAL e = exp_of((REAL)LOAD(T, x, (k) * inner) - greatest); \
  STORE(T, y, (k) * inner, e)
#else
#define EXPONENTIAL(e, k) REAL e = exp_of((REAL)LOAD(T, x, (k) * inner) - greatest)
#endif
  REAL part[8];
  for (int j = 0; j < 8; ++j) part[j] = LIT(0.0);
  i64 k = 0;
  for (; k + 8 <= n; k += 8) {
    for (int j = 0; j < 8; ++j) {
      EXPONENTIAL(e, k + j);
      part[j] += e;
    }
  }
  REAL sum = LIT(0.0);
  for (; k < n; ++k) {
    EXPONENTIAL(e, k);
    sum += e;
  }
  for (int j = 0; j < 8; ++j) sum += part[j];
#if IS_LOG
  REAL shift = log(sum);
  for (k = 0; k < n; ++k)
    STORE(T, y, k * inner, ((REAL)LOAD(T, x, k * inner) - greatest) - shift);
#else
  REAL factor = LIT(1.0) / sum;
#if KEEPS
  for (k = 0; k < n; ++k) STORE(T, y, k * inner, LOAD(T, y, k * inner) * factor);
#else
  for (k = 0; k < n; ++k)
    STORE(T, y, k * inner, exp_of((REAL)LOAD(T, x, k * inner) - greatest) * factor);
#endif
#endif
)kernel";

/// The same for processors where softmaxes lie side by side: a work item does up to COLUMNS of them, line by line.
inline constexpr char kSoftmaxColumns[] = R"kernel(
  i64 first = i0 * COLUMNS;
  int count = inner - first < COLUMNS ? (int)(inner - first) : COLUMNS;
  x += i1 * n * inner + first;
  y += i1 * n * inner + first;
  REAL greatest[COLUMNS], sum[COLUMNS];
  for (int j = 0; j < COLUMNS; ++j) sum[j] = LIT(0.0);
  for (int j = 0; j < count; ++j) greatest[j] = LOAD(T, x, j);
  for (i64 k = 1; k < n; ++k) {
    for (int j = 0; j < count; ++j) {
      REAL v = LOAD(T, x, k * inner + j);
      greatest[j] = v > greatest[j] || v != v ? v : greatest[j];
    }
  }
  for (i64 k = 0; k < n; ++k) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#endif
    for (int j = 0; j < count; ++j) {
      REAL e = exp_of((REAL)LOAD(T, x, k * inner + j) - greatest[j]);
      sum[j] += e;
#if KEEPS && !IS_LOG
      STORE(T, y, k * inner + j, e);
#endif
    }
  }
  for (int j = 0; j < count; ++j) sum[j] = IS_LOG ? log(sum[j]) : LIT(1.0) / sum[j];
  for (i64 k = 0; k < n; ++k) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#endif
    for (int j = 0; j < count; ++j) {
#if IS_LOG
      STORE(T, y, k * inner + j, ((REAL)LOAD(T, x, k * inner + j) - greatest[j]) - sum[j]);
#elif KEEPS
      STORE(T, y, k * inner + j, LOAD(T, y, k * inner + j) * sum[j]);
#else
      STORE(T, y, k * inner + j, exp_of((REAL)LOAD(T, x, k * inner + j) - greatest[j]) * sum[j]);
#endif
    }
  }
)kernel";

/// Normalises a row of `n` elements by its mean (unless NO_MEAN) and its root mean square; `scale` and `bias`
/// are read at SCALE_AT(k). MEAN and INVERSE are stored where wanted.
inline constexpr char kNormalizeBody[] = R"kernel(
  x += i0 * n;
  y += i0 * n;
  REAL mean = LIT(0.0);
  REAL part[8];
  i64 k = 0;
#if !NO_MEAN
  for (int j = 0; j < 8; ++j) part[j] = LIT(0.0);
  for (; k + 8 <= n; k += 8)
    for (int j = 0; j < 8; ++j) part[j] += (REAL)LOAD(T, x, k + j);
  for (; k < n; ++k) mean += (REAL)LOAD(T, x, k);
  for (int j = 0; j < 8; ++j) mean += part[j];
  mean /= (REAL)n;
#endif
  for (int j = 0; j < 8; ++j) part[j] = LIT(0.0);
  for (k = 0; k + 8 <= n; k += 8) {
    for (int j = 0; j < 8; ++j) {
      REAL d = (REAL)LOAD(T, x, k + j) - mean;
      part[j] += d * d;
    }
  }
  REAL square = LIT(0.0);
  for (; k < n; ++k) {
    REAL d = (REAL)LOAD(T, x, k) - mean;
    square += d * d;
  }
  for (int j = 0; j < 8; ++j) square += part[j];
  REAL inverse = LIT(1.0) / sqrt(square / (REAL)n + (REAL)epsilon);
  for (k = 0; k < n; ++k) {
    REAL v = ((REAL)LOAD(T, x, k) - mean) * inverse;
    v = v * (REAL)LOAD(TS, scale, SCALE_AT(k));
#if HAS_BIAS
    v += (REAL)LOAD(TS, bias, SCALE_AT(k));
#endif
    STORE(T, y, k, v);
  }
#if HAS_MEAN
  STORE(TM, out_mean, i0, mean);
#endif
#if HAS_INVERSE
  STORE(TM, out_inverse, i0, inverse);
#endif
)kernel";

}  // namespace backplane::common
