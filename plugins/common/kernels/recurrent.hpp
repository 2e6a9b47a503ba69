// The steps of recurrent layers (RNN, GRU, LSTM), as text for kernels. The products of all inputs are there; a step multiplies the state
// by R, and makes the next state. States are kept in two buffers in turns: a step reads `step & 1` of them and writes the other.
//
// The program says T (of R, biases, peepholes, Y), TR and REAL (f32, or f64: of states, sums and the products of X), and
//
//   CELL           1: RNN, 2: GRU, 3: LSTM
//   ALL_GATES      1, 3 or 4
//   HAS_X          0: X has no elements along its last axis
//   HAS_BIAS, HAS_LENGTHS, HAS_PEEPHOLES, HAS_Y, HAS_Y_H, HAS_Y_C
//   HAS_CLIP, INPUT_FORGET
//   IN_PANELS      1: for items that have a core to themselves
//   BATCH_FIRST    layout 1
//   REVERSE        whether the first direction is; a second one always is
//   F0(x) ...      the gates' functions, of `direction`
//
// and for what a launch does of a step (a GRU that multiplies the state after its reset takes two of these, all others one):
//
//   GATES          gates whose products are computed here, from FIRST_GATE on
//   PART           0: all of the step; 1: the update and reset gates; 2: the last gate, whose product is of `reset`
//
// Memory: r; from_x [steps * batch][directions * ALL_GATES * hidden], rows in X's order; h [2][directions][batch][hidden];
// c, update, reset [directions][batch][hidden].
#pragma once

namespace backplane::common {

/// Before a kernel: what becomes of the sums of a unit.
inline constexpr char kRecurrentWords[] = R"kernel(
#define UNROLL _Pragma("unroll")
#define SOONER(a, b) ((a) < (b) ? (a) : (b))
#if IN_PANELS
// A rational function between -9 and 9: without a branch or a call, so that compilers make vectors of it. Eigen's
// (generic_fast_tanh_float), whose error is below 6 units in the last place.
FUNCTION REAL gate_tanh(REAL x) {
  if (sizeof(REAL) == 8) return tanh(x);
  float v = x < LIT(-9.0) ? -9.0f : x > LIT(9.0) ? 9.0f : (float)x;
  float s = v * v;
  float p = -2.76076847742355e-16f;
  p = FMA(p, s, 2.00018790482477e-13f);
  p = FMA(p, s, -8.60467152213735e-11f);
  p = FMA(p, s, 5.12229709037114e-08f);
  p = FMA(p, s, 1.48572235717979e-05f);
  p = FMA(p, s, 6.37261928875436e-04f);
  p = FMA(p, s, 4.89352455891786e-03f);
  float q = 1.19825839466702e-06f;
  q = FMA(q, s, 1.18534705686654e-04f);
  q = FMA(q, s, 2.26843463243900e-03f);
  q = FMA(q, s, 4.89352518554385e-03f);
  float y = v * p / q;
  return (REAL)(y > 1.0f ? 1.0f : y < -1.0f ? -1.0f : y);
}
#else
#define gate_tanh(x) tanh_of(x)
#endif
FUNCTION REAL gate_leaky(REAL x, REAL a) { return x < LIT(0.0) ? a * x : x; }
FUNCTION REAL gate_threshold(REAL x, REAL a) { return x > a ? x : LIT(0.0); }
FUNCTION REAL gate_softsign(REAL x) { return x / (LIT(1.0) + fabs(x)); }
#if HAS_CLIP
#define CLIPPED(x) clip_of(x, -(REAL)clip, (REAL)clip)
#else
#define CLIPPED(x) (x)
#endif
#define IS_REVERSE(direction) ((direction) == 1 || REVERSE)
#if HAS_LENGTHS
#define LENGTH(row) (lengths[row] < 0 ? 0 : SOONER((i64)lengths[row], steps))
#else
#define LENGTH(row) steps
#endif
// Where a row's state begins in tensors of the node, and its Y at a time.
#if BATCH_FIRST
#define X_ROW(row, time) ((row) * steps + (time))
#define STATE_AT(row) (((row) * directions + direction) * hidden)
#define Y_AT(row, time) ((((row) * steps + (time)) * directions + direction) * hidden)
#else
#define X_ROW(row, time) ((time) * batch + (row))
#define STATE_AT(row) ((direction * batch + (row)) * hidden)
#define Y_AT(row, time) (((time) * directions + direction) * batch * hidden + (row) * hidden)
#endif
// Of a gate of unit `j`: what X and the biases give. A GRU that resets the product has the recurrent bias of its last gate in there.
#define IS_RESET(g) (CELL == 2 && PART == 0 && (g) == 2)
#if HAS_X
#define X_PART(g, j) from_x[x_at + (FIRST_GATE + (g)) * hidden + (j)]
#else
#define X_PART(g, j) LIT(0.0)
#endif
#if HAS_BIAS
#define BIAS(g, j) (REAL)LOAD(T, bias, own_biases + (FIRST_GATE + (g)) * hidden + (j))
#define OWN_BIAS(g, j) (REAL)LOAD(T, bias, own_biases + (ALL_GATES + FIRST_GATE + (g)) * hidden + (j))
#else
#define BIAS(g, j) LIT(0.0)
#define OWN_BIAS(g, j) LIT(0.0)
#endif
#define GIVEN(g, j) (X_PART(g, j) + BIAS(g, j) + (IS_RESET(g) ? LIT(0.0) : OWN_BIAS(g, j)))
#define PEEP(p, j) (REAL)LOAD(T, peepholes, (direction * 3 + (p)) * hidden + (j))
// From the sums S(g) of a unit, with what X and biases give, and its state `state` to the next one, `next_state`; `cell` is its cell.
// PEEPED(p) and RESET_SUM are of this unit, too.
#if CELL == 1
#define NEXT_STATE(state, next_state) next_state = F0(CLIPPED(S(0)))
#elif CELL == 2
#define NEXT_STATE(state, next_state)                                                     \
  REAL renewed = F0(CLIPPED(S(0))), kept = F0(CLIPPED(S(1)));                             \
  REAL fresh = S(2) + kept * RESET_SUM;                                                   \
  fresh = F1(CLIPPED(fresh));                                                             \
  next_state = (LIT(1.0) - renewed) * fresh + renewed * (state)
#else
#if HAS_PEEPHOLES
#define WITH_PEEP(sum, p) ((sum) + PEEPED(p) * cell)
#else
#define WITH_PEEP(sum, p) (sum)
#endif
#if INPUT_FORGET
#define KEPT (LIT(1.0) - taken)
#else
#define KEPT F0(CLIPPED(WITH_PEEP(S(2), 2)))
#endif
#define NEXT_STATE(state, next_state)                                                     \
  REAL taken = F0(CLIPPED(WITH_PEEP(S(0), 0))), kept = KEPT, fresh = F1(CLIPPED(S(3)));   \
  cell = kept * cell + taken * fresh;                                                     \
  REAL shown = F0(CLIPPED(WITH_PEEP(S(1), 1)));                                           \
  next_state = shown * F2(cell)
#endif
)kernel";

/// Body of a walk over directions, rows and units: the states before the first step, which are also the last of sequences without any.
inline constexpr char kRecurrentStart[] = R"kernel(
  i64 direction = i2, own = (i2 * batch + i1) * hidden + i0, at = STATE_AT(i1) + i0;
#if HAS_LENGTHS
  if (lengths[i1] < 0 || lengths[i1] > steps) FAULT;
#endif
#if HAS_INITIAL_H
  REAL start = (REAL)LOAD(T, initial_h, at);
#else
  REAL start = LIT(0.0);
#endif
  h[own] = start;
#if HAS_Y_H
  if (LENGTH(i1) == 0) STORE(T, y_h, at, start);
#endif
#if CELL == 3
#if HAS_INITIAL_C
  REAL cell = (REAL)LOAD(T, initial_c, at);
#else
  REAL cell = LIT(0.0);
#endif
  c[own] = cell;
#if HAS_Y_C
  if (LENGTH(i1) == 0) STORE(T, y_c, at, cell);
#endif
#endif
)kernel";

/// A step, or a part of one, of devices whose items share rows. Items of a group have SIDES = GROUP / LANES units of one direction, and
/// LANES of them share a unit: each has its own places along the depth of all of the unit's gates, whose lines of R lie as the node
/// has them, and ROWS rows of the batch, for which a line is read once. Powers of two: GROUP, LANES (32 at most), ROWS. Stands after
/// kWideRows, whose V is of T; HV is how many REALs have 16 bytes.
inline constexpr char kRecurrentGroup[] = R"kernel(
#define WIDE JOIN(wide_, T)
#define UNPACK(words, to) JOIN(unpack_, T)(words, to)
#define WIDE_H JOIN(wide_, TR)
#define UNPACK_H(words, to) JOIN(unpack_, TR)(words, to)
#define SIDES (GROUP / LANES)
#define SUMS (ROWS * GATES)
#define ROW(r) (ROWS == 1 ? first_row : SOONER(first_row + (r), batch - 1))
  LOCAL REAL total[SIDES * SUMS];
#ifndef __CUDACC__
  LOCAL REAL met[GROUP * SUMS];
#endif
  int item = (int)LOCAL_ID(0), lane = item % LANES, side = item / LANES;
  i64 direction = GROUP_ID(2), first_row = (i64)GROUP_ID(1) * ROWS, first = (i64)GROUP_ID(0) * SIDES;
  i64 states = directions * batch * hidden, of_direction = direction * batch * hidden;
  GLOBAL const REAL *now = h + (step & 1) * states + of_direction;
  GLOBAL REAL *next = h + (1 - (step & 1)) * states + of_direction;
#if PART == 2
  GLOBAL const REAL *source = reset + of_direction;
#else
  GLOBAL const REAL *source = now;
#endif
  i64 square = hidden * hidden;
  GLOBAL const STORAGE(T) *from = r + (direction * ALL_GATES + FIRST_GATE) * square + SOONER(first + side, hidden - 1) * hidden;
  REAL sums[SUMS];
  UNROLL for (int s = 0; s < SUMS; ++s) sums[s] = LIT(0.0);
  if (IS_WIDE(r) && hidden % V == 0) {
    _Pragma("unroll 2") for (i64 k = lane * V; k < hidden; k += LANES * V) {
      WIDE w[GATES];
      VALUE(T) near[GATES * V];
      UNROLL for (int g = 0; g < GATES; ++g) w[g] = *(GLOBAL const WIDE *)(from + g * square + k);
      UNROLL for (int g = 0; g < GATES; ++g) UNPACK(w[g], (near + g * V));
      UNROLL for (int b = 0; b < ROWS; ++b) {
        REAL own[V];
        UNROLL for (int e = 0; e < V; e += HV) {
          WIDE_H words = *(GLOBAL const WIDE_H *)(source + ROW(b) * hidden + k + e);
          UNPACK_H(words, (own + e));
        }
        UNROLL for (int g = 0; g < GATES; ++g)
          UNROLL for (int e = 0; e < V; ++e) sums[b * GATES + g] = FMA(own[e], (REAL)near[g * V + e], sums[b * GATES + g]);
      }
    }
  } else {
    _Pragma("unroll 2") for (i64 k = lane; k < hidden; k += LANES) {
      REAL near[GATES];
      UNROLL for (int g = 0; g < GATES; ++g) near[g] = (REAL)LOAD(T, from, g * square + k);
      UNROLL for (int b = 0; b < ROWS; ++b) {
        REAL own = source[ROW(b) * hidden + k];
        UNROLL for (int g = 0; g < GATES; ++g) sums[b * GATES + g] = FMA(own, near[g], sums[b * GATES + g]);
      }
    }
  }
#ifdef __CUDACC__
#define HELD (ROWS > LANES ? ROWS / LANES : 1)
  // Neighbours with the same unit halve the rows between them, as long as there are several.
  int kept_rows = 0;
  UNROLL for (int d = 1, half = ROWS / 2; d < LANES; d *= 2, half /= 2) {
    int is_upper = half > 0 && (lane & d) != 0;
    UNROLL for (int s = 0; s < SUMS; ++s) {
      if (s < half * GATES || (half == 0 && s < GATES)) {
        REAL given = is_upper ? sums[s] : sums[s + half * GATES], own = is_upper ? sums[s + half * GATES] : sums[s];
        sums[s] = own + __shfl_xor_sync(0xffffffffu, given, d);
      }
    }
    kept_rows += is_upper ? half : 0;
  }
  if (lane < ROWS) {
    UNROLL for (int s = 0; s < HELD * GATES; ++s) total[side * SUMS + kept_rows * GATES + s] = sums[s];
  }
#else
  for (int s = 0; s < SUMS; ++s) met[s * GROUP + item] = sums[s];
  BARRIER;
  for (int i = item; i < SIDES * SUMS; i += GROUP) {
    REAL sum = LIT(0.0);
    for (int l = 0; l < LANES; ++l) sum += met[i % SUMS * GROUP + i / SUMS * LANES + l];
    total[i] = sum;
  }
#endif
  BARRIER;
#define SUM(g) total[of_side * SUMS + b * GATES + (g)]
#define S(g) (GIVEN(g, j) + (IS_RESET(g) ? LIT(0.0) : SUM(g)))
#define RESET_SUM (SUM(2) + OWN_BIAS(2, j))
#define PEEPED(p) PEEP(p, j)
  for (int i = item; i < SIDES * ROWS; i += GROUP) {
    int of_side = i % SIDES, b = i / SIDES;
    i64 row = first_row + b, j = first + of_side, own = row * hidden + j;
    if (row >= batch || j >= hidden) continue;
    i64 length = LENGTH(row);
    REAL was = now[own];
    if (step >= length) {
      // Behind the end of a sequence.
#if PART == 1
      update[of_direction + own] = LIT(0.0);
      reset[of_direction + own] = LIT(0.0);
#else
      next[own] = was;
#if HAS_Y
      STORE(T, y, Y_AT(row, step) + j, LIT(0.0));
#endif
#endif
      continue;
    }
    i64 time = IS_REVERSE(direction) ? length - 1 - step : step;
    i64 x_at = (X_ROW(row, time) * directions + direction) * ALL_GATES * hidden, own_biases = direction * 2 * ALL_GATES * hidden;
#if PART == 1
    update[of_direction + own] = F0(CLIPPED(S(0)));
    REAL kept = F0(CLIPPED(S(1)));
    reset[of_direction + own] = kept * was;
#else
#if CELL == 3
    REAL cell = c[of_direction + own];
#endif
#if PART == 2
    REAL renewed = update[of_direction + own], fresh = F1(CLIPPED(S(0)));
    REAL made = (LIT(1.0) - renewed) * fresh + renewed * was;
#else
    REAL made;
    NEXT_STATE(was, made);
#endif
    next[own] = made;
#if HAS_Y
    STORE(T, y, Y_AT(row, time) + j, made);
#endif
#if CELL == 3
    c[of_direction + own] = cell;
#endif
    if (step + 1 == length) {
#if HAS_Y_H
      STORE(T, y_h, STATE_AT(row) + j, made);
#endif
#if HAS_Y_C
      STORE(T, y_c, STATE_AT(row) + j, cell);
#endif
    }
#endif
  }
)kernel";

/// The same of items that have a core to themselves: an item has ROWS rows of one direction, `item_panels` panels of PANEL units, and
/// `launch_steps` steps. It reads R as panels of REAL, [directions][panels][hidden][GATES][PANEL], zeros filled in; those of part 2
/// stand behind those of part 1. VT is a vector of VW REALs. This begins the kernel; after it stands kRecurrentPart for each part of a
/// step, and kRecurrentEnd.
inline constexpr char kRecurrentItem[] = R"kernel(
#define NV (PANEL / VW)
#define VLOAD JOIN(vload, VW)
#define VSTORE JOIN(vstore, VW)
#define ROW(b) (ROWS == 1 ? first_row : SOONER(first_row + (b), batch - 1))
#define SUM(g) sums[(b * GATES + (g)) * PANEL + e]
#define S(g) (given[(g) * PANEL + e] + (IS_RESET(g) ? LIT(0.0) : SUM(g)))
#define RESET_SUM (SUM(2) + own_bias[e])
#define PEEPED(p) peeps[(p) * PANEL + e]
#define EACH for (int e = 0; e < count; ++e)
  i64 direction = GROUP_ID(2), first_row = (i64)GROUP_ID(1) * ROWS, panels = (hidden + PANEL - 1) / PANEL;
  i64 first_panel = (i64)GROUP_ID(0) * item_panels, last_panel = SOONER(first_panel + item_panels, panels);
  i64 states = directions * batch * hidden, of_direction = direction * batch * hidden;
  i64 own_biases = direction * 2 * ALL_GATES * hidden, last_step = SOONER((turn + 1) * launch_steps, steps);
  for (i64 step = turn * launch_steps; step < last_step; ++step) {
    GLOBAL const REAL *now = h + (step & 1) * states + of_direction;
    GLOBAL REAL *next = h + (1 - (step & 1)) * states + of_direction;
)kernel";

/// What is read stands in arrays of the item's own, and so does what is written: so compilers know that nothing shares memory.
inline constexpr char kRecurrentPart[] = R"kernel(
    for (i64 panel = first_panel; panel < last_panel; ++panel) {
#if PART == 2
      GLOBAL const REAL *source = reset + of_direction;
      GLOBAL const REAL *from = r + (2 * directions * panels + direction * panels + panel) * hidden * PANEL;
#else
      GLOBAL const REAL *source = now;
      GLOBAL const REAL *from = r + (direction * panels + panel) * hidden * (GATES * PANEL);
#endif
      VT parts[ROWS * GATES * NV];
      UNROLL for (int i = 0; i < ROWS * GATES * NV; ++i) parts[i] = (VT)(LIT(0.0));
      for (i64 k = 0; k < hidden; ++k, from += GATES * PANEL) {
        VT near[GATES * NV];
        UNROLL for (int i = 0; i < GATES * NV; ++i) near[i] = VLOAD(i, from);
        UNROLL for (int b = 0; b < ROWS; ++b) {
          VT own = (VT)(source[ROW(b) * hidden + k]);
          UNROLL for (int i = 0; i < GATES * NV; ++i) parts[b * GATES * NV + i] = fma(own, near[i], parts[b * GATES * NV + i]);
        }
      }
      REAL sums[ROWS * GATES * PANEL], given[GATES * PANEL], was[PANEL], made[PANEL];
      UNROLL for (int i = 0; i < ROWS * GATES * NV; ++i) VSTORE(parts[i], i, sums);
      i64 first = panel * PANEL;
      int count = (int)SOONER(PANEL, hidden - first);
#if CELL == 2 && PART == 0
      REAL own_bias[PANEL];
      EACH own_bias[e] = OWN_BIAS(2, first + e);
#endif
#if HAS_PEEPHOLES
      REAL peeps[3 * PANEL];
      for (int p = 0; p < 3; ++p) EACH peeps[p * PANEL + e] = PEEP(p, first + e);
#endif
      for (int b = 0; b < ROWS && first_row + b < batch; ++b) {
        i64 row = first_row + b, length = LENGTH(row), own = row * hidden + first;
        EACH was[e] = now[own + e];
        if (step >= length) {
          // Behind the end of a sequence.
#if PART == 1
          EACH update[of_direction + own + e] = LIT(0.0);
          EACH reset[of_direction + own + e] = LIT(0.0);
#else
          EACH next[own + e] = was[e];
#if HAS_Y
          EACH STORE(T, y, Y_AT(row, step) + first + e, LIT(0.0));
#endif
#endif
          continue;
        }
        i64 time = IS_REVERSE(direction) ? length - 1 - step : step;
        i64 x_at = (X_ROW(row, time) * directions + direction) * ALL_GATES * hidden;
        UNROLL for (int g = 0; g < GATES; ++g) EACH given[g * PANEL + e] = GIVEN(g, first + e);
#if PART == 1
        EACH made[e] = F0(CLIPPED(S(0)));
        EACH update[of_direction + own + e] = made[e];
        EACH {
          REAL kept = F0(CLIPPED(S(1)));
          made[e] = kept * was[e];
        }
        EACH reset[of_direction + own + e] = made[e];
#else
#if PART == 2
        EACH made[e] = update[of_direction + own + e];
        EACH {
          REAL fresh = F1(CLIPPED(S(0)));
          made[e] = (LIT(1.0) - made[e]) * fresh + made[e] * was[e];
        }
#elif CELL == 3
        REAL cells[PANEL];
        EACH cells[e] = c[of_direction + own + e];
        EACH {
          REAL cell = cells[e], made_state;
          NEXT_STATE(was[e], made_state);
          cells[e] = cell;
          made[e] = made_state;
        }
        EACH c[of_direction + own + e] = cells[e];
#else
        EACH {
          REAL made_state;
          NEXT_STATE(was[e], made_state);
          made[e] = made_state;
        }
#endif
        EACH next[own + e] = made[e];
#if HAS_Y
        EACH STORE(T, y, Y_AT(row, time) + first + e, made[e]);
#endif
        if (step + 1 == length) {
#if HAS_Y_H
          EACH STORE(T, y_h, STATE_AT(row) + first + e, made[e]);
#endif
#if HAS_Y_C
          EACH STORE(T, y_c, STATE_AT(row) + first + e, cells[e]);
#endif
        }
#endif
      }
    }
)kernel";

/// Body of a walk over directions, panels, the depth and a panel's units: panels of R's gates from `first_gate` on.
inline constexpr char kRecurrentPanels[] = R"kernel(
  for (int g = 0; g < GATES; ++g) {
    i64 unit = i2 * panel + i0, line = (i3 * all_gates + first_gate + g) * hidden + unit;
    y[((i3 * panels + i2) * hidden + i1) * (GATES * panel) + g * panel + i0] =
        unit < hidden ? (VALUE(TR))LOAD(T, r, line * hidden + i1) : (VALUE(TR))0;
  }
)kernel";

inline constexpr char kRecurrentEnd[] = R"kernel(
  }
)kernel";

}  // namespace backplane::common
