/* The layout of the plugin ABI is what it was: compiling this file is the test, for the compiler and target at hand.
 * make_layout.py says how layout_v1.inc grows. */
#include <assert.h>
#include <string.h>

#include "backplane/plugin_api.h"
#include "backplane/plugin_api/optional/device_state.h"
#include "backplane/plugin_api/optional/device_times.h"
#include "backplane/plugin_api/optional/first_look.h"
#include "backplane/plugin_api/optional/host_memory.h"
#include "backplane/plugin_api/optional/import_memory.h"
#include "backplane/plugin_api/optional/plan_capture.h"
#include "backplane/plugin_api/optional/session.h"
#include "backplane/plugin_api/optional/widening.h"

/* A struct with BP_HEAD (frozen 0) may have grown since its line was written. */
#define BP_LAYOUT_STRUCT(type, bytes, frozen) \
  static_assert((frozen) ? sizeof(type) == (bytes) : sizeof(type) >= (bytes), "size of " #type);
#define BP_LAYOUT_FIELD(type, field, offset, bytes)                                \
  static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field); \
  static_assert(sizeof(((type*)0)->field) == (bytes), "size of " #type "." #field);
#define BP_LAYOUT_CONSTANT(name, value) \
  static_assert((long long)(name) == (value), "value of " #name);
#define BP_LAYOUT_TEXT(name, value) \
  static_assert(sizeof(name) == sizeof(value), "length of " #name);

#include "layout_v1.inc"

#undef BP_LAYOUT_TEXT
#define BP_LAYOUT_TEXT(name, value) \
  if (strcmp(name, value) != 0) return 1;
#undef BP_LAYOUT_STRUCT
#undef BP_LAYOUT_FIELD
#undef BP_LAYOUT_CONSTANT
#define BP_LAYOUT_STRUCT(type, bytes, frozen)
#define BP_LAYOUT_FIELD(type, field, offset, bytes)
#define BP_LAYOUT_CONSTANT(name, value)

int main(void) {
#include "layout_v1.inc"
  return 0;
}
