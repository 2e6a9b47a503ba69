/* Backplane plugin ABI: rewriting a subgraph, and claiming one. */
#pragma once

#include "backplane/plugin_api/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A constant that a rewrite adds. Either `data` holds its `bytes` (copied), or `compute` makes it, lazily and
 * at most once per content of its sources, provider, version, device and key. Plain layout only. */
typedef struct bp_constant_desc {
  BP_HEAD;
  const char* name; /* new and unique in the graph */
  const int64_t* dims;
  int32_t rank;
  bp_dtype dtype;
  const void* data;
  uint64_t bytes;
  const char* const* sources; /* names of constants that `compute` reads, in its order */
  uint64_t source_count;
  const char* key; /* everything besides the sources that shapes the result */
  void* self;      /* handed to `compute` and `drop` */

  /* Fills `ctx->target`, in host memory, from `ctx->sources`.
   * Ownership: borrowed for the call. Threads: one at a time. Errors: BP_FAILED. Since: 1.0 */
  bp_status* (*compute)(void* self, const bp_pack_ctx* ctx);

  /* Optional. Ends `self`; no call follows. Called also when the constant was never computed.
   * Ownership: takes `self`. Threads: any. Errors: none. Since: 1.0 */
  void (*drop)(void* self);
} bp_constant_desc;

/* A node that a rewrite adds. */
typedef struct bp_node_desc {
  BP_HEAD;
  const char* domain; /* the provider's own, "backplane.<provider>", or one of the model's */
  const char* op_type;
  const char* name;           /* new and unique; NULL: made from op_type */
  const char* const* inputs;  /* value names; "" for one that is left out */
  const char* const* outputs; /* new names, or names of outputs of replaced nodes; "" likewise */
  uint64_t input_count;
  uint64_t output_count;
  const bp_attribute* const* attributes;
  uint64_t attribute_count;
  const bp_node* const* replaces; /* the nodes whose work this one does; none for a reorder */
  uint64_t replace_count;
} bp_node_desc;

/* Edits the nodes that a device was given.
 *
 * A node named in some `replaces` is removed once `rewrite` returns. Then the host checks: every value used
 * outside is still made, under its old name and in the plain format; every input is made, given or constant;
 * no cycle; every node has a kernel on this device. If not, all edits are dropped and the reason is shown.
 * The private domain's version is 1. An added node of one of the model's domains is of the version of the node of the
 * same operator that it replaces, and of version 1 where it replaces none. */
typedef struct bp_rewrite_api {
  BP_HEAD;

  /* Ownership: copied, but `self`. Threads: the calling one.
   * Errors: BP_INVALID_ARGUMENT (a name that is taken, a source that is no constant). Since: 1.0 */
  bp_status* (*add_constant)(bp_rewrite* editor, const bp_constant_desc* desc);

  /* Ownership: copied. Threads: the calling one.
   * Errors: BP_INVALID_ARGUMENT (a node replaced twice, a name that is taken). Since: 1.0 */
  bp_status* (*add_node)(bp_rewrite* editor, const bp_node_desc* desc);

  /* Says that a value between nodes of this device is in a format of the provider's own: documentation for
   * the explanation, and a promise that is checked when the producing kernel is prepared. One that makes
   * another format, or a private one that no rewrite told of, is an error that names the node. A layout that merely
   * permutes the axes (channels last) needs no format: give the new value permuted dims and let it be plain,
   * so that the core's strides, views and "inside" wishes keep working on it. The core knows only the bytes of
   * a value in a private format.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_format)(bp_rewrite* editor, const char* value, uint32_t format);

  /* Says for the explanation why a node was not fused or changed.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*note)(bp_rewrite* editor, const bp_node* node, const char* text);
} bp_rewrite_api;

/* A wish to compile nodes of a graph whole. */
typedef struct bp_claim {
  BP_HEAD;
  const bp_node* const* nodes;
  uint64_t node_count;
  const bp_cost* cost; /* NULL: unknown */
  const char* name;    /* shown to users */
  uint32_t claim_id;   /* handed back to `compile` */
  uint32_t reserved0;  /* 0 */
} bp_claim;

#ifdef __cplusplus
}
#endif
