/* Backplane plugin ABI: versions, struct heads, status codes, strings. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. A change that breaks a built plugin raises the major number and gets an
 * entry symbol of its own; an addition raises the minor number. */
#define BP_ABI_MAJOR 1
#define BP_ABI_MINOR 3

/* The first two fields of every struct that may grow. `struct_size` is sizeof as its writer compiled it.
 * The low 16 bits of `struct_flags` may be ignored by a reader that does not know them; a reader that finds
 * an unknown bit among the high 16 must refuse the struct with BP_UNIMPLEMENTED. */
#define BP_HEAD         \
  uint32_t struct_size; \
  uint32_t struct_flags
#define BP_MUST_UNDERSTAND_MASK 0xFFFF0000u

/* True when the struct at `pointer` was written by somebody who knew `field`. */
#define BP_HAS(type, pointer, field) \
  ((pointer)->struct_size >= offsetof(type, field) + sizeof(((type*)0)->field))

/* True when the table at `pointer` has the function `field` and it is set. */
#define BP_HAS_FN(type, pointer, field) (BP_HAS(type, pointer, field) && (pointer)->field != NULL)

/* What a status says, by what its receiver should do next. Receivers treat an unknown code as BP_INTERNAL. */
typedef int32_t bp_code;
#define BP_OK 0               /* done */
#define BP_INVALID_ARGUMENT 1 /* the caller broke the contract: mend the caller */
#define BP_UNSUPPORTED 2      /* not handled, with the reason: try the next kernel or provider */
#define BP_NOT_FOUND 3        /* there is no such thing */
#define BP_OUT_OF_MEMORY 4    /* free some and try again; the object stays usable */
#define BP_DEVICE_LOST 5      /* close the device and open it again; nothing on it survives */
#define BP_CANCELLED 6        /* somebody asked for it */
#define BP_FAILED 7           /* these input values cannot be computed with; other ones can */
#define BP_INTERNAL 8         /* a bug of the callee */
#define BP_UNIMPLEMENTED 9    /* an optional function or an unknown must-understand bit */
#define BP_INCOMPATIBLE 10    /* versions do not fit; both are in the message */
#define BP_TIMEOUT 11         /* the time ran out; nothing else happened */

/* The outcome of a call that can fail: NULL is success. Made by the host's `status_new` alone, so that it
 * outlives the plugin and is freed on the heap it came from. The receiver owns it. */
typedef struct bp_status bp_status;

/* A run of UTF-8 bytes, not terminated. Frozen: it may stand in arrays. */
typedef struct bp_str {
  const char* data;
  uint64_t size;
} bp_str;

/* An option's name and its value. Frozen. */
typedef struct bp_key_value {
  bp_str key;
  bp_str value;
} bp_key_value;

/* Opaque objects. The one who creates an object destroys it, through the table it came from. */
typedef struct bp_device bp_device;         /* plugin: an opened device */
typedef struct bp_buffer bp_buffer;         /* plugin: memory of a device */
typedef struct bp_stream bp_stream;         /* plugin: an in-order queue of a device */
typedef struct bp_fence bp_fence;           /* plugin: a counter that streams signal and wait for */
typedef struct bp_kernel bp_kernel;         /* plugin: an operator compiled for one node */
typedef struct bp_prepared bp_prepared;     /* plugin: a kernel made ready for one set of shapes */
typedef struct bp_graph bp_graph;           /* host: a graph as a provider may see it */
typedef struct bp_node bp_node;             /* host: a node of such a graph */
typedef struct bp_value_info bp_value_info; /* host: what is known of a value before any run */
typedef struct bp_rewrite bp_rewrite;       /* host: an editor over the nodes given to a device */
typedef struct bp_threads bp_threads;       /* host: the session's share of the thread pool */

#ifdef __cplusplus
}
#endif
