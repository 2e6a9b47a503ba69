/* Backplane plugin ABI: what the host offers to plugins. */
#pragma once

#include "backplane/plugin_api/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much a line of the log matters. */
#define BP_LOG_TRACE 0
#define BP_LOG_DEBUG 1
#define BP_LOG_INFO 2
#define BP_LOG_WARNING 3
#define BP_LOG_ERROR 4

/* A part [begin, end) of a loop. `worker` is less than thread_count and no other part that runs at the same
 * time has it. Must not throw, and must not call parallel_for. */
typedef void (*bp_range_fn)(void* argument, uint64_t begin, uint64_t end, uint32_t worker);

/* The host's table, given to `init` and valid until `shutdown` returns. */
typedef struct bp_host_api {
  BP_HEAD;
  uint32_t abi_major;
  uint32_t abi_minor;

  /* Makes a status. `message` says what went wrong and what to do, without a final full stop. Never returns
   * NULL: when memory is short, the code alone survives.
   * Ownership: the text is copied; the caller owns the result until it returns it.
   * Threads: any. Errors: none. Since: 1.0 */
  bp_status* (*status_new)(bp_code code, const char* message, uint64_t size);

  /* The code of a status, its text (valid as long as the status), and its end. NULL is success.
   * Ownership: status_free takes it. Threads: any. Errors: none. Since: 1.0 */
  bp_code (*status_code)(const bp_status* status);
  void (*status_message)(const bp_status* status, bp_str* out);
  void (*status_free)(bp_status* status);

  /* Logs a line; the host adds the plugin's name.
   * Ownership: the text is copied. Threads: any. Errors: none. Since: 1.0 */
  void (*log)(int32_t level, const char* message, uint64_t size);

  /* Host memory for plugins; counted by the host. `alignment` is a power of two. Not for the steady state:
   * scratch memory of a kernel is bp_prepare_api::set_workspace.
   * Ownership: the caller's until dealloc; NULL when there is none.
   * Threads: any. Errors: none. Since: 1.0 */
  void* (*alloc)(uint64_t bytes, uint64_t alignment);
  void (*dealloc)(void* memory);

  /* The number of threads that parallel_for uses at most, the caller among them; at least 1.
   * Ownership: none. Threads: any. Errors: none. Since: 1.0 */
  uint32_t (*thread_count)(const bp_threads* threads);

  /* Calls `fn` on parts of [0, n) until all is covered, at least `grain` indices a part where possible, and
   * returns when all parts are done. The caller works too. Parts are claimed as threads become free. When
   * the pool is busy with another caller's loop, the caller does it all: it never waits for a place.
   * Ownership: `argument` is borrowed for the call.
   * Threads: any, also several callers with the same `threads`. Errors: none. Since: 1.0 */
  void (*parallel_for)(bp_threads* threads, uint64_t n, uint64_t grain, bp_range_fn fn,
                       void* argument);

  const bp_graph_api* graph; /* reading graphs; never NULL */
  const bp_value_api* value; /* strings, sequences, optionals, maps; never NULL */

  /* A table of functions by its name ("bp.<name>"; other vendors: reverse domain names), at least as new as
   * `min_version`; NULL when this host has none. The table starts with BP_HEAD. There is "bp.operators"
   * (operators.h).
   * Ownership: borrowed, valid until shutdown. Threads: any. Errors: none. Since: 1.0 */
  const void* (*get_interface)(const char* id, uint32_t min_version);
} bp_host_api;

#ifdef __cplusplus
}
#endif
