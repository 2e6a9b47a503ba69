/* Backplane plugin ABI: an optional interface of providers whose devices work on memory that the program itself made by
 * the device's native API. plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_import_memory. */
#define BP_IMPORT_MEMORY_INTERFACE "bp.import_memory"

/* What the device's work may do with imported memory: read it; read and write it. */
#define BP_IMPORT_READ 1
#define BP_IMPORT_WRITE 2

/* Makes memory of the program's own a feed or fetch of a run, without a copy: the device gets a buffer over it, which the
 * host uses as one of buffer_alloc, and nothing else of the memory than the bytes that it asked for. The memory stays the
 * program's: it is neither freed nor resized before buffer_release, and whoever else works on it puts that in order with
 * the runs, by waiting or by a stream that both work on (an option of the provider's names it). So an import puts nothing
 * on a stream, waits for none, and touches no byte. */
typedef struct bp_import_memory {
  BP_HEAD;

  /* Required. A buffer of kind BP_MEMORY_DEVICE over memory of the device's API: `memory` is what BP_NATIVE_BUFFER would
   * give of it (cl_mem, CUdeviceptr ...), never 0, and offsets of tensors in the buffer count from its beginning. The host
   * will use `bytes` (more than 0) from `offset` on. Checked here, as far as the API can tell: that the memory is alive, of
   * this device (and context), and has these bytes; that they begin at a multiple of the alignment which `heaps` gives for
   * BP_MEMORY_DEVICE, since kernels rely on it; and what may be done with it: *access is BP_IMPORT_READ, or BP_IMPORT_READ |
   * BP_IMPORT_WRITE. Memory that may not be read is refused.
   * Ownership: *out is the host's until buffer_release; the provider keeps no more of the memory than a reference of its
   * API. The same memory may be imported several times. Threads: any.
   * Errors: BP_INVALID_ARGUMENT with the reason (not this device's, too small, aligned too little ...), BP_UNSUPPORTED with
   * the reason (this device imports none), BP_OUT_OF_MEMORY, BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*buffer_import)(bp_device* device, uint64_t memory, uint64_t offset, uint64_t bytes,
                              int32_t* access, bp_buffer** out);

  /* Required. Ends a buffer of buffer_import; no stream uses it any more. The memory and its contents stay.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.1 */
  void (*buffer_release)(bp_device* device, bp_buffer* buffer);
} bp_import_memory;

#ifdef __cplusplus
}
#endif
