// Attention as text for kernels on devices, by sums that are scaled anew when a greater score is met, so that no scores are
// ever in memory: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention"
// (2022). Few rows are divided along their keys: Dao et al., "Flash-Decoding" (2023).
//
// A head of keys and values, of KV_HEADS, is read by GROUP_HEADS heads of queries, whose rows stand together: row r of a head of
// keys is query r / GROUP_HEADS of its head r % GROUP_HEADS. LENGTH(b) keys of a sequence count, and the queries' places among them begin
// at OFFSET(length).
//
// The program says T (of all but scores and sums, which are float), W and WV (elements of a row of queries and keys, of
// values), and, 0 or 1: TURNS, IS_INTERLEAVED, HAS_BEFORE, HAS_AFTER, HAS_CAP, HAS_MASK (of TM; ADDS_MASK, or scores where it is not CHOSEN
// become `otherwise`),
// HAS_LENGTHS (of TL, each less than the length by LESS), HAS_PLACES. EXP is the exponential.
#pragma once

namespace backplane::common {

/// What all kernels of a node read alike. What is turned are rows when they are kept (kKeepRows); those that make scores read them so.
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
/// new ones alone are written. With TURNS the first cache's are turned, and behind the caches' heads come the queries, which are turned
/// too: as many of their rows to each index of the second axis as the present has.
inline constexpr char kKeepRows[] = R"kernel(
#if CACHES > 1
#define OF(name) (i2 < heads ? name##0 : name##1)
#else
#define OF(name) name##0
#endif
#if TURNS
  if (i2 >= CACHES * heads) {
    i64 row = (i2 - CACHES * heads) * present_rows + i1, from = i0 * V, query = row % queries;
    if (row < query_rows && from < W) {
      i64 head = row / queries, b = head / (KV_HEADS * GROUP_HEADS), h = head % (KV_HEADS * GROUP_HEADS);
      i64 length = LENGTH(b), place = PLACE(b, query, length);
      VALUE(T) result[V];
      place = INSIDE(place, angles);
      for (int e = 0; e < V; ++e)
        result[e] = turned(q + b * query_batch + h * query_head + query * query_row, from + e, cosines, sines, place, half_turned);
      WRITE(T, turned_queries + row * W + from, result);
    }
  } else {
#endif
  i64 head = i2 < heads ? i2 : i2 - heads, b = head / KV_HEADS, h = head % KV_HEADS;
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
#if TURNS
  }
#endif
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

/// Pieces: what memory has of V neighbouring elements. Those of 16 bytes are read at once where all addresses allow that, which a kernel
/// asks once: between loads there is nothing then that waits for one of them.
inline constexpr char kPieceWords[] = R"kernel(
#define UNROLL _Pragma("unroll")
#if V > 1
#define PIECE JOIN(wide_, T)
#define UNPACK(piece, to) JOIN(unpack_, T)(piece, to)
#define WHOLE_PIECE(p) (*(GLOBAL const PIECE *)(p))
FUNCTION PIECE piece_of(GLOBAL const STORAGE(T) *p) {
  VALUE(T) elements[V];
  PIECE piece;
  for (int e = 0; e < V; ++e) elements[e] = LOAD(T, p, e);
  JOIN(pack_, T)(piece, elements);
  return piece;
}
FUNCTION PIECE piece_if(int counts, PIECE piece) {
  if (!counts) piece.x = piece.y = piece.z = piece.w = 0;
  return piece;
}
#else
#define IS_WIDE(p) 1
#define PIECE STORAGE(T)
#define UNPACK(piece, to) (to)[0] = LOAD(T, &(piece), 0)
#define WHOLE_PIECE(p) (*(p))
#define piece_of(p) (*(p))
#define piece_if(counts, piece) ((counts) ? (piece) : (PIECE)0)
#endif
)kernel";

/// A group has ROWS rows of one head of keys, and one part of the keys that any of them reads. LANES items share a key: each has V
/// neighbouring elements of it STEPS times (VALUE_STEPS of its values), at distances of LANES * V. TOGETHER keys and their values are read
/// before the first is looked at. GROUP / LANES such keys are looked at side by side, and what those sides find is met at the end: by
/// shuffles among the NEIGHBOURS that CUDA runs together, then in local memory.
///
/// What parts find are [rows of all heads, parts, WV] sums, and behind these for each the greatest score and the weights' sum: kMeetParts.
inline constexpr char kAttentionGroup[] = R"kernel(
#define SIDES (GROUP / LANES)
#define OWN (STEPS * V)
#define OWN_VALUES (VALUE_STEPS * V)
#define SCORES (ROWS * TOGETHER)
#define PLACE_OF(step) (((step) * LANES + lane) * V)
#define INSIDE_ROW(at, width) ((at) < (width) ? (at) : 0)
#define IS_WHOLE(width) ((width) % (LANES * V) == 0)
#define ROW_SUMS (VALUE_STEPS * LANES * V)
#ifdef __CUDACC__
#define NEIGHBOURS 32
#define ROWS_AT_ONCE ROWS
#define SCRATCH (GROUP / NEIGHBOURS * ROWS * ROW_SUMS)
#else
#define NEIGHBOURS LANES
#define ROWS_AT_ONCE 1
#define SCRATCH (SIDES * ROW_SUMS > SCORES * GROUP ? SIDES * ROW_SUMS : SCORES * GROUP)
#endif
#define PARTIES (GROUP / NEIGHBOURS)
  LOCAL float scratch[SCRATCH];
  LOCAL float all_greatest[ROWS * PARTIES], all_total[ROWS * PARTIES];
  int item = (int)LOCAL_ID(0), lane = item % LANES, side = item / LANES, party = item / NEIGHBOURS;
  int kv = (int)GROUP_ID(2), part = (int)GROUP_ID(1), first_row = (int)GROUP_ID(0) * ROWS;
  int b = kv / KV_HEADS, kv_head = kv % KV_HEADS, rows = (int)queries * GROUP_HEADS;
  int last_row = SOONER(first_row + ROWS, rows) - 1;
  q += b * query_batch;
  k += b * key_batch + kv_head * key_head;
  v += b * value_batch + kv_head * value_head;
  int is_wide = IS_WIDE(q) && IS_WIDE(k) && IS_WIDE(v);

  PIECE of_row[ROWS * STEPS];
  UNROLL for (int r = 0; r < ROWS; ++r) {
    int row = SOONER(first_row + r, last_row);
    GLOBAL const STORAGE(T) *of =
        q + (kv_head * GROUP_HEADS + row % GROUP_HEADS) * query_head + row / GROUP_HEADS * query_row;
    UNROLL for (int s = 0; s < STEPS; ++s) {
      int at = INSIDE_ROW(PLACE_OF(s), W);
      if (is_wide) of_row[r * STEPS + s] = WHOLE_PIECE(of + at);
      else of_row[r * STEPS + s] = piece_of(of + at);
    }
  }
  i64 length = LENGTH(b), offset = OFFSET(length);
  i64 from_key = LATER(0, FIRST_KEY(first_row / GROUP_HEADS));
  i64 to_key = SOONER(SOONER(length, most_keys), LAST_KEY(last_row / GROUP_HEADS));
  int span = to_key > from_key ? (int)(to_key - from_key) : 0;
  int part_keys = ((span + (int)parts - 1) / (int)parts + SIDES - 1) / SIDES * SIDES;
  int begin = (int)from_key + SOONER(part * part_keys, span);
  int end = (int)from_key + SOONER((part + 1) * part_keys, span);

  float own[ROWS * OWN], sums[ROWS * OWN_VALUES], greatest[ROWS], total[ROWS];
  UNROLL for (int r = 0; r < ROWS; ++r) {
    UNROLL for (int s = 0; s < STEPS; ++s) {
      UNPACK(of_row[r * STEPS + s], (own + r * OWN + s * V));
      if (!IS_WHOLE(W) && PLACE_OF(s) >= W) {
        UNROLL for (int e = 0; e < V; ++e) own[r * OWN + s * V + e] = 0.0f;
      }
    }
    UNROLL for (int e = 0; e < OWN_VALUES; ++e) sums[r * OWN_VALUES + e] = 0.0f;
    greatest[r] = -INFINITY;
    total[r] = 0.0f;
  }

  for (int base = begin; base < end; base += SIDES * TOGETHER) {
    PIECE keys_read[TOGETHER * STEPS], values_read[TOGETHER * VALUE_STEPS];
#define READ_PIECES(PIECE_AT)                                                                                    \
  UNROLL for (int u = 0; u < TOGETHER; ++u) {                                                                    \
    GLOBAL const STORAGE(T) *key = k + SOONER(base + u * SIDES + side, end - 1) * key_row;                       \
    UNROLL for (int s = 0; s < STEPS; ++s)                                                                       \
      keys_read[u * STEPS + s] = PIECE_AT(key + INSIDE_ROW(PLACE_OF(s), W));                                     \
  }                                                                                                              \
  UNROLL for (int u = 0; u < TOGETHER; ++u) {                                                                    \
    GLOBAL const STORAGE(T) *value = v + SOONER(base + u * SIDES + side, end - 1) * value_row;                   \
    UNROLL for (int s = 0; s < VALUE_STEPS; ++s)                                                                 \
      values_read[u * VALUE_STEPS + s] = PIECE_AT(value + INSIDE_ROW(PLACE_OF(s), WV));                          \
  }
    if (is_wide) {
      READ_PIECES(WHOLE_PIECE)
    } else {
      READ_PIECES(piece_of)
    }
    float score[SCORES];
    UNROLL for (int u = 0; u < TOGETHER; ++u) {
      VALUE(T) key[OWN];
      UNROLL for (int s = 0; s < STEPS; ++s) {
        PIECE piece = keys_read[u * STEPS + s];
        if (!IS_WHOLE(W)) piece = piece_if(PLACE_OF(s) < W, piece);
        UNPACK(piece, (key + s * V));
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
      int row = SOONER(first_row + r, last_row), query = row / GROUP_HEADS;
      int h = kv_head * GROUP_HEADS + row % GROUP_HEADS;
      int from = (int)LATER(begin, FIRST_KEY(query)), to = (int)SOONER(end, LAST_KEY(query));
      float best = greatest[r];
      UNROLL for (int u = 0; u < TOGETHER; ++u) {
        int j = base + u * SIDES + side;
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
      VALUE(T) value[OWN_VALUES];
      UNROLL for (int s = 0; s < VALUE_STEPS; ++s) {
        PIECE piece = piece_if(base + u * SIDES + side < end, values_read[u * VALUE_STEPS + s]);
        UNPACK(piece, (value + s * V));
      }
      UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int e = 0; e < OWN_VALUES; ++e)
          sums[r * OWN_VALUES + e] = FMA(score[r * TOGETHER + u], (float)value[e], sums[r * OWN_VALUES + e]);
    }
  }

#ifdef __CUDACC__
  UNROLL for (int r = 0; r < ROWS; ++r) {
    float best = greatest[r];
    UNROLL for (int d = LANES; d < NEIGHBOURS; d *= 2) {
      float other = __shfl_xor_sync(0xffffffffu, best, d);
      best = LATER(other, best);
    }
    float again = RESCALING(greatest[r], best);
    greatest[r] = best;
    total[r] *= again;
    UNROLL for (int e = 0; e < OWN_VALUES; ++e) sums[r * OWN_VALUES + e] *= again;
  }
  UNROLL for (int d = LANES; d < NEIGHBOURS; d *= 2) {
    UNROLL for (int r = 0; r < ROWS; ++r) total[r] += __shfl_xor_sync(0xffffffffu, total[r], d);
    UNROLL for (int e = 0; e < ROWS * OWN_VALUES; ++e) sums[e] += __shfl_xor_sync(0xffffffffu, sums[e], d);
  }
#endif
  UNROLL for (int r = 0; r < ROWS; ++r) {
    if (item % NEIGHBOURS == 0) {
      all_greatest[r * PARTIES + party] = greatest[r];
      all_total[r * PARTIES + party] = total[r];
    }
  }
  UNROLL for (int base = 0; base < ROWS; base += ROWS_AT_ONCE) {
    if (item % NEIGHBOURS < LANES) {
      UNROLL for (int e = 0; e < ROWS_AT_ONCE * OWN_VALUES; ++e)
        scratch[(party * ROWS_AT_ONCE + e / OWN_VALUES) * ROW_SUMS + PLACE_OF(e % OWN_VALUES / V) + e % V] =
            sums[base * OWN_VALUES + e];
    }
    BARRIER;
    for (int t = item; t < ROWS_AT_ONCE * WV; t += GROUP) {
      int r = base + t / WV, at = t % WV, row = first_row + r;
      float best = -INFINITY, sum = 0.0f, whole = 0.0f;
      for (int p = 0; p < PARTIES; ++p) best = LATER(all_greatest[r * PARTIES + p], best);
      for (int p = 0; p < PARTIES; ++p) {
        float again = RESCALING(all_greatest[r * PARTIES + p], best);
        sum += scratch[(p * ROWS_AT_ONCE + r - base) * ROW_SUMS + at] * again;
        whole += all_total[r * PARTIES + p] * again;
      }
      if (row < rows) {
#if IS_DIVIDED
        i64 place = ((i64)kv * rows + row) * parts + part;
        found[place * WV + at] = sum;
        if (at < 2) found[facts_at + place * 2 + at] = at == 0 ? best : whole;
#if WV == 1
        found[facts_at + place * 2 + 1] = whole;
#endif
#else
        STORE(T, y, b * result_batch + (kv_head * GROUP_HEADS + row % GROUP_HEADS) * result_head +
                        row / GROUP_HEADS * result_row + at, RESULT(sum, whole));
#endif
      }
    }
    if (base + ROWS_AT_ONCE < ROWS) BARRIER;
  }
)kernel";

/// A group has COLUMNS elements of one row: GROUP_ID is of columns, rows and heads of keys. Each of GROUP / COLUMNS slices has every so
/// manieth part, TOGETHER of which are read before the first is looked at.
inline constexpr char kMeetParts[] = R"kernel(
#define SLICES (GROUP / COLUMNS)
  LOCAL float all_greatest[SLICES], all_total[SLICES], all_sums[GROUP];
  int item = (int)LOCAL_ID(0), column = item % COLUMNS, slice = item / COLUMNS;
  int kv = (int)GROUP_ID(2), row = (int)GROUP_ID(1), at = (int)GROUP_ID(0) * COLUMNS + column;
  int count = (int)parts, b = kv / KV_HEADS, own = SOONER(at, WV - 1);
  i64 first = ((i64)kv * (queries * GROUP_HEADS) + row) * parts;
  GLOBAL const float *facts = found + facts_at + first * 2;
  found += first * WV + own;
  float best = -INFINITY, sum = 0.0f, whole = 0.0f;
  for (int base = slice; base < count; base += SLICES * TOGETHER) {
    float greatest[TOGETHER], total[TOGETHER], sums[TOGETHER];
    _Pragma("unroll") for (int u = 0; u < TOGETHER; ++u) {
      int p = base + u * SLICES, from = SOONER(p, count - 1);
      float a = facts[from * 2], c = facts[from * 2 + 1], d = found[(i64)from * WV];
      greatest[u] = p < count ? a : -INFINITY;
      total[u] = p < count ? c : 0.0f;
      sums[u] = p < count ? d : 0.0f;
    }
    float met = best;
    _Pragma("unroll") for (int u = 0; u < TOGETHER; ++u) met = LATER(greatest[u], met);
    float before = RESCALING(best, met);
    best = met;
    sum *= before;
    whole *= before;
    _Pragma("unroll") for (int u = 0; u < TOGETHER; ++u) {
      float again = RESCALING(greatest[u], best);
      sum += sums[u] * again;
      whole += total[u] * again;
    }
  }
  if (column == 0) {
    all_greatest[slice] = best;
    all_total[slice] = whole;
  }
  all_sums[item] = sum;
  BARRIER;
  if (slice == 0 && at < WV) {
    sum = whole = 0.0f;
    for (int s = 0; s < SLICES; ++s) best = LATER(all_greatest[s], best);
    for (int s = 0; s < SLICES; ++s) {
      float again = RESCALING(all_greatest[s], best);
      sum += all_sums[s * COLUMNS + column] * again;
      whole += all_total[s] * again;
    }
    STORE(T, y, b * result_batch + (kv % KV_HEADS * GROUP_HEADS + row % GROUP_HEADS) * result_head +
                    row / GROUP_HEADS * result_row + at, RESULT(sum, whole));
  }
)kernel";

/// Body of a walk over [batch * heads of keys, tiles of ROWS rows], for an item that has a core to itself: KEYS keys at a time, in loops
/// of which compilers make vectors.
inline constexpr char kAttentionTile[] = R"kernel(
#define LANES 16
#define HALVE(n) for (int l = 0; l < n; ++l) part[l] += part[l + n];
  i64 b = i1 / KV_HEADS, kv_head = i1 % KV_HEADS, rows = queries * GROUP_HEADS, first_row = i0 * ROWS;
  i64 count = SOONER(ROWS, rows - first_row), length = LENGTH(b), offset = OFFSET(length);
  i64 begin = LATER(0, FIRST_KEY(first_row / GROUP_HEADS));
  i64 end = SOONER(SOONER(length, most_keys), LAST_KEY((first_row + count - 1) / GROUP_HEADS));
  k += b * key_batch + kv_head * key_head;
  v += b * value_batch + kv_head * value_head;
  float own[ROWS * W], sums[ROWS * WV], score[KEYS], greatest[ROWS], total[ROWS];
  for (i64 r = 0; r < count; ++r) {
    i64 query = (first_row + r) / GROUP_HEADS;
    GLOBAL const STORAGE(T) *of = q + b * query_batch + query * query_row +
                                 (kv_head * GROUP_HEADS + (first_row + r) % GROUP_HEADS) * query_head;
    for (int at = 0; at < W; ++at) own[r * W + at] = LOAD(T, of, at);
    for (int at = 0; at < WV; ++at) sums[r * WV + at] = 0.0f;
    greatest[r] = -INFINITY;
    total[r] = 0.0f;
  }
  for (i64 base = begin; base < end; base += KEYS) {
    for (i64 r = 0; r < count; ++r) {
      i64 query = (first_row + r) / GROUP_HEADS, h = kv_head * GROUP_HEADS + (first_row + r) % GROUP_HEADS;
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
    i64 query = (first_row + r) / GROUP_HEADS;
    GLOBAL STORAGE(T) *to = y + b * result_batch + query * result_row +
                           (kv_head * GROUP_HEADS + (first_row + r) % GROUP_HEADS) * result_head;
    for (int at = 0; at < WV; ++at) STORE(T, to, at, RESULT(sums[r * WV + at], total[r]));
  }
)kernel";

}  // namespace backplane::common
