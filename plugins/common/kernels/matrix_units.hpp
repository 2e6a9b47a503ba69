// Products of 16-bit matrices by the matrix units of CUDA's devices, as words for kernels.
#pragma once

namespace backplane::common {

/// What differs between the unit and what stands for it elsewhere, where lanes meet in local memory: there each lane's numbers are
/// those that the PTX ISA's description of m16n8k16 gives it, so that this text is proven where there is no device.
inline constexpr char kMatrixUnitWords[] = R"kernel(
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#ifdef __CUDACC__
#define MEETING
#define ADD_PRODUCT(sums, a0, a1, a2, a3, b0, b1) add_product(sums, a0, a1, a2, a3, b0, b1)
// sums[16][8] += a[16][16] b[16][8], as m16n8k16 lays them out.
FUNCTION void add_product(float *sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TEXT(T) "." TEXT(T) ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#else
#define MEETING LOCAL u32 met[GROUP][6];
#define ADD_PRODUCT(sums, a0, a1, a2, a3, b0, b1) \
  { \
    met[item][0] = a0; \
    met[item][1] = a1; \
    met[item][2] = a2; \
    met[item][3] = a3; \
    met[item][4] = b0; \
    met[item][5] = b1; \
    BARRIER; \
    for (int k_ = 0; k_ < 16; ++k_) { \
      float of_a_[2], of_b_[2]; \
      for (int h_ = 0; h_ < 2; ++h_) { \
        u16 a_ = (u16)(met[item - in_quad + k_ % 8 / 2][h_ + k_ / 8 * 2] >> (k_ % 2 * 16)); \
        u16 b_ = (u16)(met[item - lane + (in_quad * 2 + h_) * 4 + k_ % 8 / 2][4 + k_ / 8] >> (k_ % 2 * 16)); \
        of_a_[h_] = LOAD(T, &a_, 0); \
        of_b_[h_] = LOAD(T, &b_, 0); \
      } \
      for (int s_ = 0; s_ < 4; ++s_) (sums)[s_] += of_a_[s_ / 2] * of_b_[s_ % 2]; \
    } \
    BARRIER; \
  }
#endif
)kernel";

/// Two sums as a word of elements, after the words above; RELU is ".relu" or nothing, and ACTIVATED(v) the same where there is no such
/// instruction.
inline constexpr char kPairWords[] = R"kernel(
#ifdef __CUDACC__
FUNCTION u32 pair_of(float low, float high) {
  u32 made;
  asm("cvt.rn" RELU "." TEXT(T) "x2.f32 %0, %1, %2;" : "=r"(made) : "f"(high), "f"(low));
  return made;
}
#else
FUNCTION u32 pair_of(float low, float high) {
  u16 parts[2];
  STORE(T, parts, 0, ACTIVATED(low));
  STORE(T, parts, 1, ACTIVATED(high));
  return (u32)parts[0] | (u32)parts[1] << 16;
}
#endif
)kernel";

}  // namespace backplane::common
