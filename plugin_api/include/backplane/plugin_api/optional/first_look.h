/* Backplane plugin ABI: an optional interface of providers whose `enumerate` costs more than a program should pay that
 * never names them, as where it opens a driver. plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which a provider's get_interface gives a bp_first_look. */
#define BP_FIRST_LOOK_INTERFACE "bp.first_look"

/* Asked before `enumerate`, where nobody named the provider and sessions choose by the scores of devices. */
typedef struct bp_first_look {
  BP_HEAD;

  /* Required. Sets *reason to NULL, and `enumerate` is called as ever; or, where no device can be there that scores
   * more than 0 or evaluates for the host, to why: the rest of a sentence that begins "it serves only when it is named: ".
   * `enumerate` is then left until somebody names the provider or wants all devices listed. Opens nothing. `self` is
   * the provider's.
   * Ownership: the text stays the plugin's, valid until `shutdown`. Threads: any. Errors: any: then `enumerate` is called.
   * Since: 1.3 */
  bp_status* (*pass_over)(void* self, const char** reason);
} bp_first_look;

#ifdef __cplusplus
}
#endif
