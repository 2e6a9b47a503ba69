/* Backplane plugin ABI: the named interface "bp.operators", by which a kernel uses kernels of other operators.
 *
 * What bp_host_api::get_interface(BP_OPERATORS_ID, BP_OPERATORS_VERSION) gives is a bp_operators_api.
 *
 * A kernel that is made of others (attention: two matrix products and a softmax) makes them in its `create`,
 * prepares them in its `prepare`, and computes them in its `compute`, with parts of its own workspace between
 * them. Then nothing is allocated in the steady state, and the host has planned all memory:
 *
 *   in `create`   create(ctx, desc, &op)
 *   in `prepare`  prepare(op, ctx->threads, inputs, count, &plan), for each operator in turn: the outputs of
 *                 one plan are inputs of the next; then set_workspace with room for the plans' workspaces
 *                 and for the tensors between them
 *   in `compute`  compute(plan, ctx, args)
 *   in `release`  release(plan)
 *   in `destroy`  destroy(op)
 *
 * `call` does all of that at once, for what is known in `compute` alone: outputs whose size depends on data,
 * strings, sequences. It allocates and takes a lock, and works in host memory only. */
#pragma once

#include "backplane/plugin_api/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Under this name and version the host gives a bp_operators_api. */
#define BP_OPERATORS_ID "bp.operators"
#define BP_OPERATORS_VERSION 1

/* Which device's kernels serve an operator. */
#define BP_OPERATOR_OWN_DEVICE \
  0 /* the device of the kernel that makes it: its memory, its stream */
#define BP_OPERATOR_HOST_DEVICE \
  1 /* the device by which the host evaluates constants: host memory */

/* An operator for one set of types and attributes, made by the host. */
typedef struct bp_operator bp_operator;

/* What an operator is to be, as a node of a model would say it. */
typedef struct bp_operator_desc {
  BP_HEAD;
  const char* domain; /* "" is ONNX's own */
  const char* op_type;
  const char* name; /* for messages; NULL: op_type */
  const bp_attribute* const* attributes;
  const char* const* input_types; /* ONNX type strings; "" for an input that is left out */
  const bp_value* const*
      constants;            /* NULL, or by input: its elements if they never change, or NULL */
  uint64_t omitted_outputs; /* bit i: output i is left out */
  uint32_t attribute_count;
  uint32_t input_count;
  uint32_t output_count;
  int32_t version;    /* of the domain's operator set, as a model imports it; 0: the newest known */
  int32_t device;     /* BP_OPERATOR_*_DEVICE */
  uint32_t reserved0; /* 0 */
} bp_operator_desc;

/* An operator made ready for one set of shapes. Host-made and immutable, until `release`. */
typedef struct bp_operator_plan {
  BP_HEAD;
  const bp_tensor* const*
      outputs;        /* type, dims and bytes, without memory; BP_NONE for one left out */
  const char* kernel; /* the kernel's name and variant, for bp_prepare_api::set_variant */
  uint64_t workspace_bytes;
  uint64_t workspace_alignment;
  uint32_t output_count;
  uint32_t reserved0; /* 0 */
} bp_operator_plan;

/* Tensors for `compute`, made by the plugin or taken from bp_kctx. Each has the type, dims and bytes that the
 * plan was made for and lies in the memory of the operator's device (or in host memory, where the device works
 * on it, or the kernel reads or writes it there); dense, unless its kernel allowed strides. */
typedef struct bp_operator_args {
  BP_HEAD;
  const bp_tensor* const*
      inputs; /* NULL for one that is left out, or constant: the host has that */
  const bp_tensor* const* outputs; /* NULL for one that is left out */
  const bp_tensor*
      workspace; /* of the plan's bytes and alignment at least; NULL when those are 0 */
  bp_threads*
      threads; /* bp_kctx::threads; NULL inside a part of parallel_for, where no loop may begin */
  uint32_t input_count;
  uint32_t output_count;
} bp_operator_args;

typedef struct bp_operators_api {
  BP_HEAD;

  /* Makes an operator. `ctx` is what the kernel's `create` got. Operators with bodies (If, Loop, Scan) have no
   * kernels; of a provider's private formats nothing is known.
   * Ownership: `desc` is copied, but its constants are borrowed until `destroy` (a node's are valid so long);
   * *out is the caller's until `destroy`, which is to come before the kernel's own end.
   * Threads: the calling one.
   * Errors: BP_INVALID_ARGUMENT (no such operator, a wrong type), BP_UNSUPPORTED with the reasons of the
   * device's kernels: hand it on from `create`, and the node goes to the next kernel. Since: 1.0 */
  bp_status* (*create)(const bp_create_ctx* ctx, const bp_operator_desc* desc, bp_operator** out);

  /* Ends an operator; its plans are released before.
   * Ownership: takes it; NULL is all right. Threads: any. Errors: none. Since: 1.0 */
  void (*destroy)(bp_operator* op);

  /* Makes the operator ready for shapes. An input has dtype, rank and dims, and `host_ptr` where its elements
   * decide the shape (Reshape's shape); NULL for one that is left out, or constant. Tensors of bp_prepare_ctx
   * and of plans serve as they are. Constants are packed here, and shared as those of nodes are.
   * Ownership: all borrowed for the call; *out is the caller's until `release`. Threads: any.
   * Errors: BP_INVALID_ARGUMENT (shapes that are wrong for the operator, a missing input), BP_UNSUPPORTED (no
   * kernel takes the shapes, or an output is known in `compute` alone: use `call`), BP_OUT_OF_MEMORY.
   * Since: 1.0 */
  bp_status* (*prepare)(bp_operator* op, bp_threads* threads, const bp_tensor* const* inputs,
                        uint32_t input_count, const bp_operator_plan** out);

  /* Ends a plan; no stream uses it any more.
   * Ownership: takes it; NULL is all right. Threads: any. Errors: none. Since: 1.0 */
  void (*release)(const bp_operator_plan* plan);

  /* Computes, or puts the work on ctx->stream, behind what the kernel put there before. `ctx` is what the
   * kernel's `compute` got. Allocates nothing once as many calls ran at a time as ever do.
   * Ownership: all borrowed for the call; memory stays until the stream has passed the work.
   * Threads: any number at a time.
   * Errors: BP_INVALID_ARGUMENT (a tensor that does not fit the plan), what the operator's kernel returns.
   * Since: 1.0 */
  bp_status* (*compute)(const bp_operator_plan* plan, const bp_kctx* ctx,
                        const bp_operator_args* args);

  /* Computes with values, into new ones: plans by itself, and keeps the plans of the last few shapes. For a
   * device on host memory. `ctx` may be NULL outside of `compute`. An input is NULL where it is left out, or
   * constant; an output gets NULL where it is.
   * Ownership: inputs are borrowed for the call; each output is the caller's until bp_value_api::value_free.
   * Threads: any number at a time.
   * Errors: as `prepare` and `compute`; BP_UNSUPPORTED on a device with memory of its own. Since: 1.0 */
  bp_status* (*call)(bp_operator* op, const bp_kctx* ctx, const bp_value* const* inputs,
                     uint32_t input_count, const bp_value** outputs, uint32_t output_count);
} bp_operators_api;

#ifdef __cplusplus
}
#endif
