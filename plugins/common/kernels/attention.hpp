// Attention as text for kernels on devices, by sums that are scaled anew when a greater score is met, so that no scores are
// ever in memory: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention"
// (2022). Few rows are divided along their keys: Dao et al., "Flash-Decoding" (2023).
//
// A head of keys and values is read by GROUP_HEADS heads of queries, whose rows stand together: row r of a head of keys is
// query r / group_heads of its head r % group_heads. LENGTH(b) keys of a sequence count, and the queries' places among them begin
// at OFFSET(length).
//
// The program says T (of all but scores and sums, which are float), W and WV (elements of a row of queries and keys, of
// values), and, 0 or 1: TURNS, IS_INTERLEAVED, HAS_BEFORE, HAS_AFTER, HAS_CAP, HAS_MASK (of TM; ADDS_MASK, or scores where it is not CHOSEN
// become `otherwise`),
// HAS_LENGTHS (of TL, each less than the length by LESS), HAS_PLACES. EXP is the exponential.
#pragma once

namespace backplane::common {

/// What all kernels of a node read alike.
inline constexpr char kAttentionWords[] = R"kernel(
// Of a sequence, its new keys with it. A wrong length is the fault of the kernel that keeps keys; here it harms nothing.
#if HAS_LENGTHS
FUNCTION i64 length_of(GLOBAL const STORAGE(TL) *lengths, i64 b, i64 keys) {
  i64 length = (i64)lengths[b] + LESS;
  return length < 0 ? 0 : length > keys ? keys : length;
}
#define LENGTH(b) length_of(lengths, b, keys)
#define OFFSET(length) ((length) - queries)
#else
#define LENGTH(b) keys
#define OFFSET(length) first_place
#endif

// Element `at` of a row of queries or keys, turned by the angles of row `place`: the first columns are pairs.
#if TURNS
#if HAS_PLACES
#define PLACE(b, query, length) places[(b) * place_step + (query)]
#else
#define PLACE(b, query, length) (OFFSET(length) + (query))
#endif
#define INSIDE(place, angles) \
  ((place) < 0 ? ((place) + (angles) < 0 ? 0 : (place) + (angles)) : (place) < (angles) ? (place) : (angles) - 1)
FUNCTION float turned(GLOBAL const STORAGE(T) *row, i64 at, GLOBAL const STORAGE(T) *cosines,
                      GLOBAL const STORAGE(T) *sines, i64 place, i64 half_turned) {
  if (at >= 2 * half_turned) return LOAD(T, row, at);
#if IS_INTERLEAVED
  i64 pair = at / 2, first = 2 * pair, second = first + 1;
#else
  i64 pair = at < half_turned ? at : at - half_turned, first = pair, second = pair + half_turned;
#endif
  float a = LOAD(T, row, first), b = LOAD(T, row, second);
  float c = LOAD(T, cosines, place * half_turned + pair), s = LOAD(T, sines, place * half_turned + pair);
  return at == first ? a * c - b * s : a * s + b * c;
}
#endif
)kernel";

/// Body of a walk over [CACHES * heads, rows of the present, width / V], `heads` of all sequences: past and new rows of keys, of values,
/// or of both, side by side, new ones behind what a sequence uses of the past's room. Where past and present are one memory,
/// new ones alone are written. With TURNS the first cache's are turned.
inline constexpr char kKeepRows[] = R"kernel(
#if CACHES > 1
#define OF(name) (i2 < heads ? name##0 : name##1)
#else
#define OF(name) name##0
#endif
  i64 head = i2 % heads, b = head / kv_heads, h = head % kv_heads;
  i64 length = LENGTH(b);
#if HAS_LENGTHS
  i64 given = (i64)lengths[b] + LESS;
  if (given < fresh_rows || given > keys || given - fresh_rows > room) FAULT;
#endif
  i64 used = length - fresh_rows, width = OF(WIDTH), from = i0 * V;
  GLOBAL STORAGE(T) *present = OF(present) + (head * present_rows + i1) * width + from;
  VALUE(T) row[V];
  if (from < width && i1 >= used && i1 < length) {
    GLOBAL const STORAGE(T) *fresh = OF(fresh) + b * OF(fresh_batch) + h * OF(fresh_head) + (i1 - used) * OF(fresh_row);
#if TURNS
    i64 place = PLACE(b, i1 - used, length);
    if (place < -angles || place >= angles) FAULT;
    place = INSIDE(place, angles);
    if (i2 < heads) {
      for (int e = 0; e < V; ++e) row[e] = turned(fresh, from + e, cosines, sines, place, half_turned);
    } else {
      READ(T, fresh + from, row);
    }
#else
    READ(T, fresh + from, row);
#endif
    WRITE(T, present, row);
  } else if (from < width && !(OF(HAS_PAST) && OF(past) == OF(present))) {
    if (OF(HAS_PAST) && i1 < room) {
      READ(T, OF(past) + (head * room + i1) * width + from, row);
    } else {
      for (int e = 0; e < V; ++e) row[e] = 0;
    }
    WRITE(T, present, row);
  }
)kernel";

/// Body of a walk over [batch * heads of queries, queries, W]: the queries, turned.
inline constexpr char kTurnRows[] = R"kernel(
  i64 heads = kv_heads * group_heads, b = i2 / heads, h = i2 % heads, length = LENGTH(b);
  i64 place = PLACE(b, i1, length);
  STORE(T, y, (i2 * queries + i1) * W + i0,
        turned(q + b * query_batch + h * query_head + i1 * query_row, i0, cosines, sines, INSIDE(place, angles), half_turned));
)kernel";

/// Where a score counts: `value` of key j becomes what the mask, the cap and the bounds make of it. Declared are b, h (of
/// queries), query, length and offset.
inline constexpr char kScoreWords[] = R"kernel(
#if HAS_CAP
#define CAPPED(value) (cap * tanh((value) / cap))
#else
#define CAPPED(value) (value)
#endif
#if HAS_MASK
#define MASK_AT(j) LOAD(TM, mask, b * mask_batch + h * mask_head + query * mask_row + (j))
#if ADDS_MASK
#define MASKED(value, j) ((value) + MASK_AT(j))
#else
#define MASKED(value, j) ((MASK_AT(j) != 0) == CHOSEN ? (value) : otherwise)
#endif
#else
#define MASKED(value, j) (value)
#endif
// The keys of a query: from FIRST_KEY to before LAST_KEY.
#if HAS_BEFORE
#define FIRST_KEY(query) (offset + (query) - before)
#else
#define FIRST_KEY(query) 0
#endif
#if HAS_AFTER
#define LAST_KEY(query) (offset + (query) + after + 1)
#else
#define LAST_KEY(query) length
#endif
#define LATER(a, b) ((a) > (b) ? (a) : (b))
#define SOONER(a, b) ((a) < (b) ? (a) : (b))
// A NaN stays one: it is not the greatest, but its exponential is NaN.
#define RESCALING(before, after) ((before) == -INFINITY ? 0.0f : EXP((before) - (after)))
#define WEIGHT(score, greatest) ((score) == -INFINITY ? 0.0f : EXP((score) - (greatest)))
)kernel";

/// A group has ROWS rows of one head of keys, and the keys of one part of them. LANES items share a key: each has V neighbouring
/// elements of it STEPS times (VALUE_STEPS of its values), at distances of LANES * V. TOGETHER keys are read before their
/// scores are met. GROUP / LANES such keys are looked at side by side, and their sums met at the end.
///
/// What parts find, [rows of all heads, parts, WV + 2] floats, are sums, the greatest score and the weights' sum: kMeetParts.
inline constexpr char kAttentionGroup[] = R"kernel(
#define UNROLL _Pragma("unroll")
#define SIDES (GROUP / LANES)
#define OWN (STEPS * V)
#define OWN_VALUES (VALUE_STEPS * V)
#define SCORES (ROWS * TOGETHER)
#define SCRATCH_FOR_SUMS (SIDES * VALUE_STEPS * LANES * V)
#define SCRATCH_FOR_SCORES (SCORES * GROUP)
#define SCRATCH (SCRATCH_FOR_SUMS > SCRATCH_FOR_SCORES ? SCRATCH_FOR_SUMS : SCRATCH_FOR_SCORES)
  LOCAL float scratch[SCRATCH];
  LOCAL float all_greatest[ROWS * SIDES], all_total[ROWS * SIDES];
  int item = (int)LOCAL_ID(0), lane = item % LANES, side = item / LANES;
  i64 kv = GROUP_ID(2), part = GROUP_ID(1), first_row = (i64)GROUP_ID(0) * ROWS;
  i64 b = kv / kv_heads, kv_head = kv % kv_heads, rows = queries * group_heads;
  i64 last_row = SOONER(first_row + ROWS, rows) - 1, length = LENGTH(b), offset = OFFSET(length);
  i64 begin = LATER(part * part_keys, FIRST_KEY(first_row / group_heads));
  i64 end = SOONER(SOONER((part + 1) * part_keys, SOONER(length, most_keys)), LAST_KEY(last_row / group_heads));
  k += b * key_batch + kv_head * key_head;
  v += b * value_batch + kv_head * value_head;

  float own[ROWS * OWN], sums[ROWS * OWN_VALUES], greatest[ROWS], total[ROWS];
  UNROLL for (int r = 0; r < ROWS; ++r) {
    i64 row = SOONER(first_row + r, last_row), query = row / group_heads;
    GLOBAL const STORAGE(T) *of = q + b * query_batch + (kv_head * group_heads + row % group_heads) * query_head + query * query_row;
#if TURNS
    i64 place = PLACE(b, query, length);
    place = INSIDE(place, angles);
#endif
    UNROLL for (int e = 0; e < OWN; ++e) {
      int at = (e / V * LANES + lane) * V + e % V;
#if TURNS
      own[r * OWN + e] = at < W ? turned(of, at, cosines, sines, place, half_turned) : 0.0f;
#else
      own[r * OWN + e] = at < W ? (float)LOAD(T, of, at) : 0.0f;
#endif
    }
    UNROLL for (int e = 0; e < OWN_VALUES; ++e) sums[r * OWN_VALUES + e] = 0.0f;
    greatest[r] = -INFINITY;
    total[r] = 0.0f;
  }

  for (i64 base = begin; base < end; base += SIDES * TOGETHER) {
    float score[SCORES];
    UNROLL for (int u = 0; u < TOGETHER; ++u) {
      i64 j = base + u * SIDES + side;
      VALUE(T) key[OWN];
      UNROLL for (int s = 0; s < STEPS; ++s) {
        int at = (s * LANES + lane) * V;
        UNROLL for (int e = 0; e < V; ++e) key[s * V + e] = 0;
        if (j < end && at < W) READ(T, k + j * key_row + at, (key + s * V));
      }
      UNROLL for (int r = 0; r < ROWS; ++r) {
        float sum = 0.0f;
        UNROLL for (int e = 0; e < OWN; ++e) sum = FMA(own[r * OWN + e], (float)key[e], sum);
        score[r * TOGETHER + u] = sum;
      }
    }
#ifdef __CUDACC__
    UNROLL for (int d = LANES / 2; d > 0; d /= 2)
      UNROLL for (int s = 0; s < SCORES; ++s) score[s] += __shfl_xor_sync(0xffffffffu, score[s], d);
#else
    for (int s = 0; s < SCORES; ++s) scratch[s * GROUP + item] = score[s];
    BARRIER;
    for (int s = 0; s < SCORES; ++s) {
      float sum = 0.0f;
      for (int l = 0; l < LANES; ++l) sum += scratch[s * GROUP + side * LANES + l];
      score[s] = sum;
    }
    BARRIER;
#endif
    UNROLL for (int r = 0; r < ROWS; ++r) {
      i64 row = SOONER(first_row + r, last_row), query = row / group_heads;
      i64 h = kv_head * group_heads + row % group_heads;
      i64 from = LATER(begin, FIRST_KEY(query)), to = SOONER(end, LAST_KEY(query));
      float best = greatest[r];
      UNROLL for (int u = 0; u < TOGETHER; ++u) {
        i64 j = base + u * SIDES + side;
        float value = -INFINITY;
        if (j >= from && j < to) {
          value = CAPPED(score[r * TOGETHER + u] * scale);
          value = MASKED(value, j);
        }
        score[r * TOGETHER + u] = value;
        best = value > best ? value : best;
      }
      float again = RESCALING(greatest[r], best);
      greatest[r] = best;
      total[r] *= again;
      UNROLL for (int e = 0; e < OWN_VALUES; ++e) sums[r * OWN_VALUES + e] *= again;
      UNROLL for (int u = 0; u < TOGETHER; ++u) {
        score[r * TOGETHER + u] = WEIGHT(score[r * TOGETHER + u], best);
        total[r] += score[r * TOGETHER + u];
      }
    }
    UNROLL for (int u = 0; u < TOGETHER; ++u) {
      i64 j = base + u * SIDES + side;
      VALUE(T) value[OWN_VALUES];
      UNROLL for (int s = 0; s < VALUE_STEPS; ++s) {
        int at = (s * LANES + lane) * V;
        UNROLL for (int e = 0; e < V; ++e) value[s * V + e] = 0;
        if (j < end && at < WV) READ(T, v + j * value_row + at, (value + s * V));
      }
      UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int e = 0; e < OWN_VALUES; ++e)
          sums[r * OWN_VALUES + e] = FMA(score[r * TOGETHER + u], (float)value[e], sums[r * OWN_VALUES + e]);
    }
  }

  UNROLL for (int r = 0; r < ROWS; ++r) {
    if (lane == 0) {
      all_greatest[r * SIDES + side] = greatest[r];
      all_total[r * SIDES + side] = total[r];
    }
  }
  BARRIER;
  UNROLL for (int r = 0; r < ROWS; ++r) {
    float best = -INFINITY, whole = 0.0f;
    for (int s = 0; s < SIDES; ++s) best = LATER(all_greatest[r * SIDES + s], best);
    for (int s = 0; s < SIDES; ++s)
      whole += all_total[r * SIDES + s] * RESCALING(all_greatest[r * SIDES + s], best);
    float again = RESCALING(greatest[r], best);
    UNROLL for (int e = 0; e < OWN_VALUES; ++e) {
      int at = (e / V * LANES + lane) * V + e % V;
      scratch[side * VALUE_STEPS * LANES * V + at] = sums[r * OWN_VALUES + e] * again;
    }
    BARRIER;
    i64 row = first_row + r, query = row / group_heads;
    for (int at = item; at < WV && row < rows; at += GROUP) {
      float sum = 0.0f;
      for (int s = 0; s < SIDES; ++s) sum += scratch[s * VALUE_STEPS * LANES * V + at];
#if IS_DIVIDED
      found[((kv * rows + row) * parts + part) * (WV + 2) + at] = sum;
#else
      STORE(T, y, b * result_batch + (kv_head * group_heads + row % group_heads) * result_head + query * result_row + at,
            RESULT(sum, whole));
#endif
    }
#if IS_DIVIDED
    if (item == 0 && row < rows) {
      found[((kv * rows + row) * parts + part) * (WV + 2) + WV] = best;
      found[((kv * rows + row) * parts + part) * (WV + 2) + WV + 1] = whole;
    }
#endif
    BARRIER;
  }
)kernel";

/// Body of a walk over [batch * heads of keys, rows, WV].
inline constexpr char kMeetParts[] = R"kernel(
  i64 b = i2 / kv_heads, h = i2 % kv_heads * group_heads + i1 % group_heads, query = i1 / group_heads;
  found += (i2 * queries * group_heads + i1) * parts * (WV + 2);
  float best = -INFINITY, sum = 0.0f, whole = 0.0f;
  for (i64 p = 0; p < parts; ++p) best = LATER(found[p * (WV + 2) + WV], best);
  for (i64 p = 0; p < parts; ++p) {
    float again = RESCALING(found[p * (WV + 2) + WV], best);
    sum += found[p * (WV + 2) + i0] * again;
    whole += found[p * (WV + 2) + WV + 1] * again;
  }
  STORE(T, y, b * result_batch + h * result_head + query * result_row + i0, RESULT(sum, whole));
)kernel";

/// Body of a walk over [batch * heads of keys, tiles of ROWS rows], for an item that has a core to itself: KEYS keys at a time, in loops
/// of which compilers make vectors.
inline constexpr char kAttentionTile[] = R"kernel(
#define LANES 16
#define HALVE(n) for (int l = 0; l < n; ++l) part[l] += part[l + n];
  i64 b = i1 / kv_heads, kv_head = i1 % kv_heads, rows = queries * group_heads, first_row = i0 * ROWS;
  i64 count = SOONER(ROWS, rows - first_row), length = LENGTH(b), offset = OFFSET(length);
  i64 begin = LATER(0, FIRST_KEY(first_row / group_heads));
  i64 end = SOONER(SOONER(length, most_keys), LAST_KEY((first_row + count - 1) / group_heads));
  k += b * key_batch + kv_head * key_head;
  v += b * value_batch + kv_head * value_head;
  float own[ROWS * W], sums[ROWS * WV], score[KEYS], greatest[ROWS], total[ROWS];
  for (i64 r = 0; r < count; ++r) {
    i64 query = (first_row + r) / group_heads;
    GLOBAL const STORAGE(T) *of = q + b * query_batch + query * query_row +
                                 (kv_head * group_heads + (first_row + r) % group_heads) * query_head;
#if TURNS
    i64 place = PLACE(b, query, length);
    place = INSIDE(place, angles);
    for (int at = 0; at < W; ++at) own[r * W + at] = turned(of, at, cosines, sines, place, half_turned);
#else
    for (int at = 0; at < W; ++at) own[r * W + at] = LOAD(T, of, at);
#endif
    for (int at = 0; at < WV; ++at) sums[r * WV + at] = 0.0f;
    greatest[r] = -INFINITY;
    total[r] = 0.0f;
  }
  for (i64 base = begin; base < end; base += KEYS) {
    for (i64 r = 0; r < count; ++r) {
      i64 query = (first_row + r) / group_heads, h = kv_head * group_heads + (first_row + r) % group_heads;
      i64 from = LATER(base, FIRST_KEY(query)), to = SOONER(SOONER(base + KEYS, end), LAST_KEY(query));
      if (from >= to) continue;
      float best = greatest[r];
      for (i64 j = from; j < to; ++j) {
        GLOBAL const STORAGE(T) *key = k + j * key_row;
        float part[LANES], sum = 0.0f;
        for (int l = 0; l < LANES; ++l) part[l] = 0.0f;
        for (int at = 0; at + LANES <= W; at += LANES)
          for (int l = 0; l < LANES; ++l)
            part[l] = FMA(own[r * W + at + l], (float)LOAD(T, key, at + l), part[l]);
        for (int at = W / LANES * LANES; at < W; ++at)
          sum = FMA(own[r * W + at], (float)LOAD(T, key, at), sum);
        HALVE(8) HALVE(4) HALVE(2) HALVE(1)
        sum += part[0];
        float value = CAPPED(sum * scale);
        value = MASKED(value, j);
        score[j - from] = value;
        best = value > best ? value : best;
      }
      float again = RESCALING(greatest[r], best);
      greatest[r] = best;
      total[r] *= again;
      for (int at = 0; at < WV; ++at) sums[r * WV + at] *= again;
      for (int j = 0; j < (int)(to - from); ++j) score[j] = WEIGHT(score[j], best);
      for (i64 j = from; j < to; ++j) {
        float weight = score[j - from];
        total[r] += weight;
        GLOBAL const STORAGE(T) *value = v + j * value_row;
        for (int at = 0; at < WV; ++at) sums[r * WV + at] = FMA(weight, (float)LOAD(T, value, at), sums[r * WV + at]);
      }
    }
  }
  for (i64 r = 0; r < count; ++r) {
    i64 query = (first_row + r) / group_heads;
    GLOBAL STORAGE(T) *to = y + b * result_batch + query * result_row +
                           (kv_head * group_heads + (first_row + r) % group_heads) * result_head;
    for (int at = 0; at < WV; ++at) STORE(T, to, at, RESULT(sums[r * WV + at], total[r]));
  }
)kernel";

}  // namespace backplane::common
