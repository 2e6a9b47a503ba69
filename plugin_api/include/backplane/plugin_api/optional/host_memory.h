/* Backplane plugin ABI: an optional interface of providers whose devices work on memory of the host without a copy.
 * plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_host_memory. */
#define BP_HOST_MEMORY_INTERFACE "bp.host_memory"

/* What a device does with a view.
 * READ: reads it; as long as the device has it, nobody writes it, and the host may read it too.
 * WRITE: writes all of it and may read what it wrote; what was there is lost, and while the device has it, nobody else
 * touches it. */
#define BP_VIEW_READ 1
#define BP_VIEW_WRITE 2

/* Which memory can be viewed, and when that pays. */
typedef struct bp_host_memory_caps {
  BP_HEAD;
  uint64_t alignment;   /* of the memory's address, in bytes; a power of two */
  uint64_t least_bytes; /* of less, a copy is cheaper than handing over and back; 0: never */
} bp_host_memory_caps;

/* Makes copies between the host and a device that shares its memory needless: the device gets a buffer whose bytes are
 * the host's own. A view belongs to one side at a time, to the host at first. What the host wrote before hand_over, the
 * device sees; what the device wrote before hand_back, the host sees when the stream has passed hand_back. Any number of
 * views for reading may be over the same memory; one for writing is alone. */
typedef struct bp_host_memory {
  BP_HEAD;

  /* Required. Which memory the device can view. Asked once, when it has been opened.
   * Ownership: fills *out, whose struct_size the host has set. Threads: any.
   * Errors: BP_UNSUPPORTED with the reason: the device views nothing, and values are copied. Since: 1.1 */
  bp_status* (*caps)(bp_device* device, bp_host_memory_caps* out);

  /* Required. A buffer of kind BP_MEMORY_DEVICE over `bytes` (more than 0) at `memory`, which is aligned as `caps` said.
   * `access` is a BP_VIEW_*. Touches none of the bytes but those of a view for writing.
   * Ownership: *out is the host's until view_free; the memory stays the caller's and outlives the view. Threads: any.
   * Errors: BP_UNSUPPORTED with the reason (this device views no memory after all: values are copied from then on),
   * BP_OUT_OF_MEMORY, BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*view)(bp_device* device, void* memory, uint64_t bytes, int32_t access,
                     bp_buffer** out);

  /* Required. Ends a view, whoever has it; no stream uses it any more. The memory is the host's again; if the device had a
   * view for writing, its contents are undefined.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.1 */
  void (*view_free)(bp_device* device, bp_buffer* view);

  /* Required. Puts on the stream: the view is the device's from here on. Allocates nothing.
   * Ownership: none. Threads: one at a time per stream and view. Errors: BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*hand_over)(bp_device* device, bp_stream* stream, bp_buffer* view);
  /* Required. Puts on the stream: the view is the host's from here on. The next hand_over may be on another stream, once
   * somebody has waited for this one. Allocates nothing.
   * Ownership: none. Threads: one at a time per stream and view. Errors: BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*hand_back)(bp_device* device, bp_stream* stream, bp_buffer* view);
} bp_host_memory;

#ifdef __cplusplus
}
#endif
