/* Backplane plugin ABI: an optional interface of providers whose streams can do a sequence of work again, as one.
 * plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_plan_capture. */
#define BP_PLAN_CAPTURE_INTERFACE "bp.plan_capture"

/* A flag of bp_kernel_def::flags, for kernels of guests: for the same tensors in the same memory `compute` puts the same
 * work on the stream every time, and reads and writes no host memory meanwhile. Such work may be recorded. Kernels of the
 * provider's own plugin are taken to be so where it has this interface, unless they are BP_KERNEL_NOT_DETERMINISTIC
 * or BP_KERNEL_DATA_DEPENDENT. Since: 1.1 */
#define BP_KERNEL_CAPTURE 256u

/* Plugin: a sequence of work, with the memory that it works on. */
typedef struct bp_recording bp_recording;

/* Serves plans that run again and again: a part of a plan all of whose steps are on one device is recorded once, and then
 * put on the stream by one call, without a call of any kernel. The host records what has run before with the same
 * memory, so whatever a first run makes is there; between `begin` and `end` it calls nothing but `compute` and `copy`
 * (between memory of devices, or of the device and pinned), on that stream. A recording is replayed while what it works on
 * is where it was, and released before that memory, the prepared objects, and the stream. */
typedef struct bp_plan_capture {
  BP_HEAD;

  /* Required. What is put on the stream from here on is recorded and not done.
   * Ownership: none. Threads: one at a time per stream.
   * Errors: BP_UNSUPPORTED with the reason (the host goes on without), BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*begin)(bp_device* device, bp_stream* stream);

  /* Required. Ends it, also where it fails: the stream then works as before. `former` is NULL or an older recording of the
   * same steps with other memory, which no replay needs any more: the device may change it into the new one, and *out is
   * it; else it stays as it is.
   * Ownership: *out is the host's until release. Threads: one at a time per stream.
   * Errors: BP_UNSUPPORTED with the reason; BP_OUT_OF_MEMORY, or BP_CANCELLED where something beside the recording ended
   * it, after which the host tries again in other runs, a few times; BP_DEVICE_LOST; of the work: its own. Since: 1.1 */
  bp_status* (*end)(bp_device* device, bp_stream* stream, bp_recording* former, bp_recording** out);

  /* Required. Ends it and forgets what was recorded, after a call between failed: the stream works as before.
   * Ownership: none. Threads: one at a time per stream. Errors: none. Since: 1.1 */
  void (*abandon)(bp_device* device, bp_stream* stream);

  /* Required. Puts what was recorded on the stream that it was recorded on. Allocates nothing on the host.
   * Ownership: borrowed; the recording stays until the stream has passed the work. Threads: one at a time per stream.
   * Errors: as of compute. Since: 1.1 */
  bp_status* (*replay)(bp_device* device, bp_stream* stream, const bp_recording* recording);

  /* Required. Ends a recording that no stream uses any more.
   * Ownership: takes it. Threads: any. Errors: none. Since: 1.1 */
  void (*release)(bp_device* device, bp_recording* recording);
} bp_plan_capture;

#ifdef __cplusplus
}
#endif
