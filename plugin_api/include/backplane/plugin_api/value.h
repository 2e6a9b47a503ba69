/* Backplane plugin ABI: element types, tensors and values. */
#pragma once

#include "backplane/plugin_api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: the numbers of ONNX's TensorProto.DataType (onnx/onnx.proto, message TensorProto).
 * Receivers skip what they do not know. */
typedef int32_t bp_dtype;
#define BP_NONE 0 /* an absent optional value */
#define BP_FLOAT 1
#define BP_UINT8 2
#define BP_INT8 3
#define BP_UINT16 4
#define BP_INT16 5
#define BP_INT32 6
#define BP_INT64 7
#define BP_STRING 8
#define BP_BOOL 9
#define BP_FLOAT16 10
#define BP_DOUBLE 11
#define BP_UINT32 12
#define BP_UINT64 13
#define BP_COMPLEX64 14
#define BP_COMPLEX128 15
#define BP_BFLOAT16 16
#define BP_FLOAT8E4M3FN 17
#define BP_FLOAT8E4M3FNUZ 18
#define BP_FLOAT8E5M2 19
#define BP_FLOAT8E5M2FNUZ 20
#define BP_UINT4 21
#define BP_INT4 22
#define BP_FLOAT4E2M1 23
#define BP_FLOAT8E8M0 24
#define BP_UINT2 25
#define BP_INT2 26

/* Where memory lies, as seen from the device that a tensor belongs to. */
typedef int32_t bp_memory_kind;
#define BP_MEMORY_DEVICE 0 /* the device's own; the host may not be able to touch it */
#define BP_MEMORY_HOST 1   /* plain memory of the process */
#define BP_MEMORY_PINNED 2 /* memory of the process that the device reads and writes directly */

/* The layout word of a tensor. 0 is ONNX's: row-major, strides in `strides`. Every other number belongs to
 * the provider that set it (bp_rewrite_api::set_format); the core then knows the bytes and nothing else. */
#define BP_FORMAT_PLAIN 0u

/* A tensor: where its elements are and what they are. Host-made, read-only to plugins, valid for the call;
 * plugins make their own where a function says so (attributes of a rewrite, bp.operators).
 *
 * `dims` has `rank` entries, in elements; a scalar has rank 0. `strides` is in elements, NULL when dense;
 * only a kernel that allowed strides (bp_prepare_api::allow_strided) meets others. Elements smaller than a
 * byte are packed, the first in the low bits, each tensor rounded up to a byte. A tensor of no elements has
 * `bytes` 0 and may have no memory. `host_ptr`, where set, points at the first element: `offset` is in it.
 * `buffer` is NULL for plain host memory. During `create` and `prepare` most tensors have no memory at all:
 * neither `buffer` nor `host_ptr`. String tensors have no memory; bp_value_api reads and writes them. */
typedef struct bp_tensor {
  BP_HEAD;
  bp_buffer* buffer;
  uint64_t offset; /* bytes from the start of `buffer` */
  uint64_t bytes;
  void* host_ptr;
  const int64_t* dims;
  const int64_t* strides;
  int32_t rank;
  bp_dtype dtype;
  bp_memory_kind memory;
  uint32_t format;
} bp_tensor;

/* What kind of value it is. */
#define BP_VALUE_ABSENT 0
#define BP_VALUE_TENSOR 1
#define BP_VALUE_SEQUENCE 2
#define BP_VALUE_OPTIONAL 3
#define BP_VALUE_MAP 4

/* A value of a graph. Host-made, always reached by pointer. `tensor` is never NULL: for every kind but
 * BP_VALUE_TENSOR it is a tensor of dtype BP_NONE. */
typedef struct bp_value {
  BP_HEAD;
  int32_t kind;
  uint32_t reserved0; /* 0 */
  const bp_tensor* tensor;
} bp_value;

/* Strings, sequences, optionals and maps: values that the host owns. Reading is safe from any thread; a
 * value is written by the kernel whose output it is, from one thread at a time, during `compute`; one of
 * tensor_new or value_new by whoever made it. */
typedef struct bp_value_api {
  BP_HEAD;

  /* Reads one string of a string tensor; `index` counts elements in row-major order.
   * Ownership: *out stays valid until the value is written or the run ends.
   * Threads: any. Errors: BP_INVALID_ARGUMENT (not a string tensor, index too large). Since: 1.0 */
  bp_status* (*string_get)(const bp_value* value, uint64_t index, bp_str* out);

  /* Writes one string of an output string tensor.
   * Ownership: the text is copied. Threads: one per value.
   * Errors: as string_get, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*string_set)(const bp_value* value, uint64_t index, bp_str text);

  /* The number of elements of a sequence; 0 or 1 for an optional.
   * Ownership: none. Threads: any. Errors: BP_INVALID_ARGUMENT (another kind). Since: 1.0 */
  bp_status* (*sequence_size)(const bp_value* value, uint64_t* out);

  /* An element of a sequence, or (index 0) what an optional holds.
   * Ownership: *out is borrowed until the value is written or the run ends.
   * Threads: any. Errors: BP_INVALID_ARGUMENT (another kind, index too large). Since: 1.0 */
  bp_status* (*sequence_at)(const bp_value* value, uint64_t index, const bp_value** out);

  /* Appends a new dense tensor in host memory to an output sequence, or puts it into an empty output
   * optional; the kernel then fills it. `dims` has `rank` entries, in elements.
   * Ownership: *out belongs to the sequence. Threads: one per value.
   * Errors: BP_INVALID_ARGUMENT, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*sequence_append)(const bp_value* value, bp_dtype dtype, int32_t rank,
                                const int64_t* dims, const bp_value** out);

  /* Appends an existing value, which the host shares instead of copying where it can.
   * Ownership: `element` is borrowed for the call. Threads: one per value.
   * Errors: BP_INVALID_ARGUMENT, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*sequence_append_value)(const bp_value* value, const bp_value* element);

  /* A map as two parallel values: a one-dimensional tensor of keys, and a tensor or sequence of as many
   * values.
   * Ownership: both are borrowed until the value is written or the run ends.
   * Threads: any. Errors: BP_INVALID_ARGUMENT (another kind). Since: 1.0 */
  bp_status* (*map_parts)(const bp_value* value, const bp_value** keys, const bp_value** values);

  /* Writes an output map, or one of value_new, as its two parts: `keys` a one-dimensional tensor of the map's
   * key type, none of them twice; `values` a one-dimensional tensor, or a sequence, of as many. What the map
   * held before is gone. The host shares the parts instead of copying them where it can.
   * Ownership: both are borrowed for the call. Threads: one per value.
   * Errors: BP_INVALID_ARGUMENT (another kind, a wrong type, counts that differ), BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*map_set)(const bp_value* value, const bp_value* keys, const bp_value* values);

  /* Makes a value that belongs to the caller: a dense tensor in host memory (strings empty, other elements
   * undefined), or, by its ONNX type string, an empty sequence, optional or map. For what goes into another
   * value (a map into a sequence), into an attribute, or through bp.operators. Allocates.
   * Ownership: *out is the caller's until value_free. Threads: any; written by one at a time.
   * Errors: BP_INVALID_ARGUMENT, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*tensor_new)(bp_dtype dtype, int32_t rank, const int64_t* dims, const bp_value** out);
  bp_status* (*value_new)(const char* type, const bp_value** out);

  /* Ends a value of tensor_new, value_new or bp.operators; sequences and maps that share it keep it. It must
   * not be written once it is part of another value.
   * Ownership: takes it; NULL is all right. Threads: any. Errors: none. Since: 1.0 */
  void (*value_free)(const bp_value* value);
} bp_value_api;

#ifdef __cplusplus
}
#endif
