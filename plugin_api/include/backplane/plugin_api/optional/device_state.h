/* Backplane plugin ABI: an optional interface of providers that know how their devices stand before they are opened.
 * plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_device_states. */
#define BP_DEVICE_STATES_INTERFACE "bp.device_states"

/* How a device stands. What is not known is 0. */
typedef struct bp_device_state {
  BP_HEAD;
  uint64_t free_bytes; /* of the device's memory, now */
  uint64_t power_mw;   /* milliwatts that the device draws at work */
} bp_device_state;

/* Serves the choice of a device where users ask for the one with the least power or the most free memory. */
typedef struct bp_device_states {
  BP_HEAD;

  /* Required. Says how a device stands that `enumerate` showed; it need not be open. `self` is the provider's.
   * Ownership: fills *out, whose struct_size the host has set. Threads: any. Errors: any: then nothing is known of the
   * device. Since: 1.1 */
  bp_status* (*query)(void* self, const bp_device_info* device, bp_device_state* out);
} bp_device_states;

#ifdef __cplusplus
}
#endif
