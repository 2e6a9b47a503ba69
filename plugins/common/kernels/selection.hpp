// The best of a row in order, as text for kernels in which a group shares a row (rows.hpp).
//
// Elements are taken as the bits that memory holds and become keys, the greater the better, so that all types are one:
// NaN is the greatest number, and -0 is 0. Of equal keys the lower place is better; so no two elements are alike.
#pragma once

namespace backplane::common {

/// The program defines T (u8 u16 u32 u64), KEY (u32, or u64 of u64), BITS of an element, IS_FLOAT with the bits INFINITE of
/// infinity, IS_SIGNED, IS_LARGEST.
inline constexpr char kSelectionKeys[] = R"kernel(
#ifdef __CUDACC__
#define ATOMIC_ADD(p, v) atomicAdd((p), (v))
#else
#define ATOMIC_ADD(p, v) atomic_add((p), (v))
#endif
#define SIGN ((KEY)1 << (BITS - 1))
FUNCTION KEY key_of(KEY bits) {
#if IS_FLOAT
  KEY size = bits & (SIGN - 1);
  KEY key = size > INFINITE             ? SIGN | (SIGN - 1)
            : size == 0 || bits == size ? SIGN | size
                                        : SIGN - 1 - size;
#elif IS_SIGNED
  KEY key = bits ^ SIGN;
#else
  KEY key = bits;
#endif
  return IS_LARGEST ? key : (SIGN | (SIGN - 1)) - key;
}
)kernel";

/// The k best elements of each row at y and their places at `at`, best first; elements lie `inner` apart. `padded` is the power of two
/// that holds what is sorted, SIZE its room. With SELECTS these are the k best alone: their least is found digit by digit
/// of 8 bits, `digits` at most, first of keys and then of places. PHASE 1 stores the best of each part as keys and
/// places, in no order, and PHASE 2 takes these for the row, whose `length` is not n then.
inline constexpr char kTopRow[] = R"kernel(
#if PHASE == 2
#define KEY_AT(j) found_keys[j]
#define PLACE_AT(j) found_places[j]
#else
#define KEY_AT(j) key_of((KEY)x[(j) * (INDEX)inner])
#define PLACE_AT(j) (u32)(j)
#endif
#define KEY_DIGITS (BITS / 8)
  LOCAL KEY keys[SIZE];
  LOCAL u32 places[SIZE];
#if PHASE == 2
  found_keys += row * n;
  found_places += row * n;
#endif
  x += row / inner * length * inner + row % inner;
#if SELECTS
  LOCAL u32 counts[256], sums[16], told[4];
  u32 count = last - first < (INDEX)k ? (u32)(last - first) : (u32)k, wanted = count;
  KEY mask = 0, prefix = 0;
  u32 place_mask = 0, place_prefix = 0;
  int is_found = count == (u32)(last - first);
  if (item == 0) told[3] = 0;
  for (int digit = 0; digit < digits && !is_found; ++digit) {
    int is_place = digit >= KEY_DIGITS;
    int shift = 8 * ((is_place ? (int)digits : KEY_DIGITS) - 1 - digit);
    for (int b = item; b < 256; b += GROUP) counts[b] = 0;
    BARRIER;
    // Neighbours mostly have the same first digits: those of a lane are counted together.
    u32 held = 0, run_count = 0;
    for (INDEX j = first + item; j < last; j += GROUP) {
      KEY key = KEY_AT(j);
      u32 place = ~PLACE_AT(j);
      if ((key & mask) == prefix && (place & place_mask) == place_prefix) {
        u32 bucket = (is_place ? place >> shift : (u32)(key >> shift)) & 255u;
        if (bucket != held) {
          if (run_count > 0) ATOMIC_ADD(&counts[held], run_count);
          held = bucket;
          run_count = 0;
        }
        ++run_count;
      }
    }
    if (run_count > 0) ATOMIC_ADD(&counts[held], run_count);
    BARRIER;
    for (int s = item; s < 16; s += GROUP) {
      u32 sum = 0;
      for (int c = 0; c < 16; ++c) sum += counts[16 * s + c];
      sums[s] = sum;
    }
    BARRIER;
    for (int b = item; b < 256; b += GROUP) {
      u32 above = 0;
      for (int s = b / 16 + 1; s < 16; ++s) above += sums[s];
      for (int c = b + 1; c % 16 != 0; ++c) above += counts[c];
      if (above < wanted && wanted <= above + counts[b]) {
        told[0] = (u32)b;
        told[1] = above;
        told[2] = counts[b];
      }
    }
    BARRIER;
    wanted -= told[1];
    is_found = told[2] == wanted;
    if (is_place) {
      place_mask |= 255u << shift;
      place_prefix |= told[0] << shift;
    } else {
      mask |= (KEY)255 << shift;
      prefix |= (KEY)told[0] << shift;
    }
  }
  BARRIER;
  for (INDEX j = first + item; j < last; j += GROUP) {
    KEY key = KEY_AT(j);
    u32 place = ~PLACE_AT(j);
    if ((key & mask) > prefix ||
        ((key & mask) == prefix && (place & place_mask) >= place_prefix)) {
      u32 slot = ATOMIC_ADD(&told[3], 1u);
      keys[slot] = key;
      places[slot] = ~place;
    }
  }
#else
  u32 count = (u32)n;
  for (int i = item; i < (int)n; i += GROUP) {
    keys[i] = KEY_AT(i);
    places[i] = PLACE_AT(i);
  }
#endif
  // Worse than every element.
  for (int i = (int)count + item; i < (int)padded; i += GROUP) {
    keys[i] = 0;
    places[i] = ~0u;
  }
#if PHASE == 1
  BARRIER;
  for (int i = item; i < (int)k; i += GROUP) {
    found_keys[(row * parts + part) * k + i] = keys[i];
    found_places[(row * parts + part) * k + i] = places[i];
  }
#else
  for (int size = 2; size <= (int)padded; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      BARRIER;
      for (int i = item; i < (int)padded / 2; i += GROUP) {
        int a = 2 * i - (i & (step - 1)), b = a + step;
        KEY key_a = keys[a], key_b = keys[b];
        u32 place_a = places[a], place_b = places[b];
        int is_better = key_a > key_b || (key_a == key_b && place_a < place_b);
        if (is_better != ((a & size) == 0)) {
          keys[a] = key_b;
          keys[b] = key_a;
          places[a] = place_b;
          places[b] = place_a;
        }
      }
    }
  }
  BARRIER;
  y += row / inner * k * inner + row % inner;
  at += row / inner * k * inner + row % inner;
  for (int i = item; i < (int)k; i += GROUP) {
    y[i * inner] = x[places[i] * inner];
    at[i * inner] = (i64)places[i];
  }
#endif
)kernel";

}  // namespace backplane::common
