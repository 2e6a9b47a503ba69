/* Runs with options, bindings that plan ahead, saved values, and what a session says of its memory. A part of backplane.h, which is
 * the file to include; its conventions hold here. */
#pragma once

#include "backplane/backplane.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct backplane_run_options backplane_run_options;
typedef struct backplane_cancel backplane_cancel;

/* ---- Cancelling ---- */

/* A switch that ends runs: those whose options hold it end with BACKPLANE_CANCELLED and leave their session usable. It stays on
 * until it is reset, so a run that begins later ends at once.
 *
 * How soon a run ends, for this and for the deadline of timeout_ms alike: on a processor within the kernel that is running. Devices
 * with streams do all that they were given, and the run returns when they have, since it is in the caller's memory: so the host
 * gives a run that has a deadline or may be cancelled no more than two batches of steps ahead, each of about 2 ms by the time that
 * the last ones took, of one step at the least and 16 at the most. Steps that a device recorded are one piece of work; they are
 * given to it one by one, however, where the plan's last run of this kind took more than 50 ms or there was none. Other runs have
 * no such limit, and it costs them nothing. Runs with synchronize=false end so while the call lasts, and not afterwards. What the
 * fetches of a run hold that was ended is not defined.
 * Ownership: as rule 2; run options that hold it keep it alive. Threads: any, all functions at any time.
 * Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_cancel_create(backplane_cancel** out);
BACKPLANE_API void backplane_cancel_destroy(backplane_cancel* cancel);
BACKPLANE_API backplane_status* backplane_cancel_request(backplane_cancel* cancel);
BACKPLANE_API backplane_status* backplane_cancel_reset(backplane_cancel* cancel);
/* 1 between a request and a reset, else 0. */
BACKPLANE_API int32_t backplane_cancel_is_requested(const backplane_cancel* cancel);

/* ---- Options of a run ----
 *
 * tag                   a name for the run: in traces and in the log                                     ""
 * log_level             least important messages of this run that are logged; "": the session's          ""
 * only_path_to_fetches  true: only nodes that the fetches need are run; false: all that the model's      true
 *                       outputs need
 * shrink_arenas         true: after the run, memory of the session that no run uses, and what freed      false
 *                       values left for later ones, is given back
 * timeout_ms            the time that the run may take, counted from its call, as a decimal number; past  ""
 *                       it the run ends as one that is cancelled does, with BACKPLANE_TIMEOUT naming
 *                       the node, and so does one that is done later than that. Making a plan counts,
 *                       but is not cut short. "": any time
 * synchronize           false: the call may return while devices still work. Then feeds must stay and    true
 *                       fetches must not be read until backplane_session_synchronize
 * entry.NAME            a string of the caller's: shown with the run in traces
 *
 * Options may serve many runs, also at a time. Changing them while a run uses them is an error, and so is a run while they are
 * being changed: nothing is changed, nothing is run.
 * Ownership: as rule 2; strings are copied. Threads: as said. Errors: BACKPLANE_INVALID_ARGUMENT (key, value; in use),
 * BACKPLANE_NOT_FOUND (get: an entry that is not set), BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_run_options_create(backplane_run_options** out);
BACKPLANE_API void backplane_run_options_destroy(backplane_run_options* options);
BACKPLANE_API backplane_status* backplane_run_options_set(backplane_run_options* options,
                                                          const char* key, const char* value);
BACKPLANE_API backplane_status* backplane_run_options_get(backplane_run_options* options,
                                                          const char* key, backplane_string** out);
/* `cancel` may be NULL: nobody cancels. */
BACKPLANE_API backplane_status* backplane_run_options_set_cancel(backplane_run_options* options,
                                                                 backplane_cancel* cancel);

/* ---- Watching nodes ---- */

/* A node that runs, as a callback sees it: before its kernel (`outputs` is NULL) and after. Values in a device's memory are shown as
 * copies on the host. An input or output that the node leaves out is NULL; a value whose elements nobody reads, or in a
 * provider's own format, has no data. struct_size is that of the library; later versions append fields.
 * Ownership: everything is borrowed for the call. */
typedef struct backplane_node {
  uint64_t struct_size;
  const char*
      name; /* a name of the model; of a node that a provider made of several, the provider's */
  const char* op_type;
  const char* domain;
  const char* provider;
  uint64_t input_count;
  const backplane_value* const* inputs;
  uint64_t output_count;
  const backplane_value* const* outputs;
} backplane_node;

/* Other than 0 stops the run, which returns BACKPLANE_CANCELLED naming the node. Called by the run's thread; it may ask the values and must
 * not use the session. */
typedef int32_t (*backplane_node_fn)(void* context, const backplane_node* node);

/* struct_size is sizeof(backplane_node_callbacks); either function may be NULL. */
typedef struct backplane_node_callbacks {
  uint64_t struct_size;
  void* context;
  backplane_node_fn before;
  backplane_node_fn after;
} backplane_node_callbacks;

/* The functions to call for every node that runs; NULL: none. Streams wait after each node, so such runs are slow. What is evaluated
 * while planning is not run, and views of other values cost no node. Providers replace nodes by nodes of their own: a callback that is
 * to see the model's own nodes wants a session with the options optimization=none and
 * disabled_passes=provider_rewrites,provider_claims (where the version knows these), or values by backplane_session_save.
 * Ownership: copied; context is borrowed until the options are destroyed or others are set. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_run_options_set_callbacks(
    backplane_run_options* options, const backplane_node_callbacks* callbacks);

/* ---- Runs ---- */

/* backplane_session_run with options, which may be NULL.
 * Ownership: as backplane_session_run. Threads: as it, too. Errors: its, BACKPLANE_CANCELLED and BACKPLANE_TIMEOUT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_run_with(
    backplane_session* session, const backplane_run_options* options, const char* const* feed_names,
    const backplane_value* const* feeds, size_t feed_count, const char* const* fetch_names,
    backplane_value** fetches, size_t fetch_count);

/* A feed or a fetch of backplane_session_run_tensors. struct_size is sizeof(backplane_tensor) in every element of an array, and elements
 * lie as far apart; later versions append fields. What is not used is 0 or NULL.
 *
 * name    of a value of the model; NULL: the input (of BACKPLANE_INPUTS) or output that has the element's index in the array
 * value   feed: any value; NULL: a dense tensor that dtype to data describe. fetch: the value to be written; NULL: one is made,
 *         or with `data` given that memory is written
 * dtype   element type, a number of TensorProto.DataType; not that of strings, which are fed as a value
 * rank, dims   in elements, row-major
 * data, bytes  the elements, packed as in backplane_value_borrow, and the size of the memory, of which more may be there than
 *         the tensor needs. Of a feed they are only read
 * kind    of a fetch, after the run: BACKPLANE_KIND_TENSOR or another; of a feed unused
 *
 * After a run that succeeded a fetch without `data` of the caller's describes what was made: `value` owns it; dtype, rank, dims, data and
 * bytes are as backplane_value_dtype and the others give them of it (data is NULL for strings, and on a device; of
 * anything but a tensor they are 0 and NULL). A fetch with `data` must be told as what the run makes; only `kind` is written.
 * After a run that failed fetches are as they were. */
typedef struct backplane_tensor {
  uint64_t struct_size;
  const char* name;
  backplane_value* value;
  void* data;
  uint64_t bytes;
  const int64_t* dims;
  uint64_t rank;
  int32_t dtype;
  int32_t kind;
} backplane_tensor;

/* backplane_session_run_with in one call: for callers to whom each call costs something, such as interpreters, and for those who want no
 * object for each tensor that they feed. `options` may be NULL. At least one value is fetched; inputs that have a default may be
 * left out. A feed that lies in a fetch's memory is as for backplane_session_run.
 * Ownership: arrays and all they point at are borrowed for the call. A `value` that was made is the caller's, who ends it by
 * backplane_value_destroy; dims and data are its own, and live as long. A `value` that was given stays whose it was.
 * Threads: any number at a time on one session, each with arrays of its own; many may read the same memory.
 * Errors: as backplane_session_run_with; BACKPLANE_INVALID_ARGUMENT also for a struct_size that is too small or not the same in all
 * elements, an index without an input or output, memory that is too small or not aligned to its elements (all name the element or the
 * value), and for memory in a run with synchronize=false, which goes on after the call. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_run_tensors(
    backplane_session* session, const backplane_run_options* options, const backplane_tensor* feeds,
    size_t feed_count, backplane_tensor* fetches, size_t fetch_count);

/* Waits for everything that runs with synchronize=false left going on.
 * Ownership: none. Threads: any. Errors: what that work failed with. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_synchronize(backplane_session* session);

/* Values that are readable after every run, whatever it fetches: any values of the model. Replaces what was saved before; `count` 0
 * saves nothing any more. Values that graph passes would remove are kept: such runs have a program of their own.
 * session_saved gives what the last run by name saved: NULL before the first. Runs of bindings save apart from those, see
 * backplane_binding_saved.
 * Ownership: names are copied; *out as rule 2, it shares the elements. Threads: any; runs that have begun are not changed.
 * Errors: BACKPLANE_INVALID_ARGUMENT names the value and the nearest known ones. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_save(backplane_session* session,
                                                       const char* const* names, size_t count);
BACKPLANE_API backplane_status* backplane_session_saved(backplane_session* session,
                                                        const char* name, backplane_value** out);

/* What lies where, as JSON: {"arenas": {"sets","bytes","peak_bytes"}, "plans": [{"inputs","outputs","arenas": {memory:
 * {"bytes","peak_bytes","peak_step"}},"steps","values": [{"value","memory","place","bytes","buffer","offset","first_step","last_step"}],
 * "workspaces"}],"weights": {"bytes": {memory: n},"list": [{"of","kind","memory","bytes"}]}}. A set is the arenas of one run in
 * flight; all plans of a session share them. A plan is the one of its inputs and outputs that ran or was planned last; memory
 * "model" is the model's own bytes.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_memory(backplane_session* session,
                                                         backplane_string** out);

/* ---- Bindings that plan ahead ----
 * resize all inputs that are to change, plan, fill the inputs, then run as often as wanted: runs then only compute. A run after a resize
 * plans by itself. Using a binding from two threads at a time is an error. */

/* Makes an input a tensor of the binding's own with these dims, zeroed. Dims that the model fixes cannot change.
 * Ownership: dims are copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_resize(backplane_binding* binding,
                                                         const char* name, const int64_t* dims,
                                                         size_t rank);

/* Does all shape work, prepares kernels, and gives memory to a run, its inputs and its outputs. Inputs that are neither bound nor resized
 * become the binding's own: their unknown first dimension, a batch, counts as 1, symbols are as in other inputs. Any
 * other unknown dimension is an error that names it.
 * Ownership: none. Threads: one. Errors: as backplane_binding_run. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_plan(backplane_binding* binding);

/* The tensor of an input, to be filled in place; the value that was bound, where one was.
 * Ownership: *out belongs to the binding; its data stays where it is until the next resize of the input. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT (unknown name; a shape that resize must give). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_input(backplane_binding* binding,
                                                        const char* name, backplane_value** out);

/* The run makes the output in the memory of a device of the session ("fakegpu:1"; "fakegpu" where that provider has one device in
 * the session) and copies nothing back; backplane_value_copy_to_host does, when asked for. The output may be an input of another
 * run over the same device. A device on host memory is like backplane_binding_bind_output with NULL. Memory of the caller's own on
 * a device is given by backplane_value_borrow_on and backplane_binding_bind_output.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT names the devices that there are. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_bind_output_to(backplane_binding* binding,
                                                                 const char* name,
                                                                 const char* device);

/* The value that the last run wrote to an output of the binding's own becomes the caller's: the next run makes another, in other memory.
 * So the values of several runs are kept, and one run's output is an input of the next. NULL where no run has written it.
 * Ownership: *out as rule 2; what backplane_binding_output gave of the name is empty until the next run. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT (an output that is not bound, or that is a value of the caller's), BACKPLANE_OUT_OF_MEMORY.
 * Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_take_output(backplane_binding* binding,
                                                              const char* name,
                                                              backplane_value** out);

/* Forget what is bound as inputs, or as outputs: as of a new binding. The others stay as they are.
 * Ownership: what backplane_binding_input or backplane_binding_output gave ends. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT.
 * Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_clear_inputs(backplane_binding* binding);
BACKPLANE_API backplane_status* backplane_binding_clear_outputs(backplane_binding* binding);

/* backplane_binding_run with options, which may be NULL.
 * Ownership: as backplane_binding_run. Threads: one. Errors: its, BACKPLANE_CANCELLED and BACKPLANE_TIMEOUT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_run_with(backplane_binding* binding,
                                                           const backplane_run_options* options);

/* What the last run of the binding saved under the name; see backplane_session_save.
 * Ownership: *out belongs to the binding, until its next run. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_saved(const backplane_binding* binding,
                                                        const char* name,
                                                        const backplane_value** out);

#ifdef __cplusplus
}
#endif
