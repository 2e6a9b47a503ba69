/* Custom operators that the caller's own process defines, and libraries of them that are let go. Part of backplane.h,
 * whose conventions hold here. Libraries are given by path: backplane_options_register_custom_ops.
 *
 * Operators are described as a plugin of plugin_api.h describes them, a `bp_plugin` with schemas and kernels: all that
 * a library can say, the process can say too, and its functions are called the same way. One thing more: `kernels_for`
 * is called with "" for the device by which the host evaluates constants, whatever provider that is of; kernels that it
 * shows then work on plain host memory. In C++, host/custom_op.hpp makes such a description of lambdas and classes. */
#pragma once

#include "backplane/backplane.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bp_plugin;

/* Adds the operators of a description to the sessions and graphs that are made with these options. Its `init` is called
 * by the first call that is given it, its `shutdown` when the last one of these options, and of what was made with
 * them, has ended; it may be given again then. Where one of its operators is one of ONNX's, or of a provider, it goes
 * before theirs in sessions whose option "replace_ops" names it, and behind them in others.
 * Ownership: `plugin` stays the caller's, valid and unchanged until its `shutdown`. Threads: one per options.
 * Errors: BACKPLANE_INVALID_ARGUMENT (a broken description, one that brings providers), what `init` returns. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_add_custom_ops(backplane_options* options,
                                                                 const struct bp_plugin* plugin);

/* Lets a library of custom operators go: it is shut down, unless another environment has it too, and whoever registers
 * its path again starts it again, from a new file if there is one. The old file's code stays mapped.
 * Ownership: none. Threads: any.
 * Errors: BACKPLANE_NOT_FOUND (not loaded), BACKPLANE_INVALID_ARGUMENT (a session made with it lives; it brings a
 * provider). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_environment_unload_custom_ops(
    backplane_environment* environment, const char* path);

#ifdef __cplusplus
}
#endif
