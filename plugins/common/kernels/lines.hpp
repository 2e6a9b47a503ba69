// Lines of floats on processors, as text for kernels: reading them with a border, sliding windows over them, and storing
// sums with what follows them. Programs define VW, the floats of a vector. OpenCL C alone has the vectors.
#pragma once

namespace backplane::common {

inline constexpr char kVectorWords[] = R"kernel(
#define VT JOIN(float, VW)
#define VLOAD JOIN(vload, VW)
#if defined(__clang__) && defined(POCL_DEVICE_ADDRESS_BITS)
/* PoCL 3.1 does a vstore16 in four parts. */
typedef float unaligned_vt __attribute__((ext_vector_type(VW), aligned(4)));
static inline __attribute__((overloadable)) void store_vector(VT v, i64 j, GLOBAL float *p) {
  *(GLOBAL unaligned_vt *)(p + j * VW) = v;
}
static inline __attribute__((overloadable)) void store_vector(VT v, i64 j, float *p) {
  *(unaligned_vt *)(p + j * VW) = v;
}
#define WIDE_STORE store_vector
#define PREFETCH(p) __builtin_prefetch((const void *)(size_t)(p))
#else
#define WIDE_STORE JOIN(vstore, VW)
#define PREFETCH(p)
#endif
#define VSTORE WIDE_STORE
)kernel";

/// store_line(sums, count, y, and, where there are such, biases along the line and a residual): stores `count` sums of a
/// line, activated. Vectors are stored while they fit; the last one may overlap its neighbour, so that no element is done
/// by itself, unless there are less than four: neither y nor its operands may share memory.
inline constexpr char kStoreLine[] = R"kernel(
#if HAS_BIAS && BIAS_ALONG
#define ALONG_ARGUMENT , GLOBAL const float *along
#define ADD_ALONG(j) v += VLOAD(0, along + (j))
#else
#define ALONG_ARGUMENT
#define ADD_ALONG(j)
#endif
#if HAS_RESIDUAL
#define ADDED_ARGUMENT , GLOBAL const float *added
#define ADD_ADDED(j) v += VLOAD(0, added + (j))
#else
#define ADDED_ARGUMENT
#define ADD_ADDED(j)
#endif

FUNCTION void store_line(const float *sums, int count, GLOBAL float *y ALONG_ARGUMENT ADDED_ARGUMENT) {
  int j = 0;
#if defined(ACTIVATE_VECTOR)
#define STORE_VECTOR(j) \
  { \
    VT v = VLOAD(0, sums + (j)); \
    ADD_ALONG(j); \
    ADD_ADDED(j); \
    VSTORE(ACTIVATE_VECTOR(v), 0, y + (j)); \
  }
#pragma unroll 1
  for (; j + VW <= count; j += VW) STORE_VECTOR(j)
  if (j < count && count > VW) {
    STORE_VECTOR(count - VW)
    return;
  }
#if VW > 4
#undef VT
#undef VLOAD
#undef VSTORE
#define VT float4
#define VLOAD vload4
#define VSTORE vstore4
#pragma unroll 1
  for (; j + 4 <= count; j += 4) STORE_VECTOR(j)
  if (j < count && count > 4) {
    STORE_VECTOR(count - 4)
    return;
  }
#undef VT
#undef VLOAD
#undef VSTORE
#define VT JOIN(float, VW)
#define VLOAD JOIN(vload, VW)
#define VSTORE WIDE_STORE
#endif
#endif
#pragma unroll 1
  for (; j < count; ++j) {
    float s = sums[j];
#if HAS_BIAS && BIAS_ALONG
    s += along[j];
#endif
#if HAS_RESIDUAL
    s += added[j];
#endif
    y[j] = ACTIVATE(s);
  }
}
)kernel";

/// Windows over the last two axes: a work item reads the lines that its part of a plane needs, `band` lines by `tile` columns,
/// into LINES floats of its own, with BORDER around the image and, with STRIDE 2, the even columns (phase 0) before the odd
/// ones, so that what a tap reads for neighbours lies together. Then it folds HEIGHT lines at a time.
///
/// The program defines STRIDE (of columns: 1 or 2), KERNEL_H, KERNEL_W, how the loops over both are unrolled, UNROLL_TAPS and
/// UNROLL_ACROSS, START (a vector) and FOLD(acc, value, tap). What is
/// done with `count` sums of line `row` of the part, which begin at its column `begin` and belong to y[to], is
/// STORE_SUMS(sums, count, to, row, begin), after PREPARE_SUMS. PLANE_MEMORY and PLANE_NUMBERS are further arguments, each
/// with a comma at its end; FIND_PLANE declares `from`, the plane that is read. Sizes: bands, planes, tiles.
inline constexpr char kWindowLines[] = R"kernel(
/* Elements u, u + STRIDE ... of a line of `width`, `count` of each phase; BORDER outside of it. */
FUNCTION void take_line(float *to, GLOBAL const float *line, int u, int count, int width) {
  int begin = u < 0 ? (STRIDE - 1 - u) / STRIDE : 0, end = (width - u) / STRIDE;
  if (end > count) end = count;
#if STRIDE == 1
#define TAKE(q) VSTORE(VLOAD(0, line + (u + (q))), 0, to + (q))
#define TAKE_ONE(q) to[q] = line[u + (q)]
#else
#define TAKE(q) \
  { \
    VT low = VLOAD(0, line + (u + 2 * (q))), high = VLOAD(1, line + (u + 2 * (q))); \
    VSTORE((VT)(low.even, high.even), 0, to + (q)); \
    VSTORE((VT)(low.odd, high.odd), 0, to + count + (q)); \
  }
#define TAKE_ONE(q) \
  { \
    to[q] = line[u + 2 * (q)]; \
    to[count + (q)] = line[u + 2 * (q) + 1]; \
  }
  /* Where the phases do not begin or end together. */
  if (u < 0 && -u % 2 != 0 && begin <= count && width > 0) to[count + begin - 1] = line[0];
  int even_end = (width - u + 1) / 2;
  if (even_end > end && even_end <= count && even_end > begin) to[even_end - 1] = line[u + 2 * (even_end - 1)];
#endif
  int q = begin;
  for (; q + VW <= end; q += VW) TAKE(q);
  if (q < end && end - begin > VW) {
    q = end - VW;
    TAKE(q);
    q = end;
  }
  for (; q < end; ++q) TAKE_ONE(q);
}

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(PLANE_MEMORY GLOBAL float *restrict y, i64 y_at, PLANE_NUMBERS i64 in_h, i64 in_w, i64 out_h,
           i64 out_w, i64 stride_y, i64 pad_y, i64 pad_x, i64 dilation_y, i64 dilation_x, i64 band, i64 tile) {
  i64 line = GLOBAL_ID(0) * band, plane = GLOBAL_ID(1), column = GLOBAL_ID(2) * tile;
  int height = (int)(out_h - line < band ? out_h - line : band);
  int width = (int)(out_w - column < tile ? out_w - column : tile);
  AT(y);
  y += plane * out_h * out_w;
  FIND_PLANE;
  float lines[LINES];
  int count = width + (KERNEL_W - 1) * (int)dilation_x / STRIDE;
  int pitch = count * STRIDE, step = (int)stride_y * pitch, down = (int)dilation_y * pitch;
  int taken = (height - 1) * (int)stride_y + (KERNEL_H - 1) * (int)dilation_y + 1;
  for (int i = 0; i < taken * pitch; i += VW) VSTORE((VT)(BORDER), 0, lines + i);
  for (int i = 0; i < taken; ++i) {
    i64 v = line * stride_y - pad_y + i;
    if (v >= 0 && v < in_h)
      take_line(lines + i * pitch, from + v * in_w, (int)(column * STRIDE - pad_x), count, (int)in_w);
  }
  PREPARE_SUMS;
  int across[KERNEL_W];
UNROLL_ACROSS
  for (int kx = 0; kx < KERNEL_W; ++kx)
    across[kx] = kx * (int)dilation_x % STRIDE * count + kx * (int)dilation_x / STRIDE;
  for (int row = 0; row < height; row += HEIGHT) {
    for (int p = 0; p < width; p += VW) {
      int begin = p + VW > width && width > VW ? width - VW : p;
      const float *at[HEIGHT];
      VT acc[HEIGHT];
#pragma unroll
      for (int i = 0; i < HEIGHT; ++i) {
        at[i] = lines + (row + i < height ? row + i : height - 1) * step + begin;
        acc[i] = START;
      }
UNROLL_TAPS
      for (int ky = 0; ky < KERNEL_H; ++ky) {
UNROLL_ACROSS
        for (int kx = 0; kx < KERNEL_W; ++kx) {
#pragma unroll
          for (int i = 0; i < HEIGHT; ++i) {
            VT value = VLOAD(0, at[i] + ky * down + across[kx]);
            FOLD(acc[i], value, ky * KERNEL_W + kx);
          }
        }
      }
      float sums[HEIGHT * VW];
#pragma unroll
      for (int i = 0; i < HEIGHT; ++i) VSTORE(acc[i], i, sums);
      int stored = width < VW ? width : VW;
#pragma unroll 1
      for (int i = 0; i < HEIGHT && row + i < height; ++i) {
        i64 to = (line + row + i) * out_w + column + begin;
        STORE_SUMS(sums + i * VW, stored, to, row + i, begin);
      }
    }
  }
}
)kernel";

}  // namespace backplane::common
