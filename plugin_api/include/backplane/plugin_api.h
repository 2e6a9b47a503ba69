/* The Backplane plugin ABI, version 1.3.
 *
 * A plugin is a shared object that exports one symbol, bp_plugin_query_v1. It brings providers (kinds of
 * devices with kernels), custom operators, or both. This header and those in plugin_api/ are all that it
 * needs; plugin.hpp is a C++17 layer on top. The parts, to be read in this order:
 *
 *   base.h       versions, struct heads, status codes, strings, opaque objects
 *   value.h      element types, tensors, values
 *   graph.h      reading graphs, nodes, attributes
 *   host.h       what the host offers: statuses, log, memory, threads
 *   kernel.h     kernels: create, prepare, compute; registry entries
 *   rewrite.h    fusing nodes, private layouts, claims
 *   device.h     providers, devices, memory, streams, fences, copies
 *   op.h         schemas of custom operators
 *   operators.h  an optional interface: kernels that use other operators' kernels
 *
 * The rules of the whole interface:
 *
 * 1. Growth. Structs and tables grow at the end and never change otherwise. Every struct that may grow
 *    starts with BP_HEAD; its writer sets struct_size = sizeof and zeroes the rest. A reader looks at a
 *    field only if BP_HAS says that it is there, and takes a missing or zero field for the older behaviour.
 *    Such a struct is never embedded in another one and never stands in an array: arrays hold pointers.
 *    bp_str and bp_key_value have no head and are frozen. There is no implicit padding (-Wpadded).
 * 2. Versions. A plugin says which minor version it was built with and which it requires. The host loads it
 *    when the major numbers are equal and it offers the required minor; a newer plugin that requires no
 *    more than the host has therefore loads. A plugin looks for newer host functions with BP_HAS_FN.
 * 3. Types on the wire: fixed-width integers, doubles, pointers; no enum, bool, long, struct by value.
 *    Enumerations are int32_t and open: a receiver skips what it does not know.
 * 4. Errors are statuses made by the host (bp_host_api::status_new); NULL is success. No exception, longjmp,
 *    signal or exit crosses the border. BP_UNSUPPORTED always carries a reason: users will read it.
 * 5. Ownership. The creator destroys, through the table it came from. What is passed in is borrowed for the
 *    call unless the function says otherwise; who keeps it copies it. Neither side frees what the other
 *    allocated. What a plugin registers (definitions, schemas, options, infos) stays valid and unchanged
 *    until its shutdown, and comes back by the same pointer.
 * 6. Order of ends, guaranteed by the host: prepared objects, kernels, packed constants, fences and streams
 *    (drained), buffers, devices, shutdown. Statuses and host functions outlive all of it.
 * 7. Threads. What may run at a time is said at each function. Streams are used by one thread at a time. A
 *    plugin starts no threads that spin; loops go to bp_host_api::parallel_for. No thread of a plugin calls
 *    the host after shutdown returned.
 * 8. Handles. A plugin sees only its own opaque objects, or host memory: a copy between devices of two
 *    providers goes through the host. Guests (custom operators on another plugin's device) get native
 *    handles by bp_compute_api::native.
 * 9. A device without streams computes during the call. With streams, `compute` and `copy` only put work on
 *    them, and the host orders streams by fences. Before memory is recycled or an error is returned, the
 *    host drains every stream of the run.
 * 10. A plugin leaves the process alone: no change of locale, signal handlers, floating-point mode, current
 *     directory, environment; nothing on stdout or stderr.
 *
 * Sources: ONNX IR and operator specifications (github.com/onnx/onnx, docs/IR.md, docs/Operators.md). */
#pragma once

#include "backplane/plugin_api/base.h"
#include "backplane/plugin_api/device.h"
#include "backplane/plugin_api/graph.h"
#include "backplane/plugin_api/host.h"
#include "backplane/plugin_api/kernel.h"
#include "backplane/plugin_api/op.h"
#include "backplane/plugin_api/operators.h"
#include "backplane/plugin_api/rewrite.h"
#include "backplane/plugin_api/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plugin is. Constant data, or built once by the first query; valid until `shutdown`. */
typedef struct bp_plugin {
  BP_HEAD;
  uint32_t abi_minor_built;    /* BP_ABI_MINOR of the header it was built with */
  uint32_t abi_minor_required; /* the least host minor it can work with */
  const char* name;
  const char* vendor;
  const char* version;
  void* self; /* handed to the functions below */
  const bp_provider* const* providers;
  const bp_op_schema* const* schemas;
  uint32_t provider_count;
  uint32_t schema_count;

  /* Starts the plugin: keeps `host`, fills what the other functions need. Called once, before anything else,
   * and again only after a shutdown.
   * Ownership: `host` is valid until shutdown returned. Threads: one.
   * Errors: any; the plugin is then refused with the message, and `shutdown` is not called. Since: 1.0 */
  bp_status* (*init)(void* self, const bp_host_api* host);

  /* Ends the plugin, after everything made from it is gone. The library may stay mapped.
   * Ownership: all the plugin's objects end. Threads: one. Errors: none. Since: 1.0 */
  void (*shutdown)(void* self);

  /* Optional. Shows kernels of custom operators (of any plugin's schemas) for devices of the provider called
   * `provider`; they are called with bp_create_ctx::device NULL unless the provider is this plugin's.
   * Ownership: the definitions stay the plugin's. Threads: any. Errors: what the sink returns. Since: 1.0 */
  bp_status* (*kernels_for)(void* self, const char* provider, void* sink_ctx, bp_kernel_sink sink);
} bp_plugin;

/* What the host says of itself. */
typedef struct bp_query_args {
  BP_HEAD;
  uint32_t host_major;
  uint32_t host_minor;
  bp_str host_version; /* for messages */
} bp_query_args;

/* The one exported symbol. Gives the plugin's description; starts nothing, needs nothing, may be called again.
 * A plugin of this header returns BP_INCOMPATIBLE, and leaves *out alone, where host_major is not 1.
 * Ownership: *out stays the plugin's. Threads: any.
 * Errors: the result is a code: BP_OK, or BP_INCOMPATIBLE when this host cannot be served. Since: 1.0 */
#define BP_PLUGIN_QUERY_SYMBOL "bp_plugin_query_v1"
typedef bp_code (*bp_plugin_query_fn)(const bp_query_args* args, const bp_plugin** out);

#ifdef __cplusplus
}
#endif
