/* Backplane plugin ABI: providers, devices, memory, streams, fences, copies. */
#pragma once

#include "backplane/plugin_api/kernel.h"
#include "backplane/plugin_api/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a device is (bp_device_info::type). */
#define BP_DEVICE_TYPE_CPU 1
#define BP_DEVICE_TYPE_GPU 2
#define BP_DEVICE_TYPE_ACCELERATOR 3

/* The device works on plain host memory: tensors have `host_ptr` and no `buffer`, and no function about
 * buffers, streams, fences or copies is ever called; they may all be NULL. */
#define BP_DEVICE_HOST_MEMORY 1u
/* The host may use this device to evaluate constants and shape arithmetic while it plans. Needs
 * BP_DEVICE_HOST_MEMORY. */
#define BP_DEVICE_HOST_EVALUATOR 2u

/* A device that a provider found. Valid, unchanged, until `shutdown`. */
typedef struct bp_device_info {
  BP_HEAD;
  const char* name; /* for people */
  const char* vendor;
  const char* driver;    /* with its version */
  uint8_t uuid[16];      /* the same device has the same one, whoever finds it; zeros: none */
  uint64_t memory_bytes; /* 0: unknown */
  uint64_t flags;        /* BP_DEVICE_* */
  int32_t type;          /* BP_DEVICE_TYPE_* */
  int32_t score; /* how well it serves: 0 not at all, 1 as a last resort, 50 well, 100 best */
} bp_device_info;

/* Memory that a device offers. Alignments are powers of two, in bytes. */
typedef struct bp_heap {
  BP_HEAD;
  bp_memory_kind kind; /* BP_MEMORY_DEVICE or BP_MEMORY_PINNED */
  uint32_t reserved0;  /* 0 */
  uint64_t alignment;  /* of a tensor inside a buffer */
  uint64_t max_bytes;  /* of one buffer; 0: no limit known */
} bp_heap;

/* How a copy is done. */
#define BP_COPY_NONE 0  /* not by this device: go through pinned host memory */
#define BP_COPY_SYNC 1  /* done when the call returns, behind what is on the stream */
#define BP_COPY_ASYNC 2 /* put on the stream */

/* Rate and latency of a copy; 0: unknown. */
typedef struct bp_copy_caps {
  BP_HEAD;
  int32_t mode; /* BP_COPY_* */
  uint32_t reserved0;
  double bytes_per_ns;
  double latency_ns;
} bp_copy_caps;

typedef bp_status* (*bp_heap_sink)(void* sink_ctx, const bp_heap* heap);
typedef bp_status* (*bp_claim_sink)(void* sink_ctx, const bp_claim* claim);

/* An opened device. Functions are optional unless they say "required"; a device without
 * BP_DEVICE_HOST_MEMORY must have all those of memory, streams, fences and copies. */
typedef struct bp_device_api {
  BP_HEAD;

  /* Required. Shows every kernel of the device's registry.
   * Ownership: the definitions stay the plugin's. Threads: any. Errors: what the sink returns. Since: 1.0 */
  bp_status* (*kernels)(bp_device* device, void* sink_ctx, bp_kernel_sink sink);

  /* Required. Closes the device, after everything made on it is gone.
   * Ownership: takes it. Threads: one, once. Errors: none. Since: 1.0 */
  void (*close)(bp_device* device);

  /* Memory. Shows the heaps, best first: at least one of BP_MEMORY_DEVICE; a BP_MEMORY_PINNED one serves
   * for staging copies.
   * Ownership: borrowed for the call of the sink. Threads: any. Errors: what the sink returns. Since: 1.0 */
  bp_status* (*heaps)(bp_device* device, void* sink_ctx, bp_heap_sink sink);

  /* Allocates `bytes` (more than 0) of a heap.
   * Ownership: *out is the host's until buffer_free. Threads: any.
   * Errors: BP_OUT_OF_MEMORY, BP_DEVICE_LOST. Since: 1.0 */
  bp_status* (*buffer_alloc)(bp_device* device, bp_memory_kind kind, uint64_t bytes,
                             uint64_t alignment, bp_buffer** out);

  /* Frees a buffer; no stream uses it any more.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.0 */
  void (*buffer_free)(bp_device* device, bp_buffer* buffer);

  /* The address of a BP_MEMORY_PINNED buffer in the process; NULL for other ones.
   * Ownership: valid until buffer_free. Threads: any. Errors: none. Since: 1.0 */
  void* (*buffer_host_ptr)(bp_device* device, bp_buffer* buffer);

  /* Streams: in-order queues. stream_sync waits until all work put on it is done, and returns the first
   * error of that work, which it then forgets.
   * Ownership: *out is the host's until stream_destroy. Threads: one at a time per stream.
   * Errors: BP_OUT_OF_MEMORY, BP_DEVICE_LOST; of the work: its own. Since: 1.0 */
  bp_status* (*stream_create)(bp_device* device, bp_stream** out);
  void (*stream_destroy)(bp_device* device, bp_stream* stream);
  bp_status* (*stream_sync)(bp_device* device, bp_stream* stream);

  /* Fences: counters that only grow, from 0. A fence of a stream that failed is signalled all the same, and
   * fence_host_wait returns the error. Waiting for a value that is signalled later is right.
   * Ownership: *out is the host's until fence_destroy. Threads: any; streams as above.
   * Errors: BP_OUT_OF_MEMORY, BP_DEVICE_LOST. Since: 1.0 */
  bp_status* (*fence_create)(bp_device* device, bp_fence** out);
  void (*fence_destroy)(bp_device* device, bp_fence* fence);
  /* Puts on the stream: raise the fence to `value`.
   * Ownership: none. Threads: one at a time per stream. Errors: BP_DEVICE_LOST. Since: 1.0 */
  bp_status* (*fence_signal)(bp_device* device, bp_stream* stream, bp_fence* fence, uint64_t value);
  /* Puts on the stream: go on when the fence, of this device, has reached `value`.
   * Ownership: none. Threads: one at a time per stream. Errors: BP_DEVICE_LOST. Since: 1.0 */
  bp_status* (*fence_wait)(bp_device* device, bp_stream* stream, bp_fence* fence, uint64_t value);
  /* Waits on the calling thread, `timeout_ns` at most (UINT64_MAX: for ever).
   * Ownership: none. Threads: any. Errors: BP_TIMEOUT, BP_DEVICE_LOST; of the work: its own. Since: 1.0 */
  bp_status* (*fence_host_wait)(bp_device* device, bp_fence* fence, uint64_t value,
                                uint64_t timeout_ns);

  /* Whether and how this device copies between memory of the kinds, one of them its own. BP_MEMORY_HOST is
   * any memory of the process. A device must have a way in both directions: with BP_MEMORY_HOST, or, where that
   * is BP_COPY_NONE, with a heap of BP_MEMORY_PINNED; without one it is not opened. A mode that the host does not
   * know is BP_COPY_NONE to it. `peer` is NULL, or another device of this provider that owns the other side.
   * Ownership: fills *out. Threads: any. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*copy_caps)(bp_device* device, bp_memory_kind from, bp_memory_kind to,
                          const bp_device* peer, bp_copy_caps* out);

  /* Copies `bytes` of `from` to `to`, of equal sizes, both dense, as copy_caps said.
   * Ownership: borrowed; memory stays until the stream has passed the copy. Threads: one per stream.
   * Errors: BP_DEVICE_LOST, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*copy)(bp_device* device, bp_stream* stream, const bp_tensor* from,
                     const bp_tensor* to);

  /* Optional. Claims subgraphs to compile whole. Pure: the same graph gets the same claims. A claim is a
   * wish; the host takes a convex one, splits another into convex parts, and says what it refused.
   * Ownership: all borrowed for the call. Threads: any. Errors: what the sink returns. Since: 1.0 */
  bp_status* (*claims)(bp_device* device, const bp_graph* graph, void* sink_ctx,
                       bp_claim_sink sink);

  /* Required with `claims`. Compiles a claimed subgraph into one kernel whose inputs and outputs are the
   * graph's, in order. Of *def the host uses name, flags, roles, destroy, prepare, release and compute.
   * Ownership: `subgraph` is valid until the kernel is destroyed; *kernel is the host's.
   * Threads: any. Errors: BP_UNSUPPORTED with the reason (the nodes are then placed one by one). Since: 1.0 */
  bp_status* (*compile)(bp_device* device, const bp_create_ctx* ctx, const bp_graph* subgraph,
                        uint32_t claim_id, const bp_kernel_def** def, bp_kernel** kernel);

  /* Optional. Replaces nodes by others: fusion, layouts of the provider's own. Called once per graph body
   * with all nodes placed on this device that are not compiled. The host checks the result or keeps the
   * original. See rewrite.h.
   * Ownership: all borrowed for the call. Threads: any.
   * Errors: any: the original graph is kept and the reason shown. Since: 1.0 */
  bp_status* (*rewrite)(bp_device* device, const bp_graph* graph, bp_rewrite* editor,
                        const bp_rewrite_api* api);

  /* Optional. A run begins; it ends (also when it failed). run_end comes for each run_begin that succeeded.
   * Ownership: none. Threads: any; runs overlap. Errors: run_begin: any, which ends the run. Since: 1.0 */
  bp_status* (*run_begin)(bp_device* device, uint64_t run_id);
  void (*run_end)(bp_device* device, uint64_t run_id);

  /* Optional. Native handles for guests: see bp_compute_api::native. `stream`, `buffer` where they apply.
   * Ownership: borrowed. Threads: any. Errors: BP_UNSUPPORTED. Since: 1.0 */
  bp_status* (*native)(bp_device* device, int32_t kind, bp_stream* stream, bp_buffer* buffer,
                       uint64_t* out);
} bp_device_api;

/* Types of options. */
#define BP_OPTION_STRING 1 /* range: "" or a list of choices "auto|fast|exact" */
#define BP_OPTION_INT 2    /* range: "1..64", either end may be missing; "" for any */
#define BP_OPTION_FLOAT 3  /* range: as INT */
#define BP_OPTION_BOOL 4   /* "true", "false" */

/* An option of a provider. The host refuses unknown names and values out of range before `open`, and gives
 * `open` every option, defaults filled in. Valid until `shutdown`. Names are of letters, digits, '_' and '-'.
 * Three mean something to the host, and are for nothing else: "precision" (choices among fp32|tf32|fp16|bf16)
 * gets the session's precision, "power" and "memory" (low|normal|high) what a path of a session prefers. */
typedef struct bp_option {
  BP_HEAD;
  const char* name;
  const char* doc; /* one sentence */
  const char* default_value;
  const char* range;
  int32_t type;
  uint32_t reserved0; /* 0 */
} bp_option;

/* What `open` gets. */
typedef struct bp_open_ctx {
  BP_HEAD;
  const bp_key_value* options; /* every option of the provider */
  uint64_t option_count;
  bp_threads* threads; /* valid until `close` */
} bp_open_ctx;

typedef bp_status* (*bp_device_sink)(void* sink_ctx, const bp_device_info* info);

/* A provider: a kind of device. Valid, unchanged, until `shutdown`. */
typedef struct bp_provider {
  BP_HEAD;
  const char* name; /* a lower case letter, then such, digits, '_'; not "auto" or "host" */
  const char* version;
  const bp_option* const* options;
  uint64_t option_count;
  void* self;

  /* Shows the devices that are there; none is no error. Cheap: opens nothing (where a driver must be opened to see
   * them, optional/first_look.h says whether that is worth it).
   * Ownership: infos stay the plugin's. Threads: any.
   * Errors: BP_UNSUPPORTED with the reason why there can be none (no driver ...). Since: 1.0 */
  bp_status* (*enumerate)(void* self, void* sink_ctx, bp_device_sink sink);

  /* Opens a device that `enumerate` showed; the same one may be opened several times, with other options.
   * Ownership: *out is the host's until `close`; *api stays the plugin's. Threads: any.
   * Errors: BP_INVALID_ARGUMENT (an option), BP_DEVICE_LOST, BP_OUT_OF_MEMORY. Since: 1.0 */
  bp_status* (*open)(void* self, const bp_device_info* info, const bp_open_ctx* ctx,
                     bp_device** out, const bp_device_api** api);

  /* Optional. A table by its name, as bp_host_api::get_interface.
   * Ownership: the plugin's. Threads: any. Errors: none. Since: 1.0 */
  const void* (*get_interface)(void* self, const char* id, uint32_t min_version);
} bp_provider;

#ifdef __cplusplus
}
#endif
