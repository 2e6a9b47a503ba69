/* Backplane plugin ABI: kernels in two phases, and the registry entry that offers one. */
#pragma once

#include "backplane/plugin_api/host.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bp_device_info;

/* What a kernel is expected to cost; 0 means unknown. `confidence` is 0 (a guess) to 100 (measured). */
typedef struct bp_cost {
  BP_HEAD;
  double exec_ns;
  uint64_t flops;
  uint64_t bytes_moved;
  uint32_t confidence;
  uint32_t reserved0; /* 0 */
} bp_cost;

/* The element and container types that one type parameter may take, as ONNX type strings. `param` is a type
 * parameter of the operator's schema ("T"), checked when the kernel is registered: one that no version in the
 * kernel's range has refuses the kernel with a message. In versions that lack the parameter the constraint
 * says nothing: where it was renamed (Resize has T in version 10, T1 from 11 on), constrain both names. With
 * `param` NULL the constraint is on input `input`, or, where that is negative, on output `output`. A parameter
 * without a constraint takes every type of the schema. */
typedef struct bp_type_constraint {
  BP_HEAD;
  const char* param;
  int32_t input;
  int32_t output;
  const char* const* types;
  uint64_t type_count;
} bp_type_constraint;

/* What a kernel does with an input. */
#define BP_INPUT_DATA 0       /* reads its elements on the device, in `compute` */
#define BP_INPUT_HOST_VALUE 1 /* a shape input: its elements are on the host, in `prepare` too */
#define BP_INPUT_SHAPE_ONLY 2 /* reads type and dims and never an element */
#define BP_INPUT_HOST_DATA 3  /* reads its elements in `compute`, in host memory */
#define BP_INPUT_WEIGHT 4 /* as DATA, but `prepare` reads no element, constant or not. Since: 1.1 */

/* What a kernel does with an output. */
#define BP_OUTPUT_DATA 0 /* on the device */
#define BP_OUTPUT_HOST 1 /* in host memory, whatever the device; the stream may write it */

/* Flags of a kernel (bp_kernel_def::flags). Bits from 256 on are given out by the headers in optional/, and by no
 * other: a new flag here is less. */
#define BP_KERNEL_NOT_DETERMINISTIC 1u /* two runs on the same values may differ: never folded */
#define BP_KERNEL_NOT_CONCURRENT 2u    /* one `compute` per bp_prepared at a time */
#define BP_KERNEL_DATA_DEPENDENT 4u    /* some output's size is known only in `compute` */

/* What `create` gets besides the node. Host-made: bp.operators (operators.h) takes it back as it is. */
typedef struct bp_create_ctx {
  BP_HEAD;
  bp_device* device; /* the plugin's own device; NULL for a guest on another plugin's device */
  const struct bp_device_info* device_info;
  bp_threads* threads;
  uint64_t flags;
} bp_create_ctx;
#define BP_CREATE_DETERMINISTIC 1u /* results must not change from run to run */

/* What a packing function gets. */
typedef struct bp_pack_ctx {
  BP_HEAD;
  const bp_tensor* const* sources; /* the inputs named by the request, plain, in host memory */
  const bp_tensor* target;         /* `bytes` of the kernel's device's memory, to be filled whole */
  bp_stream* stream; /* the device's; NULL where it has none. Drained after the call */
  bp_threads* threads;
  uint64_t source_count;
} bp_pack_ctx;

/* A wish for a constant in another form. The host calls `pack` at most once per content of the sources, key,
 * provider, version and device, keeps the result in the device's memory and shares it between plans and
 * sessions. Everything that shapes the result must be in `key`. */
typedef struct bp_pack_request {
  BP_HEAD;
  const char* key;
  const uint32_t* inputs; /* indices of constant inputs of the node */
  uint32_t input_count;
  uint32_t reserved0; /* 0 */
  uint64_t bytes;
  uint64_t alignment; /* a power of two */
  void* self;         /* handed to `pack`; valid until the kernel is destroyed */

  /* Fills the whole target.
   * Ownership: all borrowed for the call. Threads: one at a time per target.
   * Errors: BP_FAILED, BP_OUT_OF_MEMORY: the plan is not made. Since: 1.0 */
  bp_status* (*pack)(void* self, const bp_pack_ctx* ctx);
} bp_pack_request;

struct bp_prepare_api;

/* What `prepare` gets: every input with type and dims; those in host memory whose elements are known
 * (constants, BP_INPUT_HOST_VALUE) with `host_ptr` set, the others without memory, and so those of BP_INPUT_WEIGHT: a
 * large constant is then read from the model's file where it is packed, and held nowhere else. */
typedef struct bp_prepare_ctx {
  BP_HEAD;
  const struct bp_prepare_api* api;
  const bp_value* const* inputs;
  bp_threads* threads;
  uint32_t input_count;
  uint32_t output_count;
  uint64_t flags; /* as bp_create_ctx::flags */
} bp_prepare_ctx;

/* What `prepare` tells the host. Each function copies its arguments. They return a status only for an
 * argument that the contract forbids (BP_INVALID_ARGUMENT); hand it on. */
typedef struct bp_prepare_api {
  BP_HEAD;

  /* False when an optional output is left out by the node: nothing need be said of it.
   * Ownership: none. Threads: the calling one. Errors: none. Since: 1.0 */
  uint32_t (*output_wanted)(const bp_prepare_ctx* ctx, uint32_t output);

  /* True when the input's elements are the same in every run: a pack request may name it.
   * Ownership: none. Threads: the calling one. Errors: none. Since: 1.0 */
  uint32_t (*input_constant)(const bp_prepare_ctx* ctx, uint32_t input);

  /* The type and dims (elements, `rank` entries, none negative) of a tensor output. Required for each output
   * that is wanted, unless one of the next two is called for it. A rank is 64 at most, here and below.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_output)(bp_prepare_ctx* ctx, uint32_t output, bp_dtype dtype, int32_t rank,
                           const int64_t* dims);

  /* A tensor output whose dims depend on data: `compute` calls alloc_output, each time that it succeeds.
   * `rank` -1: not known either.
   * The kernel must be registered with BP_KERNEL_DATA_DEPENDENT.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_output_unknown)(bp_prepare_ctx* ctx, uint32_t output, bp_dtype dtype,
                                   int32_t rank);

  /* An output that is a sequence, optional or map, by its ONNX type string; `compute` fills it.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_output_type)(bp_prepare_ctx* ctx, uint32_t output, const char* type);

  /* After set_output: the output is in a format of the provider's own, of `bytes` bytes. The format is the one
   * that a rewrite promised for the value (bp_rewrite_api::set_format), and not 0.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_format)(bp_prepare_ctx* ctx, uint32_t output, uint32_t format, uint64_t bytes,
                           uint64_t alignment);

  /* The output may be written over the input, of the same size in bytes. The host does so where nobody needs
   * the input any more; `compute` sees equal memory then, and must be right either way.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*allow_in_place)(bp_prepare_ctx* ctx, uint32_t output, uint32_t input);

  /* The output is the input seen otherwise: from byte `offset` of it on, with `strides` (elements, as many
   * as the output's rank; NULL: dense). Where the host grants it, the output takes no memory, and a kernel
   * all of whose outputs are granted is not computed. Where it does not, `compute` copies.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_view)(bp_prepare_ctx* ctx, uint32_t output, uint32_t input, uint64_t offset,
                         const int64_t* strides);

  /* The input should be produced inside the output, from its byte `offset` on, with `strides` (elements;
   * NULL: dense). Where the host arranges it, bp_kctx::input_state has BP_INPUT_INSIDE and there is nothing
   * to copy. Where it does not, `compute` copies.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_inside)(bp_prepare_ctx* ctx, uint32_t input, uint32_t output, uint64_t offset,
                           const int64_t* strides);

  /* `compute` takes a strided input, makes a strided output. Strides are at least as large as dense ones and
   * keep the order of the axes; the last axis stays dense.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*allow_strided_input)(bp_prepare_ctx* ctx, uint32_t input);
  bp_status* (*allow_strided_output)(bp_prepare_ctx* ctx, uint32_t output);

  /* Scratch memory of the device for `compute`: planned into the same block as the tensors. Its contents are
   * undefined. `alignment` is a power of two. A later call replaces an earlier one. This is how a kernel gets
   * scratch memory; one that cannot know the size before it computes takes host memory by bp_host_api::alloc
   * in `compute` and gives it back before it returns, which costs an allocation a run.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_workspace)(bp_prepare_ctx* ctx, uint64_t bytes, uint64_t alignment);

  /* Asks for a packed constant; it is bp_kctx::packed[*index] in `compute`.
   * Ownership: `request` is copied, except what it says of `self`. Threads: the calling one.
   * Errors: BP_INVALID_ARGUMENT (an input that is not constant). Since: 1.0 */
  bp_status* (*request_pack)(bp_prepare_ctx* ctx, const bp_pack_request* request, uint32_t* index);

  /* `compute` never reads this constant input, because a packed form serves: the host need not give it memory
   * on the device.
   * Ownership: none. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*ignore_input)(bp_prepare_ctx* ctx, uint32_t input);

  /* The algorithm chosen, shown to users after the kernel's name ("winograd 4x4"), and what a run of it costs, of which
   * traces show `flops` and `bytes_moved`. Placement comes before: it asks `match`.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_variant)(bp_prepare_ctx* ctx, const char* text);
  bp_status* (*set_cost)(bp_prepare_ctx* ctx, const bp_cost* cost);
} bp_prepare_api;

/* Bits of bp_kctx::input_state. */
#define BP_INPUT_INSIDE 1u /* the input already lies where set_inside wanted it */

#define BP_NATIVE_STREAM 1 /* the stream's native handle (cl_command_queue, CUstream ...) */
#define BP_NATIVE_DEVICE 2 /* the device's (cl_context, CUcontext ...) */
#define BP_NATIVE_BUFFER 3 /* a tensor's memory, offset not added (cl_mem, CUdeviceptr ...) */

struct bp_compute_api;

/* What `compute` gets. Host-made, one per node and run in flight. */
typedef struct bp_kctx {
  BP_HEAD;
  const bp_value* const* inputs;
  const bp_value* const* outputs; /* with memory, where the size is known and the output wanted */
  const bp_tensor* const* packed; /* by the index that request_pack gave */
  const bp_tensor* workspace;     /* never NULL; of 0 bytes when none was asked for */
  bp_stream* stream;              /* NULL where the device has none: returning means done */
  bp_threads* threads;
  const uint32_t* input_state; /* BP_INPUT_* bits per input */
  const struct bp_compute_api* api;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t packed_count;
  uint32_t reserved0; /* 0 */
} bp_kctx;

/* What `compute` may ask of the host. */
typedef struct bp_compute_api {
  BP_HEAD;

  /* Gives memory to an output that `prepare` said to be unknown, of the rank that it said: once in each call of
   * `compute` that succeeds, for each such output that the node has (bp_prepare_api::output_wanted), also where
   * it has no elements. A success without it is an error of the kernel's, which ends the run.
   * Ownership: *out belongs to the host, valid until `compute` returns. Threads: the calling one.
   * Errors: BP_INVALID_ARGUMENT, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*alloc_output)(const bp_kctx* ctx, uint32_t output, int32_t rank, const int64_t* dims,
                             const bp_tensor** out);

  /* True when the run is to end: return BP_CANCELLED soon.
   * Ownership: none. Threads: any. Errors: none. Since: 1.0 */
  uint32_t (*cancelled)(const bp_kctx* ctx);

  /* A native handle of the provider whose device this is, for a guest that knows the provider: of kind
   * BP_NATIVE_*; `tensor` for BP_NATIVE_BUFFER alone. *out is 0 where there is none (host memory).
   * Ownership: borrowed until `compute` returns. Threads: the calling one.
   * Errors: BP_UNSUPPORTED (the provider shows no such handle). Since: 1.0 */
  bp_status* (*native)(const bp_kctx* ctx, int32_t kind, const bp_tensor* tensor, uint64_t* out);
} bp_compute_api;

/* An entry of a kernel registry: one kernel for one operator. Valid, unchanged, until `shutdown`; the host
 * hands the same pointer back. Among the entries that take a node, the highest `priority` wins, the later
 * registered one among equals. */
typedef struct bp_kernel_def {
  BP_HEAD;
  const char* domain;
  const char* op_type;
  const char* name;  /* shown to users: "cpu:softmax" */
  int32_t since_min; /* first and last since-version of the schema that this kernel implements */
  int32_t since_max; /* INT32_MAX: that one and all later ones */
  int32_t priority;
  uint32_t flags; /* BP_KERNEL_* */
  const bp_type_constraint* const* constraints;
  const int32_t* input_roles;  /* BP_INPUT_*; past the end as the last entry, DATA if none */
  const int32_t* output_roles; /* BP_OUTPUT_*; likewise */
  uint32_t constraint_count;
  uint32_t input_role_count;
  uint32_t output_role_count;
  uint32_t reserved0; /* 0 */
  void* self;         /* handed to `match` and `create` */

  /* Optional: looks closer than types can. Success means that `create` will take the node, with the shapes
   * known by then; the same node gets the same answer. `cost` may be filled, for sessions with `placement=cost`.
   * Ownership: all borrowed for the call. Threads: any.
   * Errors: BP_UNSUPPORTED with the reason. BP_DEVICE_LOST and BP_OUT_OF_MEMORY end the session's making; any
   * other code is warned of, and the node goes to the next kernel. Since: 1.0 */
  bp_status* (*match)(void* self, bp_device* device, const bp_node* node, bp_cost* cost);

  /* Compiles one node. Reads attributes and constant inputs; shapes may be unknown.
   * Ownership: `node` is valid until `destroy`; *out is the host's until it calls `destroy`.
   * Threads: any; one call per node.
   * Errors: BP_UNSUPPORTED with the reason (the node then goes to the next kernel), BP_OUT_OF_MEMORY.
   * Since: 1.0 */
  bp_status* (*create)(void* self, const bp_create_ctx* ctx, const bp_node* node, bp_kernel** out);

  /* Ends a kernel, after all its prepared objects.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.0 */
  void (*destroy)(bp_kernel* kernel);

  /* Makes the kernel ready for the shapes in `ctx`: checks them, says what the outputs are, chooses the
   * algorithm. The authority on types and dims. The result is immutable and independent of later calls.
   * Ownership: *out is the host's until it calls `release`. Threads: one at a time per kernel.
   * Errors: BP_UNSUPPORTED (as in `create`), BP_INVALID_ARGUMENT (the shapes are wrong for the operator: an
   * error of the model or of the feeds), BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*prepare)(bp_kernel* kernel, bp_prepare_ctx* ctx, bp_prepared** out);

  /* Ends a prepared object.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.0 */
  void (*release)(bp_prepared* prepared);

  /* Computes, or puts the work on ctx->stream. Allocates nothing, takes no lock, waits for no device.
   * Inputs are read-only; no output's old content is read.
   * Ownership: `prepared` and the tensors' memory stay until the stream has passed the work: the host releases
   * neither before. What `ctx` points at is borrowed for the call.
   * Threads: any number at a time with different `ctx`, unless BP_KERNEL_NOT_CONCURRENT.
   * Errors: BP_FAILED (values out of range), BP_CANCELLED, BP_OUT_OF_MEMORY, BP_DEVICE_LOST. Since: 1.0 */
  bp_status* (*compute)(const bp_prepared* prepared, const bp_kctx* ctx);
} bp_kernel_def;

/* Receives the kernels of a registry, one a call; hand its status on. */
typedef bp_status* (*bp_kernel_sink)(void* sink_ctx, const bp_kernel_def* def);

#ifdef __cplusplus
}
#endif
