/* Backplane plugin ABI: an optional interface of providers that want to know of sessions. plugin_api.h does not include
 * it: who wants it does. */
#pragma once

#include "backplane/plugin_api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_session_events. */
#define BP_SESSIONS_INTERFACE "bp.sessions"

/* Tells a device of the sessions that use it. A session is ready when its kernels are created and the weights
 * of what could be planned are packed; a device can then drop what only loading needed, or fill caches. */
typedef struct bp_session_events {
  BP_HEAD;

  /* Optional. A session that uses the device is ready; no other session of the process has its `session_id`.
   * Ownership: none. Threads: any. Errors: any, which ends the session before anybody has it. Since: 1.1 */
  bp_status* (*ready)(bp_device* device, uint64_t session_id);

  /* Optional. The session has ended, with its kernels. Comes for each `ready` that succeeded.
   * Ownership: none. Threads: any. Errors: none. Since: 1.1 */
  void (*ended)(bp_device* device, uint64_t session_id);
} bp_session_events;

#ifdef __cplusplus
}
#endif
