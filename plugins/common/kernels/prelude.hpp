// The words in which kernels for devices are written: the common subset of OpenCL C 1.2 and CUDA C, built
// at run time by clBuildProgram or NVRTC. A kernel is text; what differs between the two languages, and
// how elements of each type are read and written, is here.
//
// Element types have short names: f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64 b8. For a name T,
// STORAGE(T) is what memory holds, VALUE(T) what arithmetic is done in (float for the 16-bit floats),
// LOAD(T, pointer, index) and STORE(T, pointer, index, value) go from one to the other.
//
// A memory argument is IN(T, x) or OUT(T, x): a pointer and its first element, which AT(x) adds.
//
// On CUDA a kernel may be begun before the one before it has ended (IN_TURN). What it reads is then perhaps still being written, so that no
// pointer may be declared __restrict__ there and nothing be read by __ldg: compilers read ahead of IN_TURN what they hold for constant.
#pragma once

namespace backplane::common {

inline constexpr char kPrelude[] = R"kernel(
#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define LOCAL __shared__
#define FUNCTION static __device__ inline
// CUDA takes 65535 groups along y and z: more are launched in parts, which begin at these.
#define run(...) run(__VA_ARGS__, unsigned part_y, unsigned part_z)
#define GROUP_ID(d) \
  ((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y + part_y : blockIdx.z + part_z)
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#define LOCAL_ID(d) ((d) == 0 ? threadIdx.x : (d) == 1 ? threadIdx.y : threadIdx.z)
#define LOCAL_SIZE(d) ((d) == 0 ? blockDim.x : (d) == 1 ? blockDim.y : blockDim.z)
#define GLOBAL_ID(d) ((i64)GROUP_ID(d) * LOCAL_SIZE(d) + LOCAL_ID(d))
#define BARRIER __syncthreads()
#define FLOAT_BITS(x) __float_as_uint(x)
#define BITS_FLOAT(x) __uint_as_float(x)
#define ATOMIC_SET_ONCE(p, v) atomicCAS((p), 0, (v))
#define FMA(a, b, c) fma((a), (b), (c))
#define IS_NAN(x) isnan(x)
#define IS_INF(x) isinf(x)
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#else
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define KERNEL __kernel void
#define GLOBAL __global
#define LOCAL __local
#define FUNCTION static inline
#define GROUP_ID(d) get_group_id(d)
#define LOCAL_ID(d) get_local_id(d)
#define LOCAL_SIZE(d) get_local_size(d)
#define GLOBAL_ID(d) ((i64)get_global_id(d))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define FLOAT_BITS(x) as_uint(x)
#define BITS_FLOAT(x) as_float(x)
#define ATOMIC_SET_ONCE(p, v) atomic_cmpxchg((p), 0, (v))
#define FMA(a, b, c) fma((a), (b), (c))
#define IS_NAN(x) isnan(x)
#define IS_INF(x) isinf(x)
typedef char i8;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef long i64;
#endif
typedef short i16;
typedef int i32;

// What a kernel begins with (plugins/cuda puts it there): the next one of the stream may begin now, and this one goes on when those
// before it have ended and what they wrote is there to be read. Of a kernel that is launched to begin after them it does nothing.
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define IN_TURN \
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory"); \
  asm volatile("griddepcontrol.wait;" : : : "memory")
#else
#define IN_TURN
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STORAGE(T) JOIN(storage_, T)
#define VALUE(T) JOIN(value_, T)
#define LOAD(T, p, i) JOIN(load_, T)(p, i)
#define STORE(T, p, i, v) JOIN(store_, T)(p, i, v)
#define IN(T, x) GLOBAL const STORAGE(T) *x, i64 x##_at
#define OUT(T, x) GLOBAL STORAGE(T) *x, i64 x##_at
#define AT(x) x += x##_at
#define FAULT_WORD GLOBAL int *fault_word, int fault_number
#define FAULT ATOMIC_SET_ONCE(fault_word, fault_number)

#define storage_f32 float
#define value_f32 float
#define load_f32(p, i) ((p)[i])
#define store_f32(p, i, v) ((p)[i] = (v))
#define storage_f64 double
#define value_f64 double
#define load_f64(p, i) ((p)[i])
#define store_f64(p, i, v) ((p)[i] = (v))
#define storage_f16 u16
#define value_f16 float
#define load_f16(p, i) half_to_float((p)[i])
#define store_f16(p, i, v) ((p)[i] = float_to_half(v))
#define storage_bf16 u16
#define value_bf16 float
#define load_bf16(p, i) BITS_FLOAT((u32)(p)[i] << 16)
#define store_bf16(p, i, v) ((p)[i] = float_to_bfloat(v))
#define storage_i8 i8
#define value_i8 i8
#define load_i8(p, i) ((p)[i])
#define store_i8(p, i, v) ((p)[i] = (i8)(v))
#define storage_u8 u8
#define value_u8 u8
#define load_u8(p, i) ((p)[i])
#define store_u8(p, i, v) ((p)[i] = (u8)(v))
#define storage_i16 i16
#define value_i16 i16
#define load_i16(p, i) ((p)[i])
#define store_i16(p, i, v) ((p)[i] = (i16)(v))
#define storage_u16 u16
#define value_u16 u16
#define load_u16(p, i) ((p)[i])
#define store_u16(p, i, v) ((p)[i] = (u16)(v))
#define storage_i32 i32
#define value_i32 i32
#define load_i32(p, i) ((p)[i])
#define store_i32(p, i, v) ((p)[i] = (i32)(v))
#define storage_u32 u32
#define value_u32 u32
#define load_u32(p, i) ((p)[i])
#define store_u32(p, i, v) ((p)[i] = (u32)(v))
#define storage_i64 i64
#define value_i64 i64
#define load_i64(p, i) ((p)[i])
#define store_i64(p, i, v) ((p)[i] = (i64)(v))
#define storage_u64 u64
#define value_u64 u64
#define load_u64(p, i) ((p)[i])
#define store_u64(p, i, v) ((p)[i] = (u64)(v))
#define storage_b8 u8
#define value_b8 int
#define load_b8(p, i) ((p)[i] != 0)
#define store_b8(p, i, v) ((p)[i] = (u8)((v) != 0))

#ifdef __CUDACC__
FUNCTION float half_to_float(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

FUNCTION u16 float_to_half(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
FUNCTION float half_to_float(u16 bits) {
  u32 sign = (u32)(bits & 0x8000u) << 16;
  u32 magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return BITS_FLOAT(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude < 0x400u) return BITS_FLOAT(sign | FLOAT_BITS((float)magnitude * 0x1p-24f));
  return BITS_FLOAT(sign | ((magnitude << 13) + (112u << 23)));
}

FUNCTION u16 float_to_half(float value) {
  u32 bits = FLOAT_BITS(value);
  u32 sign = (bits >> 16) & 0x8000u;
  u32 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return (u16)(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return (u16)(sign | 0x7C00u);
  if (magnitude < 0x38800000u)
    return (u16)(sign | (FLOAT_BITS(BITS_FLOAT(magnitude) + 0.5f) - 0x3F000000u));
  return (u16)(sign | ((magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13));
}

#endif

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
FUNCTION u16 float_to_bfloat(float value) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
FUNCTION u16 float_to_bfloat(float value) {
  u32 bits = FLOAT_BITS(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (u16)((bits >> 16) | 0x40u);
  return (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
#endif
)kernel";

}  // namespace backplane::common
