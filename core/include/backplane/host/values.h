/* Values that are no plain tensors of numbers: containers, and elements of every type. A part of backplane.h, which is the file to
 * include; its conventions hold here. */
#pragma once

#include "backplane/backplane.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sequence of `count` elements, of the type "seq(tensor(float))" or the like, which says what an empty one could hold. An optional:
 * "optional(tensor(float))" with an element, or NULL for none. A map: "map(int64,tensor(float))" with a tensor of keys of rank 1
 * and as many values: a tensor whose first dimension counts them, or a sequence.
 * Ownership: elements are copied; *out as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT (a type string; an element of
 * another type, by its number), BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_create_sequence(
    const char* type, const backplane_value* const* elements, size_t count, backplane_value** out);
BACKPLANE_API backplane_status* backplane_value_create_optional(const char* type,
                                                                const backplane_value* element,
                                                                backplane_value** out);
BACKPLANE_API backplane_status* backplane_value_create_map(const char* type,
                                                           const backplane_value* keys,
                                                           const backplane_value* values,
                                                           backplane_value** out);

/* What a value is. */
#define BACKPLANE_KIND_NONE 0 /* nothing yet: an output before its run */
#define BACKPLANE_KIND_TENSOR 1
#define BACKPLANE_KIND_SEQUENCE 2
#define BACKPLANE_KIND_OPTIONAL 3
#define BACKPLANE_KIND_MAP 4
/* Ownership: none. Threads: any. Errors: none (NULL is of no kind). Since: 0.1 */
BACKPLANE_API int32_t backplane_value_kind(const backplane_value* value);

/* Numbers of a tensor, from the element `index` on (row-major), converted: from and to every element type but strings, those of less
 * than a byte included. Reading is exact where a double can hold the number. Writing rounds to the nearest, ties to even; what is
 * out of range becomes the largest of an integer or of a float8 without infinity, and infinity elsewhere; NaN becomes 0 where there is
 * none; a bool is 1 for all but 0. Complex numbers count as two each, real part first: `index` and `count` are in parts.
 * Ownership: borrowed for the call. Threads: any for reading, one for writing.
 * Errors: BACKPLANE_INVALID_ARGUMENT (no tensor of numbers on the host, past its end). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_read_numbers(const backplane_value* value,
                                                             uint64_t index, double* numbers,
                                                             uint64_t count);
BACKPLANE_API backplane_status* backplane_value_write_numbers(backplane_value* value,
                                                              uint64_t index, const double* numbers,
                                                              uint64_t count);

/* Strings of a tensor, `count` of them from the element `index` on, side by side in one block: string i is the bytes of `data` from
 * ends[i - 1] (of the first one, 0) up to ends[i], in whatever encoding they have; no byte ends it. With data NULL, reading gives the
 * ends alone: the last one is the size of the block. `bytes`: how many there is room for, or, writing, how many there are.
 * Much faster than a call for each string from languages in which a call is dear.
 * Ownership: borrowed for the call; strings are copied. Threads: any for reading, one for writing.
 * Errors: BACKPLANE_INVALID_ARGUMENT (no tensor of strings, past its end, too little room; ends that fall, or pass `bytes`: then nothing
 * is written). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_read_strings(const backplane_value* value,
                                                             uint64_t index, uint64_t count,
                                                             uint64_t* ends, char* data,
                                                             uint64_t bytes);
BACKPLANE_API backplane_status* backplane_value_write_strings(backplane_value* value,
                                                              uint64_t index, uint64_t count,
                                                              const uint64_t* ends,
                                                              const char* data, uint64_t bytes);

/* The device in whose memory a value lies, as it is named in sessions; "" for the host's. Such a value has no data here.
 * Ownership: as rule 3. Threads: any. Errors: none (NULL: ""). Since: 0.1 */
BACKPLANE_API const char* backplane_value_device(const backplane_value* value);

/* A dense tensor over memory of the caller's own on a device of the session ("cuda:0"; "cuda" where that provider has one device in the
 * session): `bytes` from `offset` on of what the device's API calls `memory`, a CUdeviceptr or a cl_mem (as a number), of the context that
 * the session works in. On a device that works on host memory it is an address, and the value is as of backplane_value_borrow.
 * The value is fed, or given as an output, to runs by name and of bindings. No byte is copied where those who read or make the value are
 * on that device; elsewhere it is copied as a value that lies on the device is. As an output it must fit in type and dims, and share no
 * byte with another value of the run; memory that can only be read is an input alone.
 * Order: with an option that makes the session work on the caller's stream (user_stream of cuda, user_queue of opencl), a run sees what
 * was put on that stream before it, and what is put there after it sees the run's outputs, also after a run with synchronize=false.
 * Without, the caller has waited for whatever wrote the memory before the run begins, and reads outputs when the run has returned,
 * or with synchronize=false after backplane_session_synchronize.
 * Ownership: the memory stays the caller's and must outlive the value, the bindings that hold it, and the runs that use it; the value
 * keeps no more than a reference of the device's API (it retains a cl_mem). Any session that works on the same device with the same
 * options can use it. Threads: any.
 * Errors: BACKPLANE_INVALID_ARGUMENT (a device that the session does not have; with the device's reason: no memory of this device and
 * context, too few bytes, less aligned than the device's kernels rely on), BACKPLANE_UNSUPPORTED (a provider without the interface
 * "bp.import_memory"), BACKPLANE_OUT_OF_MEMORY, BACKPLANE_DEVICE_LOST. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_borrow_on(const backplane_session* session,
                                                          const char* device, int32_t dtype,
                                                          const int64_t* dims, size_t rank,
                                                          uint64_t memory, uint64_t offset,
                                                          uint64_t bytes, backplane_value** out);

/* A copy in host memory, of any value; waits for it.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY, what the device says. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_copy_to_host(const backplane_value* value,
                                                             backplane_value** out);

#ifdef __cplusplus
}
#endif
