/* Backplane plugin ABI: optional flags of kernels that serve 16-bit types in float.
 * plugin_api.h does not include it: who wants it does. */
#pragma once

#include "backplane/plugin_api/kernel.h"

/* A flag of bp_kernel_def::flags, for kernels that take float: nodes of float16 and bfloat16 are to come to this kernel in float.
 * Where the kernel would take the node if its 16-bit types were float, the host casts what the node reads, and casts back
 * what it makes for readers that want it as it was: values between two such nodes stay float, and so do those that pass
 * through nodes which only move elements. Constants are cast once. The node's results are then rounded later or not at
 * all, which is the more exact way. A kernel of the same provider for the 16-bit type itself is used where the session's option
 * `widening` is off. Hosts that do not know the flag take no notice of it. Since: 1.1 */
#define BP_KERNEL_WIDENS_HALF 512u

/* A flag beside the one above, for providers whose rewrite makes nodes that read 16-bit weights as they are. A constant that such a
 * node reads as BP_INPUT_WEIGHT is not cast before the rewrite has seen the graph: the weight is the output of a Cast
 * whose input is the constant. What still reads the Cast afterwards gets the constant in float.
 * Hosts that do not know the flag cast it beforehand, as all others. Since: 1.2 */
#define BP_KERNEL_HALF_WEIGHTS 1024u
