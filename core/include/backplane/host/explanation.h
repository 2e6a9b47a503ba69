/* Where a session's nodes went and why, and what is copied, for programs: the same as backplane_session_explain tells as JSON. A part of
 * backplane.h, which is the file to include; its conventions hold here. */
#pragma once

#include "backplane/backplane.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct backplane_explanation backplane_explanation;

/* Why a provider did not get a node, or a remark of the one that did, with a sentence for people. Codes: "no_such_op", "opset", "type",
 * "refused" (what the provider said), "failed" (it broke when it was asked), "rule", "claim", "cheaper_elsewhere", "not_preferred",
 * "memory", "cast", "note"; later versions add others. Frozen. */
typedef struct backplane_reason {
  const char* provider;
  const char* code;
  const char* text;
} backplane_reason;

/* A node of the model as it was read. `provider`: whose device it runs on, "cpu" or "fakegpu:1"; "host" where the core evaluates it by
 * itself; "" where it is gone. `kernel`: the kernel, or what became of the node. `fused_into`: the node that it is computed with,
 * or "". struct_size is that of the library; later versions append fields. */
typedef struct backplane_explained_node {
  uint64_t struct_size;
  const char* name;
  const char* op_type;
  const char* domain;
  const char* provider;
  const char* kernel;
  const char* fused_into;
  uint64_t reason_count;
  const backplane_reason* reasons;
} backplane_explained_node;

/* A copy that each run makes: the bytes of a value that go from one memory ("host", or a device) to another, and what needs it. `route`:
 * "direct", "peer" (from device to device), "staged" (by pinned memory) or "view" (the device works on the host's memory; 0 bytes).
 * struct_size is that of the library; later versions append fields. */
typedef struct backplane_explained_copy {
  uint64_t struct_size;
  const char* value;
  const char* from;
  const char* to;
  const char* cause;
  const char* route;
  uint64_t bytes;
} backplane_explained_copy;

/* What an arena of a run takes in a memory: "host", a device, or "cuda pinned". struct_size is that of the library; later versions append
 * fields. */
typedef struct backplane_explained_memory {
  uint64_t struct_size;
  const char* memory;
  uint64_t bytes;
} backplane_explained_memory;

/* A snapshot of the plan that ran or was made last; before there is one, of the placement alone, without copies and memory. Nodes are
 * in the model's order. An index that does not exist gives NULL.
 * Ownership: as rule 2; all that it shows is its own, until it is destroyed. Threads: any.
 * Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_explanation(backplane_session* session,
                                                              backplane_explanation** out);
BACKPLANE_API void backplane_explanation_destroy(backplane_explanation* explanation);
BACKPLANE_API size_t backplane_explanation_node_count(const backplane_explanation* explanation);
BACKPLANE_API const backplane_explained_node* backplane_explanation_node(
    const backplane_explanation* explanation, size_t index);
BACKPLANE_API size_t backplane_explanation_copy_count(const backplane_explanation* explanation);
BACKPLANE_API const backplane_explained_copy* backplane_explanation_copy(
    const backplane_explanation* explanation, size_t index);
BACKPLANE_API size_t backplane_explanation_memory_count(const backplane_explanation* explanation);
BACKPLANE_API const backplane_explained_memory* backplane_explanation_memory(
    const backplane_explanation* explanation, size_t index);

#ifdef __cplusplus
}
#endif
