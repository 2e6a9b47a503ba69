// Products of 16-bit matrices, and convolutions as such, by the warpgroups of compute capability 9.0, as text for kernels: see
// ../tile_form.hpp.
#pragma once

namespace backplane::cuda {

/// The copies of boxes and the products of warpgroups, as the PTX ISA has them:
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-tensor
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
/// Where there is no device, who runs the text gives the same words (tests/cuda/warpgroups.hpp): all that follows is one text for both.
inline constexpr char kTileWords[] = R"kernel(
#define DEPTH 64
#ifdef __CUDACC__
typedef struct __align__(64) {
  u64 words[16];
} Boxes;
#define BOXES(x) const __grid_constant__ Boxes x
FUNCTION u32 local_address(const void *p) {
  u32 made;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(made) : "l"(p));
  return made;
}
#define LOCAL_MEMORY(name) extern __shared__ __align__(1024) u8 name[]
FUNCTION void begin_barrier(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
FUNCTION void show_barriers(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FUNCTION void expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
FUNCTION void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
FUNCTION void await(u32 barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\n again_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      " @p bra done_%=;\n bra again_%=;\n done_%=:\n }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
FUNCTION void prefetch_boxes(const Boxes *boxes) { asm volatile("prefetch.tensormap [%0];" ::"l"(boxes) : "memory"); }
// A box of 64 elements of each of some lines, at element x of line y of matrix z: outside of the matrix there are zeros, and nothing is
// stored.
FUNCTION void load_box(u32 to, const Boxes *from, int x, int y, int z, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
               "l"(from), "r"(x), "r"(y), "r"(z), "r"(barrier)
               : "memory");
}
// The same of 64 channels of pixels, in the order of results, from image n's pixel (y, x) on, each moved down and right.
FUNCTION void load_pixels(u32 to, const Boxes *from, int c, int x, int y, int n, int right, int down, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
      "l"(from), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"((u16)right), "h"((u16)down)
      : "memory");
}
FUNCTION void store_box(const Boxes *to, int x, int y, int z, u32 from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(to), "r"(x), "r"(y), "r"(z),
               "r"(from)
               : "memory");
}
// What an item has put into local memory, the copies that come later see.
FUNCTION void show_to_copies(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
FUNCTION void commit_stores(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
FUNCTION void wait_for_stores(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
FUNCTION void wait_for_stores_to_have_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
FUNCTION void meet_team(int team) { asm volatile("bar.sync %0, 128;" ::"r"(team) : "memory"); }
// Items of several teams.
FUNCTION void meet_teams(int items) { asm volatile("bar.sync 15, %0;" ::"r"(items) : "memory"); }
FUNCTION void reach_cluster(void) { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
FUNCTION void await_cluster(void) { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
FUNCTION u32 local_word(u32 at) {
  u32 made;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(made) : "r"(at) : "memory");
  return made;
}
FUNCTION void set_local_word(u32 at, u32 word) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory"); }
FUNCTION void set_local_sums(u32 at, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(first), "f"(second) : "memory");
}
// Of a group of the cluster.
FUNCTION float4 sums_of(u32 at, int part) {
  float4 made;
  asm volatile("{ .reg .u32 t; mapa.shared::cluster.u32 t, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [t]; }"
               : "=f"(made.x), "=f"(made.y), "=f"(made.z), "=f"(made.w)
               : "r"(at), "r"(part)
               : "memory");
  return made;
}
// Of a team's items together. Compilers take the sums for read and written at HOLD, and so leave them where products that go on have them.
#define MULTIPLY(d, a, b, more) asm volatile(PRODUCT : SUMS(d) : "l"(a), "l"(b), "r"(more))
#define HOLD(d) asm volatile("" : SUMS(d) : : "memory")
FUNCTION void order_sums(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FUNCTION void commit_products(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define AWAIT_PRODUCTS(but) asm volatile("wgmma.wait_group.sync.aligned " TEXT(but) ";" ::: "memory")
#define HAVE_FEW_REGISTERS asm volatile("setmaxnreg.dec.sync.aligned.u32 " TEXT(FEW_REGISTERS) ";")
#define HAVE_MANY_REGISTERS asm volatile("setmaxnreg.inc.sync.aligned.u32 " TEXT(MANY_REGISTERS) ";")
#define BEGIN_NEXT asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define WAIT_FOR_TURN asm volatile("griddepcontrol.wait;" ::: "memory")
#else
// The words of who runs the text stand before it.
#endif
// A matrix in local memory whose lines of 128 bytes are swizzled, by the bytes from one part to the next.
FUNCTION u64 matrix_at(u32 at, u32 leading, u32 stride) {
  return (u64)((at & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}
// Of a word of two elements.
FUNCTION float low_of(u32 word) {
  u16 parts[1] = {(u16)word};
  return LOAD(T, parts, 0);
}
FUNCTION float high_of(u32 word) {
  u16 parts[1] = {(u16)(word >> 16)};
  return LOAD(T, parts, 0);
}
// The tiles of a product: of so many matrices, and how many groups, or clusters of PARTS groups, share them. Of the depth a group has what
// lies from `from` on and before `to`.
typedef struct {
  int columns, depth, row_tiles, column_tiles, tiles, groups, by_columns, from, to;
} Tiles;
FUNCTION Tiles part_of(Tiles t, int part) {
  int steps = (t.depth + DEPTH - 1) / DEPTH, last = steps * (part + 1) / PARTS * DEPTH;
  t.from = steps * part / PARTS * DEPTH;
  t.to = last < t.depth ? last : t.depth;
  return t;
}
// Of a convolution: all pixels of the results and those of an image, and where each one's window begins and has its taps.
typedef struct {
  int count, of_image, width, channels, taps_across, stride_y, stride_x, top, left, dilation_y, dilation_x;
} Pixels;
// What is done to a sum.
typedef struct {
  int bias_step, has_bias, has_relu;
  float factor, addend_factor;
} After;
FUNCTION float relu_of(float sum, After after) { return after.has_relu && sum < 0.0f ? 0.0f : sum; }
// Where a tile begins, and of which matrix it is. Neighbours read the same of the smaller matrix.
FUNCTION int row_of(int tile, Tiles t) {
  int of_matrix = tile % (t.row_tiles * t.column_tiles);
  return (t.by_columns ? of_matrix / t.column_tiles : of_matrix % t.row_tiles) * ROWS;
}
FUNCTION int column_of(int tile, Tiles t) {
  int of_matrix = tile % (t.row_tiles * t.column_tiles);
  return (t.by_columns ? of_matrix % t.column_tiles : of_matrix / t.row_tiles) * COLUMNS;
}
FUNCTION int matrix_of(int tile, Tiles t) { return tile / (t.row_tiles * t.column_tiles); }
)kernel";

/// The first team of 128 items asks for boxes of a and b, as many steps of the depth ahead as there are stages; each other one multiplies
/// BLOCKS_OF_ROWS times 64 rows of a tile, adds what is to be added and stores, while the next tile's boxes already come. A tile of addends
/// comes to where the results are put. Of a convolution (PIXELS) the rows are the results' pixels, the depth the channels of all taps.
inline constexpr char kTileProduct[] = R"kernel(
#define BLOCKS (COLUMNS / 64)
#define TEAM_BLOCKS (BLOCKS_OF_ROWS * BLOCKS)
#define BLOCK_BYTES (64 * 128)
#define A_BYTES (ROWS * 128)
#define B_BYTES (COLUMNS * 128)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define GROUP (128 * (TEAMS + 1))
// The turn comes later: until then nothing is touched that other kernels make.
#undef IN_TURN
#define IN_TURN
#undef KERNEL
#if PARTS == 1
#define CLUSTER
#endif
#if PARTS > 1
#define CLUSTER __cluster_dims__(PARTS, 1, 1)
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP, RESIDENT) CLUSTER
#define INLINED static __device__ __forceinline__
// Where stages lie, what says that one is full or empty, and which is next.
typedef struct {
  u32 at, full, empty;
  int stage;
  u32 parity;
} Stages;
FUNCTION u32 full_barrier(Stages s) { return s.full + s.stage * 8; }
FUNCTION u32 empty_barrier(Stages s) { return s.empty + s.stage * 8; }
FUNCTION u32 stage_at(Stages s) { return s.at + s.stage * STAGE_BYTES; }
FUNCTION Stages next_stage(Stages s) {
  s.stage = s.stage + 1 == STAGES ? 0 : s.stage + 1;
  if (s.stage == 0) s.parity ^= 1;
  return s;
}

// A stage is filled by one item, and emptied by a lane of every warp that multiplies.
INLINED void begin_barriers(Stages s, u32 addends) {
  for (int i = 0; i < STAGES; ++i) {
    begin_barrier(s.full + i * 8, 1);
    begin_barrier(s.empty + i * 8, TEAMS * 4);
  }
  for (int i = 0; i < TEAMS; ++i) begin_barrier(addends + i * 8, 1);
  show_barriers();
  show_to_copies();
}

INLINED void load_right(const Boxes *b, int k, int column, int z, u32 at, u32 barrier) {
#if APART
  load_box(at + A_BYTES, b, k, column, z, barrier);
#else
  UNROLL for (int i = 0; i < BLOCKS; ++i) load_box(at + A_BYTES + i * BLOCK_BYTES, b, column + i * 64, k, z, barrier);
#endif
}

// What no kernel makes comes before the turn: the steps of the first tile that there are stages for, which are told.
INLINED int load_ahead(const Boxes *b, Tiles t, int group, int b_moves, Stages s) {
  int z = matrix_of(group, t), column = column_of(group, t), steps = 0;
  for (int k = t.from; k < t.to && steps < STAGES; k += DEPTH, ++steps, s = next_stage(s)) {
    expect_bytes(full_barrier(s), STAGE_BYTES);
    load_right(b, k, column, z * b_moves, stage_at(s), full_barrier(s));
  }
  return steps;
}

INLINED void load_tiles(const Boxes *a, const Boxes *b, Tiles t, Pixels p, int group, int a_moves, int b_moves, int ahead, Stages s) {
  for (int tile = group; tile < t.tiles; tile += t.groups) {
    int z = matrix_of(tile, t), row = row_of(tile, t), column = column_of(tile, t);
#if PIXELS
    // Beyond the last pixel nothing is stored, but where to begin must be a pixel.
    int pixel = row < p.count ? row : p.count - 1, n = pixel / p.of_image, v = pixel % p.of_image / p.width * p.stride_y - p.top;
    int u = pixel % p.of_image % p.width * p.stride_x - p.left;
    int first = t.from % p.channels, tap = t.from / p.channels, down = tap / p.taps_across, right = tap % p.taps_across;
#endif
    for (int k = t.from; k < t.to; k += DEPTH, s = next_stage(s)) {
      u32 barrier = full_barrier(s), at = stage_at(s);
      if (ahead > 0) {
        --ahead;
      } else {
        await(empty_barrier(s), s.parity ^ 1);
        expect_bytes(barrier, STAGE_BYTES);
        load_right(b, k, column, z * b_moves, at, barrier);
      }
#if PIXELS
      load_pixels(at, a, first, u, v, n, right * p.dilation_x, down * p.dilation_y, barrier);
      first += DEPTH;
      if (first == p.channels) {
        first = 0;
        if (++right == p.taps_across) right = 0, ++down;
      }
#else
      load_box(at, a, k, row, z * a_moves, barrier);
#endif
    }
  }
}

// A step of the depth, for a team's rows. The products go on when this ends.
INLINED void begin_products(float (*sums)[COLUMNS / 2], u32 at, int mine, int is_first) {
  UNROLL for (int r = 0; r < BLOCKS_OF_ROWS; ++r) HOLD(sums[r]);
  order_sums();
  UNROLL for (int i = 0; i < DEPTH / 16; ++i) {
    int adds = !is_first || i > 0;
#if APART
    u64 right = matrix_at(at + A_BYTES + i * 32, 16, 1024);
#else
    u64 right = matrix_at(at + A_BYTES + i * 2048, BLOCK_BYTES, 1024);
#endif
    UNROLL for (int r = 0; r < BLOCKS_OF_ROWS; ++r)
      MULTIPLY(sums[r], matrix_at(at + (mine * BLOCKS_OF_ROWS + r) * BLOCK_BYTES + i * 32, 16, 1024), right, adds);
  }
  commit_products();
}

INLINED Stages multiply(float (*sums)[COLUMNS / 2], Stages s, Tiles t, int mine, int lane) {
  u32 last = 0;
  for (int k = t.from; k < t.to; k += DEPTH, s = next_stage(s)) {
    await(full_barrier(s), s.parity);
    begin_products(sums, stage_at(s), mine, k == t.from);
    AWAIT_PRODUCTS(1);
    // What the step before read is free: only this step's products may still go on.
    if (k > t.from && lane == 0) arrive(last);
    last = empty_barrier(s);
  }
  AWAIT_PRODUCTS(0);
  UNROLL for (int r = 0; r < BLOCKS_OF_ROWS; ++r) HOLD(sums[r]);
  if (lane == 0) arrive(last);
  return s;
}

// Of a team's tile the word of two results that begins at column 8 * j of a block's line.
FUNCTION u32 word_at(u32 made, int block, int line, int j, int lane) {
  return made + block * BLOCK_BYTES + line * 128 + ((j ^ (line & 7)) << 4) + lane % 4 * 4;
}

// Of two columns.
INLINED u32 bias_at(const u8 *bias, int column, int z, Tiles t, After after) {
  return after.has_bias && column < t.columns ? *(const u32 *)(bias + ((i64)z * after.bias_step + column) * 2) : 0;
}

// A lane has two neighbours of every eighth of a line, of two lines of every block.
INLINED void put_sums(float (*sums)[COLUMNS / 2], const u32 *biases, u32 made, int warp, int lane, After after) {
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
#if HAS_ADDEND
    u32 added[2 * BLOCKS_OF_ROWS][8];
    UNROLL for (int h = 0; h < 2 * BLOCKS_OF_ROWS; ++h) {
      int line = warp * 16 + lane / 4 + h % 2 * 8;
      UNROLL for (int j = 0; j < 8; ++j) added[h][j] = local_word(word_at(made, h / 2 * BLOCKS + block, line, j, lane));
    }
#endif
    UNROLL for (int h = 0; h < 2 * BLOCKS_OF_ROWS; ++h) {
      int line = warp * 16 + lane / 4 + h % 2 * 8;
      UNROLL for (int j = 0; j < 8; ++j) {
        int of = (block * 8 + j) * 4 + h % 2 * 2;
        float low = FMA(sums[h / 2][of], after.factor, low_of(biases[block * 8 + j]));
        float high = FMA(sums[h / 2][of + 1], after.factor, high_of(biases[block * 8 + j]));
#if HAS_ADDEND
        low = FMA(low_of(added[h][j]), after.addend_factor, low);
        high = FMA(high_of(added[h][j]), after.addend_factor, high);
#endif
        set_local_word(word_at(made, h / 2 * BLOCKS + block, line, j, lane), pair_of(relu_of(low, after), relu_of(high, after)));
      }
    }
  }
#ifdef ACTIVATE
  // Of what was rounded, as by a kernel of its own. Not in the loop above, whose turns are all written out, as registers have no places
  // that are computed: it would be tens of kilobytes of instructions that come from memory each time.
  _Pragma("unroll 4") for (int i = 0; i < TEAM_BLOCKS * 16; ++i) {
    u32 place = word_at(made, i / 16, warp * 16 + lane / 4 + i % 2 * 8, i / 2 % 8, lane), pair = local_word(place);
    set_local_word(place, pair_of(ACTIVATE(low_of(pair)), ACTIVATE(high_of(pair))));
  }
#endif
}

INLINED void store_tile(const Boxes *y, u32 made, int columns, int column, int row, int z) {
  for (int i = 0; i < TEAM_BLOCKS; ++i) {
    int at = column + i % BLOCKS * 64;
    if (at < columns) store_box(y, at, row + i / BLOCKS * 64, z, made + i * BLOCK_BYTES);
  }
  commit_stores();
}

#if PARTS == 1
// Of every tile of the group's a team's rows.
INLINED void compute_tiles(const Boxes *c, const Boxes *y, const u8 *bias, Tiles t, After after, int group, int part, int item, Stages s,
                           u32 addends) {
  int mine = item / 128 - 1, lane = item % 32, warp = item % 128 / 32, is_first = item % 128 == 0;
  u32 made = s.at + STAGES * STAGE_BYTES + mine * (TEAM_BLOCKS * BLOCK_BYTES), addend = addends + mine * 8, addend_parity = 0;
  float sums[BLOCKS_OF_ROWS][COLUMNS / 2];
  for (int tile = group; tile < t.tiles; tile += t.groups) {
    int z = matrix_of(tile, t), row = row_of(tile, t) + mine * (64 * BLOCKS_OF_ROWS), column = column_of(tile, t);
    if (HAS_ADDEND && is_first) {
      wait_for_stores_to_have_read();
      expect_bytes(addend, TEAM_BLOCKS * BLOCK_BYTES);
      for (int i = 0; i < TEAM_BLOCKS; ++i)
        load_box(made + i * BLOCK_BYTES, c, column + i % BLOCKS * 64, row + i / BLOCKS * 64, z, addend);
    }
    // Before the products, behind which they come from memory.
    u32 biases[COLUMNS / 8];
    UNROLL for (int j = 0; j < COLUMNS / 8; ++j) biases[j] = bias_at(bias, column + j * 8 + lane % 4 * 2, z, t, after);
    s = multiply(sums, s, t, mine, lane);
    if (HAS_ADDEND) {
      await(addend, addend_parity);
      addend_parity ^= 1;
    } else {
      if (is_first) wait_for_stores_to_have_read();
      meet_team(mine + 1);
    }
    put_sums(sums, biases, made, warp, lane, after);
    show_to_copies();
    meet_team(mine + 1);
    if (is_first) store_tile(y, made, t.columns, column, row, z);
  }
  if (is_first) wait_for_stores();
}
#endif
)kernel";

/// Where several groups, a cluster, have a part of a tile's depth each: every one adds the sums of all for some of the rows, in the order
/// of the parts, and stores these: out of local memory, as whole tiles are, or directly (DIRECT), where what is added comes to registers
/// while the products go on and results go out of them. That end has nothing to show to copies, to meet for or to wait for.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-mapa
inline constexpr char kTileParts[] = R"kernel(
#if PARTS > 1
#define SLICE (ROWS / PARTS)
#define SLICE_BYTES (SLICE * 128)
#define ITEMS (128 * TEAMS)
// Results of eight columns, which an item adds at once: so many are an item's.
#define UNITS (SLICE * (COLUMNS / 8))
#define ITEM_UNITS ((UNITS + ITEMS - 1) / ITEMS)
// Of sums in local memory: so that what eight lines have at the same columns lies in as many banks.
#define LINE_BYTES (COLUMNS * 4 + 32)
INLINED void share_sums(float (*sums)[COLUMNS / 2], u32 shared, int mine, int warp, int lane) {
  UNROLL for (int h = 0; h < 2 * BLOCKS_OF_ROWS; ++h) {
    u32 line = shared + ((mine * BLOCKS_OF_ROWS + h / 2) * 64 + warp * 16 + lane / 4 + h % 2 * 8) * LINE_BYTES + lane % 4 * 8;
    UNROLL for (int j = 0; j < COLUMNS / 8; ++j)
      set_local_sums(line + j * 32, sums[h / 2][j * 4 + h % 2 * 2], sums[h / 2][j * 4 + h % 2 * 2 + 1]);
  }
}

// Four words of a unit: what is added to it and then its results, in registers or where it is stored from.
#if DIRECT
typedef u32 *Unit;
FUNCTION u32 word_of(Unit unit, int i) { return unit[i]; }
FUNCTION void set_word_of(Unit unit, int i, u32 word) { unit[i] = word; }
#else
typedef u32 Unit;
FUNCTION u32 word_of(Unit unit, int i) { return local_word(unit + 4 * i); }
FUNCTION void set_word_of(Unit unit, int i, u32 word) { set_local_word(unit + 4 * i, word); }
#endif

// Of eight columns, from where all parts have them.
INLINED void put_unit(u32 shared, Unit unit, const u32 *biases, After after) {
  float4 low = {0.0f, 0.0f, 0.0f, 0.0f}, high = low;
  UNROLL for (int part = 0; part < PARTS; ++part) {
    float4 more = sums_of(shared, part), beyond = sums_of(shared + 16, part);
    low.x += more.x, low.y += more.y, low.z += more.z, low.w += more.w;
    high.x += beyond.x, high.y += beyond.y, high.z += beyond.z, high.w += beyond.w;
  }
  float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  UNROLL for (int i = 0; i < 4; ++i) {
    float first = FMA(sums[2 * i], after.factor, low_of(biases[i])), second = FMA(sums[2 * i + 1], after.factor, high_of(biases[i]));
#if HAS_ADDEND
    u32 added = word_of(unit, i);
    first = FMA(low_of(added), after.addend_factor, first);
    second = FMA(high_of(added), after.addend_factor, second);
#endif
    u32 pair = pair_of(relu_of(first, after), relu_of(second, after));
#ifdef ACTIVATE
    pair = pair_of(ACTIVATE(low_of(pair)), ACTIVATE(high_of(pair)));
#endif
    set_word_of(unit, i, pair);
  }
}

#if DIRECT
// Results and what is added to them, as they lie: by the elements from a line, and a matrix, to the next, multiples of eight.
typedef struct {
  const u8 *added;
  u8 *made;
  int rows, step, matrix_step;
} Lines;
FUNCTION i64 place_in(Lines lines, int column, int row, int z) {
  return ((i64)z * lines.matrix_step + (i64)row * lines.step + column) * 2;
}
// So many of the unit's columns are in the matrix, or more; none where it is less than one.
FUNCTION int columns_there(Lines lines, Tiles t, int unit, int column, int row) {
  return unit < UNITS && row < lines.rows ? t.columns - column : 0;
}
// An item's units have the same columns, and so one unit of biases, or each has its own.
#define BIAS_UNITS (ITEMS % (COLUMNS / 8) == 0 ? 1 : ITEM_UNITS)
// Behind the last column nothing is touched, though a line's step has room.
INLINED void load_unit(Unit unit, const u8 *from, int there) {
  if (there >= 8) {
    uint4 words = read_16(from);
    unit[0] = words.x, unit[1] = words.y, unit[2] = words.z, unit[3] = words.w;
  } else {
    UNROLL for (int i = 0; i < 4; ++i) unit[i] = i * 2 < there ? *(const u32 *)(from + i * 4) : 0;
  }
}
INLINED void store_unit(u8 *to, const u32 *unit, int there) {
  uint4 words = {unit[0], unit[1], unit[2], unit[3]};
  if (there >= 8) {
    write_16(to, words);
  } else {
    UNROLL for (int i = 0; i < 4; ++i) {
      if (i * 2 < there) *(u32 *)(to + i * 4) = unit[i];
    }
  }
}

// Of a part of the tile, and of some of its rows. What is added may lie where the results do: an item reads what it writes, and no other.
INLINED void compute_tiles(Lines lines, const u8 *bias, Tiles t, After after, int tile, int part, int item, Stages s) {
  int mine = item / 128 - 1, lane = item % 32, warp = item % 128 / 32, unit = item - 128;
  int z = matrix_of(tile, t), row = row_of(tile, t) + part * SLICE, column = column_of(tile, t);
  u32 shared = s.at + part * SLICE * LINE_BYTES, biases[BIAS_UNITS][4], units[ITEM_UNITS][4];
  UNROLL for (int i = 0; i < BIAS_UNITS; ++i) {
    int at = column + (unit + i * ITEMS) % (COLUMNS / 8) * 8;
    load_unit(biases[i], bias + ((i64)z * after.bias_step + at) * 2, after.has_bias ? t.columns - at : 0);
  }
#if HAS_ADDEND
  UNROLL for (int i = 0; i < ITEM_UNITS; ++i) {
    int of = unit + i * ITEMS, at = column + of % (COLUMNS / 8) * 8, line = row + of / (COLUMNS / 8);
    load_unit(units[i], lines.added + place_in(lines, at, line, z), columns_there(lines, t, of, at, line));
  }
#endif
  float sums[BLOCKS_OF_ROWS][COLUMNS / 2];
  multiply(sums, s, t, mine, lane);
  if (TEAMS > 1) meet_teams(ITEMS);  // Of the stages, which the sums are put into, all have read.
  share_sums(sums, s.at, mine, warp, lane);
  reach_cluster();
  await_cluster();
  UNROLL for (int i = 0; i < ITEM_UNITS; ++i) {
    int of = unit + i * ITEMS, j = of % (COLUMNS / 8), line = of / (COLUMNS / 8);
    if (columns_there(lines, t, of, column + j * 8, row + line) > 0)
      put_unit(shared + line * LINE_BYTES + j * 32, units[i], biases[i % BIAS_UNITS], after);
  }
  __syncwarp();
  reach_cluster();  // Before the stores, which it would wait for.
  UNROLL for (int i = 0; i < ITEM_UNITS; ++i) {
    int of = unit + i * ITEMS, at = column + of % (COLUMNS / 8) * 8, line = row + of / (COLUMNS / 8);
    store_unit(lines.made + place_in(lines, at, line, z), units[i], columns_there(lines, t, of, at, line));
  }
  __syncwarp();
  await_cluster();  // A group's memory is there until all have read it.
}
#else
// Of a part of the tile, and of some of its rows.
INLINED void compute_tiles(const Boxes *c, const Boxes *y, const u8 *bias, Tiles t, After after, int tile, int part, int item, Stages s,
                           u32 addend) {
  int mine = item / 128 - 1, lane = item % 32, warp = item % 128 / 32, unit = item - 128;
  int z = matrix_of(tile, t), row = row_of(tile, t) + part * SLICE, column = column_of(tile, t);
  u32 made = s.at + STAGES * STAGE_BYTES, shared = s.at + part * SLICE * LINE_BYTES;
  if (HAS_ADDEND && unit == 0) {
    expect_bytes(addend, BLOCKS * SLICE_BYTES);
    for (int i = 0; i < BLOCKS; ++i) load_box(made + i * SLICE_BYTES, c, column + i * 64, row, z, addend);
  }
  u32 biases[ITEM_UNITS][4];
  UNROLL for (int i = 0; i < ITEM_UNITS * 4; ++i)
    biases[i / 4][i % 4] = bias_at(bias, column + (unit + i / 4 * ITEMS) % (COLUMNS / 8) * 8 + i % 4 * 2, z, t, after);
  float sums[BLOCKS_OF_ROWS][COLUMNS / 2];
  multiply(sums, s, t, mine, lane);
  if (TEAMS > 1) meet_teams(ITEMS);  // Of the stages, which the sums are put into, all have read.
  share_sums(sums, s.at, mine, warp, lane);
  reach_cluster();
  if (HAS_ADDEND) await(addend, 0);
  await_cluster();
  UNROLL for (int i = 0; i < ITEM_UNITS; ++i, unit += ITEMS) {
    int line = unit / (COLUMNS / 8), j = unit % (COLUMNS / 8);
    u32 place = made + j / 8 * SLICE_BYTES + line * 128 + ((j % 8 ^ (line & 7)) << 4);
    if (unit < UNITS) put_unit(shared + line * LINE_BYTES + j * 32, place, biases[i], after);
  }
  __syncwarp();
  reach_cluster();
  show_to_copies();
  meet_teams(ITEMS);
  if (item == 128) {
    for (int i = 0; i < BLOCKS && column + i * 64 < t.columns; ++i) store_box(y, column + i * 64, row, z, made + i * SLICE_BYTES);
    commit_stores();
    wait_for_stores();
  }
  __syncwarp();
  await_cluster();  // A group's memory is there until all have read it.
}
#endif
#endif
)kernel";

/// The kernel, after all of the above.
inline constexpr char kTileRun[] = R"kernel(
#if DIRECT
#define LINES_GIVEN , IN(T, added), OUT(T, made), int line_step, int matrix_step
#else
#define LINES_GIVEN
#endif
KERNEL run(BOXES(a), BOXES(b), BOXES(c), BOXES(y), IN(T, bias), int columns, int depth, int row_tiles, int column_tiles, int tiles,
           int groups, int by_columns, int a_moves, int b_moves, int bias_step, int has_bias, int has_relu, float factor,
           float addend_factor, int pixels, int out_pixels, int out_width, int channels, int taps_across, int stride_y, int stride_x,
           int top, int left, int dilation_y, int dilation_x, int b_is_constant LINES_GIVEN) {
  AT(bias);
  int group = (int)GROUP_ID(0) / PARTS, part = (int)GROUP_ID(0) % PARTS;
  Tiles whole = {columns, depth, row_tiles, column_tiles, tiles, groups, by_columns, 0, depth}, t = part_of(whole, part);
  After after = {bias_step, has_bias, has_relu, factor, addend_factor};
  Pixels p = {pixels, out_pixels, out_width, channels, taps_across, stride_y, stride_x, top, left, dilation_y, dilation_x};
  LOCAL_MEMORY(memory);
  LOCAL u64 full[STAGES], empty[STAGES], addends[TEAMS];
  int item = (int)LOCAL_ID(0), team = __shfl_sync(0xffffffffu, item / 128, 0);
  Stages s = {(local_address(memory) + 1023) & ~1023u, local_address(full), local_address(empty), 0, 0};
  if (item == 0) begin_barriers(s, local_address(addends));
#if DIRECT
  if (item == 32) prefetch_boxes(&a), prefetch_boxes(&b);
#else
  if (item == 32) prefetch_boxes(&a), prefetch_boxes(&b), prefetch_boxes(&y);
#endif
  BARRIER;
  BEGIN_NEXT;
  if (team == 0) {
    HAVE_FEW_REGISTERS;
    if (item == 0) {
      int ahead = b_is_constant ? load_ahead(&b, t, group, b_moves, s) : 0;
      WAIT_FOR_TURN;
      load_tiles(&a, &b, t, p, group, a_moves, b_moves, ahead, s);
    }
    return;
  }
  HAVE_MANY_REGISTERS;
  WAIT_FOR_TURN;
#if DIRECT
  AT(added);
  AT(made);
  Lines lines = {(const u8 *)added, (u8 *)made, pixels, line_step, matrix_step};
  compute_tiles(lines, (const u8 *)bias, t, after, group, part, item, s);
#else
  compute_tiles(&c, &y, (const u8 *)bias, t, after, group, part, item, s, local_address(addends));
#endif
}
)kernel";

}  // namespace backplane::cuda
