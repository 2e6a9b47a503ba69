/* Backplane plugin ABI: an optional interface of providers whose devices know when their work began and ended.
 * plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_device_times. */
#define BP_DEVICE_TIMES_INTERFACE "bp.device_times"

/* A piece of work that a device has done: a kernel, a copy. Times are nanoseconds of the process's monotonic clock
 * (CLOCK_MONOTONIC, std::chrono::steady_clock): a provider whose device has another clock converts. */
typedef struct bp_device_time {
  BP_HEAD;
  const char* name; /* what it was, for people: "product", "copy to the device" */
  uint64_t begin_ns;
  uint64_t end_ns;
} bp_device_time;

typedef bp_status* (*bp_device_time_sink)(void* sink_ctx, const bp_device_time* time);

/* Serves traces: beside the host's times of a node stand those of the work that it put on a stream. */
typedef struct bp_device_times {
  BP_HEAD;

  /* Required. From here on the stream notes times (`on` not 0), or no longer does and forgets those it has. Nothing is on
   * the stream. A stream that was never asked notes nothing, and costs nothing.
   * Ownership: none. Threads: one at a time per stream.
   * Errors: BP_UNSUPPORTED with the reason (a trace then has the host's times only), BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*record)(bp_device* device, bp_stream* stream, uint32_t on);

  /* Required. Shows what the stream did since the last call, oldest first, and forgets it. The host has waited for it.
   * Ownership: borrowed for the call of the sink. Threads: one at a time per stream.
   * Errors: what the sink returns, BP_DEVICE_LOST. Since: 1.1 */
  bp_status* (*take)(bp_device* device, bp_stream* stream, void* sink_ctx,
                     bp_device_time_sink sink);
} bp_device_times;

#ifdef __cplusplus
}
#endif
