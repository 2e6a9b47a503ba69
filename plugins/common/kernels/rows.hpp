// Rows that several items of a group compute together, as text for kernels on devices where one item has little
// to itself: reductions, running sums, softmax, normalisation. (Processors have an item for each row: reductions.hpp.)
//
// A group has GROUP items and GROUP_ROWS rows; LANES items, a power of two, share a row. Along the row (ACROSS 0)
// neighbouring items are lanes of one row, and each takes V neighbouring elements at a time; across it (ACROSS 1)
// neighbouring items are neighbouring rows. A row that is long and has few beside it is divided among PARTS groups:
// kernels of PHASE 1 store what each part found, and those of PHASE 2 meet these and go on.
//
// Every item stays to the end: those past the last row stand at that one, but store nothing and read none of its elements (`own_last` is
// `first`), which others may be writing in their place.
#pragma once

namespace backplane::common {

/// FOLD(TYPE, acc, MEET) makes `acc` in each lane what all lanes of the row have, met in the same order, by way of
/// shuffles among the SHUFFLED neighbours that CUDA runs together, and of local memory. MEET(a, b) = MEET(b, a).
inline constexpr char kRowFunctions[] = R"kernel(
#ifdef __CUDACC__
#define SCRATCH(TYPE) ((TYPE *)scratch)
#define SHUFFLE(TYPE, other, value, distance) \
  other = __shfl_xor_sync(0xffffffffu, value, distance)
#else
#define SCRATCH(TYPE) ((__local TYPE *)scratch)
#define SHUFFLE(TYPE, other, value, distance) \
  SCRATCH(TYPE)[item] = value;                \
  BARRIER;                                    \
  other = SCRATCH(TYPE)[item ^ (distance)];   \
  BARRIER
#endif
#define UNROLL _Pragma("unroll")

#define FOLD(TYPE, acc, MEET)                                         \
  {                                                                   \
    for (int d = SHUFFLED / 2; d > 0; d /= 2) {                       \
      TYPE other;                                                     \
      SHUFFLE(TYPE, other, acc, d);                                   \
      acc = MEET(acc, other);                                         \
    }                                                                 \
    if (LANES > SHUFFLED) {                                           \
      if (item % SHUFFLED == 0) SCRATCH(TYPE)[item / SHUFFLED] = acc; \
      BARRIER;                                                        \
      acc = SCRATCH(TYPE)[first_slot];                                \
      for (int w = 1; w < LANES / SHUFFLED; ++w) {                    \
        TYPE other = SCRATCH(TYPE)[first_slot + w * SLOT_STEP];       \
        acc = MEET(acc, other);                                       \
      }                                                               \
      BARRIER;                                                        \
    }                                                                 \
  }
#define PLUS(a, b) ((a) + (b))
#define GREATER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define LESS(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

// A row is that of T at x + BASE unless the program defines otherwise: SEEK goes to its beginning, READ_ROW(at, to) takes V
// elements.
#ifndef READ_ROW
#define SEEK x += BASE
#define READ_ROW(at, to) READ(T, x + OFFSET(at), to)
#if HELD && V > 1
#define HOLDS_WORDS
#endif
#endif

// ASK reads what a lane needs of what lies along the row at p, into `words`, so that none is waited for before all are asked for.
#define ASK(words, p)                                                                             \
  JOIN(wide_, WIDE_TYPE) words[HELD];                                                             \
  if (IS_WIDE(p)) {                                                                               \
    UNROLL for (int s = 0; s < HELD; ++s) {                                                       \
      INDEX at = first + (lane + s * LANES) * V;                                                  \
      if (at < own_last) words[s] = *(GLOBAL const JOIN(wide_, WIDE_TYPE) *)((p) + at);           \
    }                                                                                             \
  } else {                                                                                        \
    UNROLL for (int s = 0; s < HELD; ++s) {                                                       \
      INDEX at = first + (lane + s * LANES) * V;                                                  \
      if (at < own_last) words[s] = read_wide((p) + at);                                          \
    }                                                                                             \
  }

// EACH_ELEMENT { statements of k and v } END_EACH goes over the lane's elements of the row at x, of type T;
// with END_MAP instead, what v then is becomes the row's at y. Where HELD is not 0, HOLD has read them before.
#if HELD
#ifdef HOLDS_WORDS
#define HOLD                                                            \
  VALUE(T) held[HELD * V];                                              \
  ASK(row_words, x)                                                     \
  UNROLL for (int s = 0; s < HELD; ++s) {                               \
    INDEX at = first + (lane + s * LANES) * V;                          \
    if (at < own_last) UNPACK_ELEMENTS(row_words[s], (held + s * V));   \
  }
#else
#define HOLD                                                \
  VALUE(T) held[HELD * V];                                  \
  UNROLL for (int s = 0; s < HELD; ++s) {                   \
    INDEX at = first + (lane + s * LANES) * V;              \
    if (at < own_last) READ_ROW(at, (held + s * V));        \
  }
#endif
#define EACH_STEP                              \
  UNROLL for (int s = 0; s < HELD; ++s) {      \
    INDEX at = first + (lane + s * LANES) * V; \
    if (at < own_last) {                       \
      VALUE(T) *w = held + s * V;
#else
#define HOLD
#define EACH_STEP                                                     \
  for (INDEX at = first + lane * V; at < own_last; at += LANES * V) { \
    {                                                                 \
      VALUE(T) w[V];                                                  \
      READ_ROW(at, w);
#endif
#define EACH_OF_STEP                     \
      UNROLL for (int e = 0; e < V; ++e) { \
        INDEX k = at + e;                  \
        REAL v = (REAL)w[e];
#define EACH_ELEMENT EACH_STEP EACH_OF_STEP
#define END_EACH \
      }          \
    }            \
  }
#define END_MAP                    \
        w[e] = v;                  \
      }                            \
      WRITE(T, y + OFFSET(at), w); \
    }                              \
  }
)kernel";

/// READ and WRITE of V elements where they are read one by one, of any type.
inline constexpr char kNarrowRows[] = R"kernel(
#define READ(T, p, to) (to)[0] = LOAD(T, p, 0)
#define WRITE(T, p, from) STORE(T, p, 0, (from)[0])
#define ELEMENTS STORAGE(T)
#define READ_ELEMENTS(p) (*(p))
#define UNPACK_ELEMENTS(words, to) (to)[0] = LOAD(T, &words, 0)
)kernel";

/// The same for the 16 bytes that WIDE_TYPE (f32, f64, f16 or bf16) fills, where the address allows that.
inline constexpr char kWideRows[] = R"kernel(
#define READ(T, p, to) JOIN(read_, T)(p, to)
#define WRITE(T, p, from) JOIN(write_, T)(p, from)
#define ELEMENTS JOIN(wide_, WIDE_TYPE)
#define READ_ELEMENTS read_wide
#define UNPACK_ELEMENTS(words, to) JOIN(unpack_, WIDE_TYPE)(words, to)
#define IS_WIDE(p) (((size_t)(p) & 15) == 0)
#define wide_f32 float4
#define unpack_f32(words, to) ((to)[0] = words.x, (to)[1] = words.y, (to)[2] = words.z, (to)[3] = words.w)
#define pack_f32(words, from) (words.x = (from)[0], words.y = (from)[1], words.z = (from)[2], words.w = (from)[3])
#define wide_f64 double2
#define unpack_f64(words, to) ((to)[0] = words.x, (to)[1] = words.y)
#define pack_f64(words, from) (words.x = (from)[0], words.y = (from)[1])
#define wide_f16 uint4
#define unpack_f16(words, to) UNPACK_HALVES(words, to, half_to_float)
#define pack_f16(words, from) PACK_HALVES(words, from, float_to_half)
#define wide_bf16 uint4
#define BFLOAT_TO_FLOAT(bits) BITS_FLOAT((u32)(bits) << 16)
#define unpack_bf16(words, to) UNPACK_HALVES(words, to, BFLOAT_TO_FLOAT)
#define pack_bf16(words, from) PACK_HALVES(words, from, float_to_bfloat)
#define UNPACK_HALVES(words, to, OF)                                     \
  ((to)[0] = OF((u16)words.x), (to)[1] = OF((u16)(words.x >> 16)),           \
   (to)[2] = OF((u16)words.y), (to)[3] = OF((u16)(words.y >> 16)),           \
   (to)[4] = OF((u16)words.z), (to)[5] = OF((u16)(words.z >> 16)),           \
   (to)[6] = OF((u16)words.w), (to)[7] = OF((u16)(words.w >> 16)))
#define PACK_HALVES(words, from, OF)                                     \
  (words.x = OF((from)[0]) | (u32)OF((from)[1]) << 16,                   \
   words.y = OF((from)[2]) | (u32)OF((from)[3]) << 16,                   \
   words.z = OF((from)[4]) | (u32)OF((from)[5]) << 16,                   \
   words.w = OF((from)[6]) | (u32)OF((from)[7]) << 16)
FUNCTION void JOIN(read_, WIDE_TYPE)(GLOBAL const STORAGE(WIDE_TYPE) *p, VALUE(WIDE_TYPE) *to) {
  if (IS_WIDE(p)) {
    JOIN(wide_, WIDE_TYPE) w = *(GLOBAL const JOIN(wide_, WIDE_TYPE) *)p;
    JOIN(unpack_, WIDE_TYPE)(w, to);
  } else {
    for (int e = 0; e < V; ++e) to[e] = LOAD(WIDE_TYPE, p, e);
  }
}
FUNCTION JOIN(wide_, WIDE_TYPE) read_wide(GLOBAL const STORAGE(WIDE_TYPE) *p) {
  if (IS_WIDE(p)) return *(GLOBAL const JOIN(wide_, WIDE_TYPE) *)p;
  VALUE(WIDE_TYPE) all[V];
  for (int e = 0; e < V; ++e) all[e] = LOAD(WIDE_TYPE, p, e);
  JOIN(wide_, WIDE_TYPE) w;
  JOIN(pack_, WIDE_TYPE)(w, all);
  return w;
}
FUNCTION void JOIN(write_, WIDE_TYPE)(GLOBAL STORAGE(WIDE_TYPE) *p, const VALUE(WIDE_TYPE) *from) {
  if (IS_WIDE(p)) {
    JOIN(wide_, WIDE_TYPE) w;
    JOIN(pack_, WIDE_TYPE)(w, from);
    *(GLOBAL JOIN(wide_, WIDE_TYPE) *)p = w;
  } else {
    for (int e = 0; e < V; ++e) STORE(WIDE_TYPE, p, e, from[e]);
  }
}
)kernel";

/// A row's fold, by START, STEP(acc, v) and MEET; FINISH of acc and depth is stored at y + TARGET, which is the
/// part's place in PHASE 1.
inline constexpr char kReduceRow[] = R"kernel(
  SEEK;
  REAL acc = START;
  EACH_ELEMENT
    acc = STEP(acc, v);
  END_EACH
  FOLD(REAL, acc, MEET)
  if (lane == 0 && is_row) STORE(TY, y, TARGET, FINISH);
)kernel";

/// The same across rows that are neighbours, of which an item has W, read at once: a group has SLOTS * W of `columns`, and LANES items
/// share them. WORD is W elements of T, and unpack_word takes it apart.
inline constexpr char kReduceAcross[] = R"kernel(
#define SLOTS (GROUP / LANES)
#define FOLD_ALL(TAKE_WORD)                                                    \
  _Pragma("unroll 4") for (INDEX k = lane; k < (INDEX)n; k += LANES) {         \
    STORAGE(T) near[W];                                                        \
    TAKE_WORD;                                                                 \
    UNROLL for (int e = 0; e < W; ++e) all[e] = STEP(all[e], LOAD(T, near, e)); \
  }
  LOCAL ACC scratch[GROUP * W];
  int item = (int)LOCAL_ID(0), lane = item / SLOTS, slot = item % SLOTS;
  i64 first = (i64)GROUP_ID(0) * SLOTS * W, outer = GROUP_ID(1), column = first + slot * W;
  x += outer * outer_step + column;
  ACC all[W];
  UNROLL for (int e = 0; e < W; ++e) all[e] = START;
  if (column < columns) {
    if (((size_t)x & (sizeof(WORD) - 1)) == 0) {
      FOLD_ALL(WORD word = *(GLOBAL const WORD *)(x + k * (INDEX)step); unpack_word(word, near))
    } else {
      FOLD_ALL(UNROLL for (int e = 0; e < W; ++e) near[e] = x[k * (INDEX)step + e])
    }
  }
  UNROLL for (int e = 0; e < W; ++e) scratch[e * GROUP + item] = all[e];
  BARRIER;
  for (int i = item; i < SLOTS * W && first + i < columns; i += GROUP) {
    ACC acc = scratch[i % W * GROUP + i / W];
    for (int l = 1; l < LANES; ++l) acc = MEET(acc, scratch[i % W * GROUP + l * SLOTS + i / W]);
    STORE(T, y, outer * columns + first + i, FINISH);
  }
)kernel";

/// log(sum(exp(v))) = m + log(sum(exp(v - m))) with m the greatest, so that nothing overflows.
inline constexpr char kLogSumExpRow[] = R"kernel(
  SEEK;
  HOLD
  REAL greatest = START;
  EACH_ELEMENT
    greatest = GREATER(v, greatest);
  END_EACH
  FOLD(REAL, greatest, GREATER)
  ROOT shift = fabs((ROOT)greatest) < INFINITY ? (ROOT)greatest : (ROOT)0;
  ROOT sum = 0;
  EACH_ELEMENT
    sum += exp((ROOT)v - shift);
  END_EACH
  FOLD(ROOT, sum, PLUS)
  if (lane == 0 && is_row) STORE(TY, y, TARGET, shift + log(sum));
)kernel";

/// Where the extreme lies: the first NaN, or else what EXTREME(a, b) chooses; of equal ones the last if TAKES_LAST.
inline constexpr char kArgRow[] = R"kernel(
#define LAST_OF(a, b) ((a) > (b) ? (a) : (b))
#define FIRST_OF(a, b) ((a) < (b) ? (a) : (b))
#define CHOSEN(a, b) (is_last ? LAST_OF(a, b) : FIRST_OF(a, b))
  SEEK;
  HOLD
  REAL best = (REAL)LOAD(T, x, 0);
  EACH_ELEMENT
    best = EXTREME(v, best);
  END_EACH
  FOLD(REAL, best, EXTREME)
  int is_last = TAKES_LAST && best == best;
  INDEX place = is_last ? 0 : last;
  EACH_ELEMENT
    if (v == best || (v != v && best != best)) place = CHOSEN(k, place);
  END_EACH
  FOLD(INDEX, place, CHOSEN)
  if (lane == 0 && is_row) STORE(i64, y, row, place);
)kernel";

/// The sums or products (MEET, from START) of a row's elements up to each of them: without that element itself if
/// IS_EXCLUSIVE, counted from the row's end if IS_REVERSE. A lane takes neighbours and begins with what the lanes and
/// tiles before it came to. The parts of PHASE 1 give what all of their elements come to.
inline constexpr char kScanRow[] = R"kernel(
// SCAN meets `before` with `own` of the lanes before this one, and makes `own` what all lanes of the row have.
#define SCAN(TYPE, own, before, MEET)                                     \
  {                                                                       \
    for (int d = 1; d < SHUFFLED; d *= 2) {                               \
      TYPE other;                                                         \
      SHUFFLE(TYPE, other, own, d);                                       \
      if (lane & d) before = MEET(before, other);                         \
      own = MEET(own, other);                                             \
    }                                                                     \
    if (LANES > SHUFFLED) {                                               \
      if (item % SHUFFLED == 0) SCRATCH(TYPE)[item / SHUFFLED] = own;     \
      BARRIER;                                                            \
      own = SCRATCH(TYPE)[first_slot];                                    \
      if (lane >= SHUFFLED) before = MEET(before, own);                   \
      for (int w = 1; w < LANES / SHUFFLED; ++w) {                        \
        TYPE other = SCRATCH(TYPE)[first_slot + w * SLOT_STEP];           \
        if (w < lane / SHUFFLED) before = MEET(before, other);            \
        own = MEET(own, other);                                           \
      }                                                                   \
      BARRIER;                                                            \
    }                                                                     \
  }
// Where the V elements from number k of the order on begin, and in which order they are.
#if IS_REVERSE
#define PLACED(k) ((INDEX)n - V - (k))
#define TURNED(e) (TOGETHER - 1 - (e))
#else
#define PLACED(k) (k)
#define TURNED(e) (e)
#endif
#if V > 1
#define TOGETHER V
#else
#define TOGETHER 4
#endif
  ACC before = START;
  x += BASE;
#if PHASE == 1
  for (INDEX k = first + lane * V; k < last; k += LANES * V) {
    VALUE(T) w[V];
    READ_ROW(PLACED(k), w);
    UNROLL for (int e = 0; e < V; ++e) before = MEET(before, (ACC)w[e]);
  }
  FOLD(ACC, before, MEET)
  if (lane == 0 && is_row) STORE(TP, found, row * parts + part, before);
#else
#if PHASE == 2
  for (INDEX p = lane; p < part; p += LANES)
    before = MEET(before, LOAD(TP, found, row * parts + p));
  FOLD(ACC, before, MEET)
#endif
  y += BASE;
  for (INDEX tile = first; tile < last; tile += LANES * TOGETHER) {
    INDEX k = tile + lane * TOGETHER;
    VALUE(T) w[TOGETHER];
#if V > 1
    if (k < last) READ_ROW(PLACED(k), w);
#else
    UNROLL for (int e = 0; e < TOGETHER; ++e)
      if (k + e < last) w[TURNED(e)] = LOAD(T, x, OFFSET(PLACED(k + e)));
#endif
    ACC own = START, acc = before;
    UNROLL for (int e = 0; e < TOGETHER; ++e)
      if (k + e < last) own = MEET(own, (ACC)w[TURNED(e)]);
    SCAN(ACC, own, acc, MEET)
    before = MEET(before, own);
    UNROLL for (int e = 0; e < TOGETHER; ++e) {
      if (k + e < last) {
        ACC v = (ACC)w[TURNED(e)];
#if IS_EXCLUSIVE
        w[TURNED(e)] = acc;
        acc = MEET(acc, v);
#else
        acc = MEET(acc, v);
        w[TURNED(e)] = acc;
#endif
      }
    }
    if (!is_row) continue;
#if V > 1
    if (k < last) WRITE(T, y + OFFSET(PLACED(k)), w);
#else
    UNROLL for (int e = 0; e < TOGETHER; ++e)
      if (k + e < last) STORE(T, y, OFFSET(PLACED(k + e)), w[TURNED(e)]);
#endif
  }
#endif
)kernel";

/// 1 where the first of the greatest elements is and 0 elsewhere. NaN counts only where it is the row's first element:
/// there it is the greatest.
inline constexpr char kHardmaxRow[] = R"kernel(
#define ABOVE(a, b) ((a) > (b) ? (a) : (b))
#define FIRST_OF(a, b) ((a) < (b) ? (a) : (b))
  SEEK;
  HOLD
  REAL greatest = -INFINITY, beginning = LOAD(T, x, 0);
  EACH_ELEMENT
    greatest = ABOVE(v, greatest);
  END_EACH
  FOLD(REAL, greatest, ABOVE)
  INDEX place = beginning != beginning ? 0 : last;
  EACH_ELEMENT
    if (v == greatest) place = FIRST_OF(k, place);
  END_EACH
  FOLD(INDEX, place, FIRST_OF)
  if (!is_row) return;
  y += BASE;
  EACH_ELEMENT
    v = k == place ? (REAL)1 : (REAL)0;
  END_MAP
)kernel";

/// Divides by NORM of the sum of TERM of each element, unless it is 0: then all is 0. The parts of PHASE 1 give their sums.
inline constexpr char kLpNormalizeRow[] = R"kernel(
  SEEK;
  HOLD
  REAL sum = 0;
#if PHASE == 2
  for (int p = lane; p < parts; p += LANES) sum += LOAD(TP, found, row * parts + p);
#else
  EACH_ELEMENT
    sum += TERM(v);
  END_EACH
#endif
  FOLD(REAL, sum, PLUS)
  if (!is_row) return;
#if PHASE == 1
  if (lane == 0) STORE(TP, found, row * parts + part, sum);
#else
  REAL norm = NORM(sum);
  y += BASE;
  EACH_ELEMENT
    v = norm == (REAL)0 ? (REAL)0 : v / norm;
  END_MAP
#endif
)kernel";

/// Softmax, 0 where ZERO_WHERE says so if it is defined, or with IS_LOG its logarithm. The parts of PHASE 1 give their greatest and
/// the sum of the exponentials under it.
inline constexpr char kSoftmaxRow[] = R"kernel(
  SEEK;
  HOLD
  REAL greatest = -INFINITY, sum = 0;
#if PHASE == 2
  for (int p = lane; p < parts; p += LANES) {
    REAL v = LOAD(TP, found, row * parts + p);
    greatest = GREATER(v, greatest);
  }
#else
  EACH_ELEMENT
    greatest = GREATER(v, greatest);
  END_EACH
#endif
  FOLD(REAL, greatest, GREATER)
#if PHASE == 2
  for (int p = lane; p < parts; p += LANES)
    sum += LOAD(TP, found, (rows + row) * parts + p) *
           exp(LOAD(TP, found, row * parts + p) - greatest);
#else
#if PHASE == 1
  // A part of nothing but -inf has no share in the sum of the others.
  REAL shift = fabs(greatest) < INFINITY ? greatest : (REAL)0;
#else
  REAL shift = greatest;
#endif
  EACH_ELEMENT
    sum += exp(v - shift);
  END_EACH
#endif
  FOLD(REAL, sum, PLUS)
#if PHASE == 1
  if (lane == 0 && is_row) {
    STORE(TP, found, row * parts + part, greatest);
    STORE(TP, found, (rows + row) * parts + part, sum);
  }
#else
  y += BASE;
#if IS_LOG
  REAL less = log(sum);
#else
  REAL factor = (REAL)1 / sum;
#endif
  if (!is_row) return;
  EACH_ELEMENT
#if IS_LOG
    v = (v - greatest) - less;
#else
    v = exp(v - greatest) * factor;
#ifdef ZERO_WHERE
    v = ZERO_WHERE ? (REAL)0 : v;
#endif
#endif
  END_MAP
#endif
)kernel";

/// Normalises by the mean (unless NO_MEAN) and the root mean square; `scale` and `bias` are read at SCALE_AT, of k or
/// at, or, with SCALE_IS_ROW, are of the row's type and along it. With KEEPS_ROW the row as it is read is stored at `kept`, too. The
/// parts of PHASE 1 give their means and the squares around these.
inline constexpr char kNormalizeRow[] = R"kernel(
#if SCALE_IS_ROW && HELD && V > 1 && PHASE != 1
#define SCALE_IS_ASKED
  ASK(scale_words, scale)
#if HAS_BIAS
  ASK(bias_words, bias)
#endif
#endif
  SEEK;
  HOLD
  REAL mean = 0, square = 0;
#if PHASE == 2
#define COUNT_OF(p) (REAL)((p) + 1 < parts ? part_n : n - (p) * part_n)
#if !NO_MEAN
  for (int p = lane; p < parts; p += LANES)
    mean += LOAD(TP, found, row * parts + p) * COUNT_OF(p);
  FOLD(REAL, mean, PLUS)
  mean /= (REAL)n;
#endif
  for (int p = lane; p < parts; p += LANES) {
    square += LOAD(TP, found, (rows + row) * parts + p);
#if !NO_MEAN
    REAL d = LOAD(TP, found, row * parts + p) - mean;
    square += d * d * COUNT_OF(p);
#endif
  }
#else
#if !NO_MEAN
  EACH_ELEMENT
    mean += v;
  END_EACH
  FOLD(REAL, mean, PLUS)
  mean /= (REAL)(last - first);
#endif
  EACH_ELEMENT
    REAL d = v - mean;
    square += d * d;
  END_EACH
#endif
  FOLD(REAL, square, PLUS)
  if (!is_row) return;
#if PHASE == 1
  if (lane == 0) {
    STORE(TP, found, row * parts + part, mean);
    STORE(TP, found, (rows + row) * parts + part, square);
  }
#else
  REAL inverse = (REAL)1 / sqrt(square / (REAL)n + (REAL)epsilon);
  y += BASE;
#if KEEPS_ROW
  kept += BASE;
#endif
  EACH_STEP
#if KEEPS_ROW
    WRITE(T, kept + at, w);
#endif
#if SCALE_IS_ROW
    VALUE(T) factor[V];
#ifdef SCALE_IS_ASKED
    UNPACK_ELEMENTS(scale_words[s], factor);
#else
    READ(T, scale + at, factor);
#endif
#if HAS_BIAS
    VALUE(T) addend[V];
#ifdef SCALE_IS_ASKED
    UNPACK_ELEMENTS(bias_words[s], addend);
#else
    READ(T, bias + at, addend);
#endif
#endif
#endif
  EACH_OF_STEP
    v = (v - mean) * inverse;
#if SCALE_IS_ROW
    v = v * (REAL)factor[e];
#if HAS_BIAS
    v += (REAL)addend[e];
#endif
#else
    v = v * (REAL)LOAD(TS, scale, SCALE_AT);
#if HAS_BIAS
    v += (REAL)LOAD(TB, bias, SCALE_AT);
#endif
#endif
  END_MAP
#if HAS_MEAN
  if (lane == 0 && part == 0) STORE(TM, out_mean, row, mean);
#endif
#if HAS_INVERSE
  if (lane == 0 && part == 0) STORE(TM, out_inverse, row, inverse);
#endif
#endif
)kernel";

}  // namespace backplane::common
