// Attention of few positions by matrix units, as text for kernels: see ../short_attention.hpp.
#pragma once

namespace backplane::cuda {

/// Copies to local memory that go on while a group computes, and fragments that lie there. What stands for them where there is no device
/// gives each lane the numbers that the PTX ISA's description of ldmatrix gives it.
inline constexpr char kShortAttentionWords[] = R"kernel(
#define PITCH (WIDTH + 8)
#define SOONER(a, b) ((a) < (b) ? (a) : (b))
#ifdef __CUDACC__
#define IN_LOCAL
#define SHUFFLE_TO(to, x, distance) to = __shfl_xor_sync(0xffffffffu, x, distance)
#else
#define IN_LOCAL __local
#define SHUFFLE_TO(to, x, distance) \
  { \
    met[item][0] = FLOAT_BITS(x); \
    BARRIER; \
    to = BITS_FLOAT(met[item ^ (distance)][0]); \
    BARRIER; \
  }
#endif
#ifdef __CUDACC__
FUNCTION u32 local_address(const void *p) {
  u32 made;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(made) : "l"(p));
  return made;
}
// 16 bytes, or zeros.
FUNCTION void begin_copy(u16 *to, GLOBAL const u16 *from, int is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(local_address(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
FUNCTION void end_of_batch() { asm volatile("cp.async.commit_group;" ::: "memory"); }
FUNCTION void wait_for_all_but_one() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
// Of 16 lines from `line` on, 16 elements from `place` on: made[0], made[1] are what two products of 8 lines each want of the first
// eight lines, made[2], made[3] of the others.
FUNCTION void rows_of(u32 *made, const u16 *block, int line, int place, int lane) {
  const u16 *at = block + (line + lane / 16 * 8 + lane % 8) * PITCH + place + lane / 8 % 2 * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(made[0]), "=r"(made[1]), "=r"(made[2]), "=r"(made[3]) : "r"(local_address(at)) : "memory");
}
// The same of columns: made[0], made[1] are of the first eight elements of each line, made[2], made[3] of the others.
FUNCTION void columns_of(u32 *made, const u16 *block, int line, int place, int lane) {
  const u16 *at = block + (line + lane / 8 % 2 * 8 + lane % 8) * PITCH + place + lane / 16 * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(made[0]), "=r"(made[1]), "=r"(made[2]), "=r"(made[3]) : "r"(local_address(at)) : "memory");
}
FUNCTION float power_of_2(float x) {
  float made;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
#else
FUNCTION void begin_copy(IN_LOCAL u16 *to, GLOBAL const u16 *from, int is_there) {
  for (int i = 0; i < 8; ++i) to[i] = is_there ? from[i] : 0;
}
FUNCTION void end_of_batch() {}
FUNCTION void wait_for_all_but_one() {}
FUNCTION void rows_of(u32 *made, IN_LOCAL const u16 *block, int line, int place, int lane) {
  for (int i = 0; i < 4; ++i) {
    IN_LOCAL const u16 *at = block + (line + i / 2 * 8 + lane / 4) * PITCH + place + i % 2 * 8 + lane % 4 * 2;
    made[i] = (u32)at[0] | (u32)at[1] << 16;
  }
}
FUNCTION void columns_of(u32 *made, IN_LOCAL const u16 *block, int line, int place, int lane) {
  for (int i = 0; i < 4; ++i) {
    IN_LOCAL const u16 *at = block + (line + i % 2 * 8 + lane % 4 * 2) * PITCH + place + i / 2 * 8 + lane / 4;
    made[i] = (u32)at[0] | (u32)at[PITCH] << 16;
  }
}
FUNCTION float power_of_2(float x) { return exp2(x); }
#endif
)kernel";

/// A warp has 16 rows of q, and meets KEYS keys and values at a time, which are copied while it computes with those before them. Scores
/// never leave registers: what a lane has of a product of rows by keys is what it needs of the left matrix of the product by values. Sums
/// and maxima go along with the keys (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867; Dao et al.,
/// https://arxiv.org/abs/2205.14135). With several PARTS as many warps have the same rows, and each a slice of the keys that are there:
/// they copy together, go on side by side as warps of other rows do, and meet once, at the end, in the memory that keys and values had.
inline constexpr char kShortAttention[] = R"kernel(
#define STEPS (WIDTH / 16)
#define EIGHTS (WIDTH / 8)
#define GROUP (32 * WARPS * PARTS)
#define ROWS (16 * WARPS)
#define SLICE (KEYS / PARTS)
#define LOG2_E 1.44269504f

FUNCTION void begin_block(IN_LOCAL u16 *to, GLOBAL const u16 *from, i64 step, int first, int columns, int item) {
  _Pragma("unroll 4") for (int i = item; i < KEYS * EIGHTS; i += GROUP) {
    int line = i / EIGHTS, place = i % EIGHTS * 8;
    begin_copy(to + line * PITCH + place, from + SOONER(first + line, columns - 1) * step + place, first + line < columns);
  }
}

// Of keys and values, before the last one that is wanted; a batch of none otherwise.
FUNCTION void begin_blocks(IN_LOCAL u16 *keys, IN_LOCAL u16 *values, GLOBAL const u16 *k, i64 k_row, GLOBAL const u16 *v, i64 v_row,
                           int first, int end, int columns, int item) {
  if (first < end) {
    begin_block(keys, k, k_row, first, columns, item);
    begin_block(values, v, v_row, first, columns, item);
  }
  end_of_batch();
}

// Of two rows and a slice of columns, as they lie. Slices of several PARTS are so small that there is room for the next one's, which is
// read while the one before is multiplied.
FUNCTION void read_mask(STORAGE(T) (*added)[4], GLOBAL const STORAGE(T) *mask, i64 mask_row, i64 mask_column, int row, int column, int rows,
                        int columns) {
#if HAS_MASK
  UNROLL for (int n = 0; n < SLICE / 8; ++n) {
    UNROLL for (int e = 0; e < 4; ++e)
      added[n][e] = mask[SOONER(row + e / 2 * 8, rows - 1) * mask_row + SOONER(column + n * 8 + e % 2, columns - 1) * mask_column];
  }
#endif
}

// Scores times LOG2_E, with the mask; -infinity where there is no position. Largest of a row's: what the lane has of it.
FUNCTION void mask_scores(float (*scores)[4], float *now, const STORAGE(T) (*added)[4], int row, int column, int columns, float factor) {
  UNROLL for (int n = 0; n < SLICE / 8; ++n) {
    UNROLL for (int e = 0; e < 4; ++e) {
      int i = row + e / 2 * 8, j = column + n * 8 + e % 2;
      float score = scores[n][e] * factor;
#if HAS_MASK
      score = FMA(LOAD(T, added[n], e), LOG2_E, score);
#endif
      if (j >= columns || (IS_CAUSAL && j > i)) score = -INFINITY;
      scores[n][e] = score;
      now[e / 2] = score > now[e / 2] ? score : now[e / 2];
    }
  }
}

// What is there already shrinks by what the largest score grew; scores become their shares, but for the total.
FUNCTION void share(float (*scores)[4], float *now, float *most, float *total, float (*sums)[4]) {
  UNROLL for (int r = 0; r < 2; ++r) {
    // A row that has seen no position yet has no largest score.
    float less = now[r] == -INFINITY ? 0.0f : now[r], factor = power_of_2(most[r] - less);
    most[r] = now[r];
    total[r] *= factor;
    UNROLL for (int n = 0; n < EIGHTS; ++n) {
      sums[n][r * 2] *= factor;
      sums[n][r * 2 + 1] *= factor;
    }
    UNROLL for (int n = 0; n < SLICE / 8; ++n) {
      UNROLL for (int e = r * 2; e < r * 2 + 2; ++e) {
        scores[n][e] = power_of_2(scores[n][e] - less);
        total[r] += scores[n][e];
      }
    }
  }
}

// Two rows of q, as a product of 16 has them in a lane.
FUNCTION void read_rows(u32 (*left)[4], GLOBAL const STORAGE(T) *q, i64 q_row, int row, int rows, int in_quad) {
  UNROLL for (int i = 0; i < STEPS * 4; ++i) {
    GLOBAL const u16 *at = q + SOONER(row + i % 2 * 8, rows - 1) * q_row;
    left[i / 4][i % 4] = *(GLOBAL const u32 *)(at + i / 4 * 16 + i % 4 / 2 * 8 + in_quad * 2);
  }
}

#if PARTS == 1
FUNCTION void store_rows(float (*sums)[4], const float *total, GLOBAL STORAGE(T) *y, i64 y_row, int row, int rows, int in_quad) {
  UNROLL for (int r = 0; r < 2; ++r) {
    float factor = 1.0f / total[r];
    if (row + r * 8 >= rows) continue;
    UNROLL for (int m = 0; m < EIGHTS; ++m)
      *(GLOBAL u32 *)(y + (row + r * 8) * y_row + m * 8 + in_quad * 2) = pair_of(sums[m][r * 2] * factor, sums[m][r * 2 + 1] * factor);
  }
}
#else
// What one of the parts has found, for all: sums of its rows, behind those of all parts the largest scores, and behind all of these the
// totals. There is room, since PARTS * WARPS is KEYS / 16 at most.
FUNCTION void leave_part(IN_LOCAL float *found, float (*sums)[4], const float *most, const float *total, int row, int in_quad) {
  IN_LOCAL float *mosts = found + PARTS * ROWS * PITCH;
  UNROLL for (int r = 0; r < 2; ++r) {
    int place = row + r * 8;
    if (in_quad == 0) {
      mosts[place] = most[r];
      mosts[PARTS * ROWS + place] = total[r];
    }
    UNROLL for (int m = 0; m < EIGHTS; ++m) {
      uint2 two;
      two.x = FLOAT_BITS(sums[m][r * 2]);
      two.y = FLOAT_BITS(sums[m][r * 2 + 1]);
      *(IN_LOCAL uint2 *)(found + place * PITCH + m * 8 + in_quad * 2) = two;
    }
  }
}

// In the parts' order. An item has eight neighbouring elements of a row.
FUNCTION void store_met_rows(IN_LOCAL const float *found, GLOBAL STORAGE(T) *y, i64 y_row, int first, int rows, int item) {
  IN_LOCAL const float *mosts = found + PARTS * ROWS * PITCH;
  for (int i = item; i < ROWS * EIGHTS; i += GROUP) {
    int line = i / EIGHTS, place = i % EIGHTS * 8;
    if (first + line >= rows) continue;
    float most = -INFINITY, total = 0.0f, made[8];
    UNROLL for (int part = 0; part < PARTS; ++part) most = mosts[part * ROWS + line] > most ? mosts[part * ROWS + line] : most;
    float less = most == -INFINITY ? 0.0f : most;
    UNROLL for (int e = 0; e < 8; ++e) made[e] = 0.0f;
    UNROLL for (int part = 0; part < PARTS; ++part) {
      float factor = power_of_2(mosts[part * ROWS + line] - less);
      total += mosts[(PARTS + part) * ROWS + line] * factor;
      UNROLL for (int half = 0; half < 2; ++half) {
        uint4 sums = *(IN_LOCAL const uint4 *)(found + (part * ROWS + line) * PITCH + place + half * 4);
        made[half * 4] += BITS_FLOAT(sums.x) * factor;
        made[half * 4 + 1] += BITS_FLOAT(sums.y) * factor;
        made[half * 4 + 2] += BITS_FLOAT(sums.z) * factor;
        made[half * 4 + 3] += BITS_FLOAT(sums.w) * factor;
      }
    }
    float share = 1.0f / total;
    uint4 elements;
    elements.x = pair_of(made[0] * share, made[1] * share);
    elements.y = pair_of(made[2] * share, made[3] * share);
    elements.z = pair_of(made[4] * share, made[5] * share);
    elements.w = pair_of(made[6] * share, made[7] * share);
    write_16(y + (first + line) * y_row + place, elements);
  }
}
#endif

KERNEL run(IN(T, q), IN(T, k), IN(T, v), IN(T, mask), OUT(T, y), int rows, int columns, int heads, int shared, i64 q_batch, i64 q_head,
           i64 q_row, i64 k_batch, i64 k_head, i64 k_row, i64 v_batch, i64 v_head, i64 v_row, i64 y_batch, i64 y_head, i64 y_row,
           i64 mask_batch, i64 mask_head, i64 mask_row, i64 mask_column, float scale) {
  AT(q);
  AT(k);
  AT(v);
  AT(mask);
  AT(y);
  MEETING
  LOCAL uint4 kept[2 * 2 * KEYS * PITCH / 8];
  IN_LOCAL u16 *keys = (IN_LOCAL u16 *)kept, *values = keys + 2 * KEYS * PITCH;
  int item = (int)LOCAL_ID(0), lane = item % 32, warp = item / 32, quad = lane / 4, in_quad = lane % 4;
  int tiles = (rows + ROWS - 1) / ROWS, tile = (int)GROUP_ID(0) % tiles, pair = (int)GROUP_ID(0) / tiles;
  int b = pair / heads, h = pair % heads, first = tile * ROWS + warp / PARTS * 16, slice = warp % PARTS * SLICE;
  q += b * q_batch + h * q_head;
  k += b * k_batch + h / shared * k_head;
  v += b * v_batch + h / shared * v_head;
  y += b * y_batch + h * y_head;
  mask += b * mask_batch + h * mask_head;
  int end = IS_CAUSAL ? SOONER(columns, (tile + 1) * ROWS) : columns;
  begin_blocks(keys, values, k, k_row, v, v_row, 0, end, columns, item);
  u32 left[STEPS][4];
  read_rows(left, q, q_row, first + quad, rows, in_quad);
  STORAGE(T) added[SLICE / 8][4];
  if (PARTS > 1) read_mask(added, mask, mask_row, mask_column, first + quad, slice + in_quad * 2, rows, columns);
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f}, sums[EIGHTS][4];
  UNROLL for (int i = 0; i < EIGHTS * 4; ++i) sums[i / 4][i % 4] = 0.0f;
  for (int begin = 0; begin < end; begin += KEYS) {
    int at = begin / KEYS % 2 * (KEYS * PITCH);
    begin_blocks(keys + (KEYS * PITCH - at), values + (KEYS * PITCH - at), k, k_row, v, v_row, begin + KEYS, end, columns, item);
    wait_for_all_but_one();
    BARRIER;
    float scores[SLICE / 8][4];
    UNROLL for (int n = 0; n < SLICE / 8; ++n) UNROLL for (int e = 0; e < 4; ++e) scores[n][e] = 0.0f;
    UNROLL for (int s = 0; s < STEPS; ++s) {
      UNROLL for (int n = 0; n < SLICE / 8; n += 2) {
        u32 right[4];
        rows_of(right, keys + at, slice + n * 8, s * 16, lane);
        ADD_PRODUCT(scores[n], left[s][0], left[s][1], left[s][2], left[s][3], right[0], right[1]);
        ADD_PRODUCT(scores[n + 1], left[s][0], left[s][1], left[s][2], left[s][3], right[2], right[3]);
      }
    }
    float now[2] = {most[0], most[1]};
    int column = begin + slice + in_quad * 2;
    if (PARTS == 1) read_mask(added, mask, mask_row, mask_column, first + quad, column, rows, columns);
    mask_scores(scores, now, added, first + quad, column, columns, scale * LOG2_E);
    if (PARTS > 1) read_mask(added, mask, mask_row, mask_column, first + quad, column + KEYS, rows, columns);
    UNROLL for (int i = 0; i < 4; ++i) {
      float other;
      SHUFFLE_TO(other, now[i / 2], 1 + i % 2);
      now[i / 2] = other > now[i / 2] ? other : now[i / 2];
    }
    share(scores, now, most, total, sums);
    UNROLL for (int n = 0; n < SLICE / 8; n += 2) {
      u32 shares[4];
      UNROLL for (int e = 0; e < 4; ++e) shares[e] = pair_of(scores[n + e / 2][e % 2 * 2], scores[n + e / 2][e % 2 * 2 + 1]);
      UNROLL for (int m = 0; m < EIGHTS; m += 2) {
        u32 right[4];
        columns_of(right, values + at, slice + n * 8, m * 8, lane);
        ADD_PRODUCT(sums[m], shares[0], shares[1], shares[2], shares[3], right[0], right[1]);
        ADD_PRODUCT(sums[m + 1], shares[0], shares[1], shares[2], shares[3], right[2], right[3]);
      }
    }
    BARRIER;
  }
  UNROLL for (int r = 0; r < 2; ++r) {
    float near, far;
    SHUFFLE_TO(near, total[r], 1);
    SHUFFLE_TO(far, total[r] + near, 2);
    total[r] = total[r] + near + far;
  }
#if PARTS == 1
  store_rows(sums, total, y, y_row, first + quad, rows, in_quad);
#else
  leave_part((IN_LOCAL float *)kept, sums, most, total, warp % PARTS * ROWS + warp / PARTS * 16 + quad, in_quad);
  BARRIER;
  store_met_rows((IN_LOCAL const float *)kept, y, y_row, tile * ROWS, rows, item);
#endif
}
)kernel";

}  // namespace backplane::cuda
