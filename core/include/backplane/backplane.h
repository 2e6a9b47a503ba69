/* Backplane's host interface for C (C99 and later): load a model, run it, ask where everything went.
 *
 * Conventions
 * 1. A function that can fail returns a backplane_status*: NULL is success; any other is to be read with
 *    backplane_status_message and ended with backplane_status_free. On failure every out parameter is NULL or 0.
 * 2. backplane_X_create gives an object that the caller ends with backplane_X_destroy; destroying NULL does nothing.
 *    A session keeps its environment alive; values and bindings keep what they need alive: order does not matter.
 * 3. Strings are UTF-8 and end with NUL. What is passed in is borrowed for the call, unless the function says more.
 *    What is returned as const char* belongs to the object it was asked of, and lives as long as that one.
 * 4. Dims are in elements, row-major; -1 stands for a dimension that is unknown until a run.
 * 5. Threads: an environment, a session and a status may be used from any threads at a time. Options, bindings and
 *    values are used by one thread at a time, except that many runs may read the same value.
 * 6. No function throws, exits, or writes to stdout or stderr; logging goes to the environment's sink.
 * 7. In the child of a fork, what the parent made is only to be destroyed. New objects work, unless another thread was within
 *    a function of this list at the time of the fork.
 *
 * Each function has the labels Ownership, Threads, Errors and Since. "as rule N" points at the list above. Since is the first
 * release that has the function. There is none yet: 0.1 is what this header comes to be, and what it was first
 * (tests/fixtures/frozen_host_v1 of the source tree) had fewer functions under the same number. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stands before what the library exports. */
#define BACKPLANE_API __attribute__((visibility("default")))

typedef struct backplane_status backplane_status;
typedef struct backplane_string backplane_string;
typedef struct backplane_environment backplane_environment;
typedef struct backplane_options backplane_options;
typedef struct backplane_session backplane_session;
typedef struct backplane_binding backplane_binding;
typedef struct backplane_value backplane_value;

/* Codes of a status, by what to do next. */
#define BACKPLANE_OK 0
#define BACKPLANE_INVALID_ARGUMENT 1 /* mend the request, the model or the feeds */
#define BACKPLANE_UNSUPPORTED 2      /* nobody handles it; the reasons are in the message */
#define BACKPLANE_NOT_FOUND 3
#define BACKPLANE_OUT_OF_MEMORY 4 /* the session stays usable */
#define BACKPLANE_DEVICE_LOST 5   /* destroy the session and make a new one */
#define BACKPLANE_CANCELLED 6
#define BACKPLANE_FAILED 7 /* these input values cannot be computed with */
#define BACKPLANE_INTERNAL 8
#define BACKPLANE_UNIMPLEMENTED 9
#define BACKPLANE_INCOMPATIBLE 10
#define BACKPLANE_TIMEOUT 11
#define BACKPLANE_FILE_FAILED \
  12 /* a file could not be written (a full disk), or changed while it was in use */

/* The library's version, "major.minor.patch".
 * Ownership: static. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API const char* backplane_version(void);

/* Removes the files that the library is writing and that are not in their places yet: saved plans and models, caches.
 * For a program that a signal ends: the library has no handlers of its own. It takes no lock, allocates nothing, and may
 * be called from a handler. What is written to these files afterwards is an error. What is left where no handler
 * could run goes when the same file is next written.
 * Ownership: none. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API void backplane_remove_unfinished_files(void);

/* Writes what the calling thread computes, as "node 'NAME' (OP) on DEVICE", and a zero, cut to `size` bytes; "" where it
 * computes nothing for a run. A thread of the pool computes what the run does whose loop it has joined. For a handler of
 * signals that says where a plugin crashed: it takes no lock and allocates nothing.
 * Ownership: none. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API void backplane_describe_work(char* text, size_t size);

/* A status's code and text, and its end.
 * Ownership: status_free takes it. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API int32_t backplane_status_code(const backplane_status* status);
BACKPLANE_API const char* backplane_status_message(const backplane_status* status);
BACKPLANE_API void backplane_status_free(backplane_status* status);

/* A text that a function made: its bytes (NUL-terminated), their number without the NUL, and its end.
 * Ownership: as rule 2. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API const char* backplane_string_data(const backplane_string* string);
BACKPLANE_API uint64_t backplane_string_size(const backplane_string* string);
BACKPLANE_API void backplane_string_destroy(backplane_string* string);

/* ---- Options ----
 * One kind of object holds options of environments and sessions: keys as in configuration files, dotted. The keys of
 * an environment start with "environment."; the others are a session's. A key or value that nobody knows is an error
 * at once, which names the nearest known one.
 *
 * environment.threads              threads of the pool, the caller's included; 0: as many as processors   0
 * environment.spinning             true | false: idle threads look for work for a while, then sleep   true
 * environment.log_level            trace | debug | info | warning | error | off                           warning
 * environment.plugin_path          directories to search before the default one, separated by ':'
 * environment.plugin_exclude       plugin files that are not loaded, separated by ':'
 * environment.custom_ops           libraries of custom operators of every session, separated by ':'
 * threads                          threads of a session's loops; 0: the pool's                            0
 * providers                        names in order of preference, separated by ','; "auto": all with a     auto
 *                                  device, by score; explain remarks whom that leaves out, and why. A device that is
 *                                  there and does not open is left out with a warning; it is an error where a rule
 *                                  names it, or with a precision or fallback=forbid
 *                                  NAME alone is a provider's best device: of the highest score, then with
 *                                  memory of its own, then with the most, then the first; others are asked for as
 *                                  NAME:1 (by index), NAME:fastest, NAME:least_power,
 *                                  NAME:most_memory, NAME:name=PATTERN, or all of them: NAME:all
 *                                  NAME? (NAME?:1 ...) is optional: where it is not there it is left out (with a
 *                                  warning where it is there and does not open), and so is what
 *                                  rules, limits and options say of it; explain remarks that, and why
 * provider.NAME.OPTION             an option of a provider, as `backplane providers --options` lists them
 * fallback                         allow | warn | forbid: a node that no listed provider takes            warn
 * placement                        priority | cost: by the order of providers, or by what nodes and         priority
 *                                  copies cost together
 * copy_rates                       file of the copy rates that placement=cost measures, or "off"          auto
 * casts                            FROM>TO, separated by ',': element types that nodes may be computed in
 *                                  where a provider has the operator but not its type
 * widening                         true | false: nodes of float16 and bfloat16 are computed in float where a  true
 *                                  provider's kernels ask for it (the CPU provider's do)
 * unused_rules                     allow | warn | error: rules of placement that do nothing               warn
 * precision                        fp32 | tf32 | fp16 | bf16                                              fp32
 * optimization                     none | basic | extended | all                                          all
 * disabled_passes                  names of passes, separated by ',': fold_constants, inline_constant_if,
 *                                  eliminate_identities, capture_loop_invariants, unify_shape_reads,
 *                                  merge_common_subexpressions, eliminate_dead_nodes, provider_rewrites,
 *                                  provider_claims
 * enabled_passes                   likewise: run below their optimization level too
 * deterministic                    true | false                                                           false
 * denormals_as_zero                true | false: in runs the host's threads take numbers below the        false
 *                                  normal ones (2^-126 of a float) as 0, which is much faster where a model has many;
 *                                  planning does not, and devices with processors of their own do as they do
 * execution_mode                   sequential | parallel: steps that do not depend on each other    sequential
 *                                  run at the same time; results are the same to the bit
 * inter_op_threads                 threads that run such steps; 0: as many as `threads`              0
 * custom_ops                       libraries of custom operators, separated by ':'
 * replace_ops                      operators of ONNX and of providers that custom ones go before, separated by ',';
 *                                  "*" for all; for others custom ones serve where the provider has no kernel
 * place                            rules PATTERN=PROVIDER, separated by ';' (see add_placement)
 * dim.NAME                         the size of a symbolic dimension
 * dim_denotation.NAME              the size of dimensions with a denotation, such as DATA_BATCH
 * plan_cache                       plans kept at most, one for each set of input shapes; 0: 16, and          0
 *                                  devices of the host's memory alone up to 256, of 4,096 steps together
 * external_data                    for a model given as bytes: the folder of its external data, or the file that it
 *                                  was read from. A model given by its path has them beside it. Data cannot lie
 *                                  elsewhere, be it by links, than below that folder or where the file, all its
 *                                  links followed, lies: caches of downloads keep models and data as such links
 * execution_order                  default | priority: which of the orders that the graph allows          default
 * optimized_model_path             file to save the model to after optimization. Up to level basic it is plain ONNX.
 *                                  Above that it holds what providers made of it: only the same device can load it,
 *                                  and its metadata say so
 * profile                          true | false: collect a span for every node and copy                   false
 * save                             values that are readable after every run, separated by ';'; see
 *                                  backplane_session_save
 * log_level                        as environment.log_level, of one session; environment: as that is      environment
 * memory_pattern                   true | false: values of a run share memory by their lifetimes          true
 * arena                            true | false: a run's memory is kept for the next run                  true
 * zero_copy                        true | false: devices that share the host's memory work on inputs and   true
 *                                  outputs where they lie, where it is aligned as they need it
 * capture                          auto | off: a device that can records the work of a plan that runs      auto
 *                                  again with the same memory, and does it again as one; explain says what
 * memory_limit                     bytes (or with KiB, MiB, GiB) that the session may take; 0: any        0
 * memory_limit.NAME                likewise on a device or provider NAME, or of "host" memory. What does not fit on a
 *                                  device goes to the next one, latest nodes first, unless fallback is forbid
 * options_from_model               true | false: metadata "backplane.option.KEY" of the model set KEY,    false
 *                                  where nobody else did; never files, plugins or providers' options
 * saved_plan                       file of a saved plan (see session_save_plan) to open the session with
 * save_plan                        file to save the plan to once the session is created
 * path.NAME.KEY                    a path through the model, see session_run_path; KEY is inputs, outputs,
 *                                  providers (separated by ','), backup (a provider | none | auto), threads,
 *                                  precision, power or memory (low | normal | high)
 * entry.KEY                        any text, kept with the session: see session_option
 */

/* Ownership: as rule 2. Threads: one. Errors: BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_create(backplane_options** out);
BACKPLANE_API void backplane_options_destroy(backplane_options* options);

/* Sets a key; what was set before is replaced.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT (key, value). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_set(backplane_options* options, const char* key,
                                                      const char* value);

/* Reads a configuration file (TOML; tables become dotted keys) or text; later keys replace earlier ones. Relative
 * paths in a file are taken from its folder.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_NOT_FOUND, BACKPLANE_INVALID_ARGUMENT (file, line, key). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_read_file(backplane_options* options,
                                                            const char* path);

/* Takes what the environment variables BACKPLANE_CONFIG, BACKPLANE_PROVIDERS and BACKPLANE_PLUGIN_PATH say.
 * Ownership: copied. Threads: one. Errors: as read_file. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_read_environment(backplane_options* options);

/* Appends a provider to the order of preference, with options as pairs key, value ...; `count` pairs. A device
 * other than the provider's best is asked for by its index: "fakegpu:1". "fakegpu?" is optional, see "providers".
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_append_provider(backplane_options* options,
                                                                  const char* name,
                                                                  const char* const* keys,
                                                                  const char* const* values,
                                                                  size_t count);

/* Adds a library of custom operators; it is loaded when a session is created.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_register_custom_ops(backplane_options* options,
                                                                      const char* path);

/* Adds a rule: nodes that fit `pattern` go to `provider`, or nowhere. A pattern is a node name with '*' and '?',
 * "op:NAME", "domain:NAME", or "between:VALUE..VALUE" (all nodes on paths from the first value to the second).
 * The first rule that fits a node counts.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_add_placement(backplane_options* options,
                                                                const char* pattern,
                                                                const char* provider);

/* What a key is set to, or its default.
 * Ownership: as rule 2. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT (key), BACKPLANE_NOT_FOUND (a key with a
 * NAME in it that is not set). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_get(const backplane_options* options,
                                                      const char* key, backplane_string** out);

/* Contents of external data in memory, by the location that the model gives them; they come before files.
 * Ownership: the bytes are borrowed and must stay until sessions with these options are destroyed. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_options_add_external_data(backplane_options* options,
                                                                    const char* location,
                                                                    const void* data,
                                                                    uint64_t bytes);

/* ---- Environment ---- */

/* Receives a line of the log: a BP_LOG_* level (0 trace .. 4 error) and its text. Called from any thread, maybe with the
 * library's locks held: it calls no function of the library. */
typedef void (*backplane_log_fn)(void* context, int32_t level, const char* message);

/* What sessions share: log, thread pool, loaded plugins, packed weights. `options` may be NULL. Without a `log` sink,
 * lines go to stderr.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_environment_create(const backplane_options* options,
                                                             backplane_log_fn log,
                                                             void* log_context,
                                                             backplane_environment** out);
BACKPLANE_API void backplane_environment_destroy(backplane_environment* environment);

/* The least important messages that are logged from now on, as the option "environment.log_level" names them; sessions
 * with a level of their own keep it.
 * Ownership: none. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_environment_set_log_level(
    backplane_environment* environment, const char* level);

/* Loads a library of custom operators for all sessions that are created from now on.
 * Ownership: copied. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_INCOMPATIBLE (the file and why).
 * Since: 0.1 */
BACKPLANE_API backplane_status* backplane_environment_register_custom_ops(
    backplane_environment* environment, const char* path);

/* Every plugin file found and what became of it, as JSON: the form of `backplane providers --json`, with the options
 * that each provider takes.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_environment_providers(backplane_environment* environment,
                                                                backplane_string** out);

/* ---- Values ---- */

/* A dense tensor of `dtype` (a number of ONNX's TensorProto.DataType) with memory of its own, zeroed.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT, BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_create(int32_t dtype, const int64_t* dims,
                                                       size_t rank, backplane_value** out);

/* A dense tensor over the caller's memory, `bytes` of it; too few is an error. Not for strings. A bool is a byte, 0 or 1:
 * any other is read as it is, by each kernel in its own way.
 * Ownership: the memory stays the caller's and must outlive the value and the runs that use it.
 * Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_borrow(int32_t dtype, const int64_t* dims,
                                                       size_t rank, void* data, uint64_t bytes,
                                                       backplane_value** out);

/* Likewise over memory that is only read, a mapped file for one: an input, and never an output (a run that is given it as
 * one fails, and so does backplane_value_write_numbers). What backplane_value_data gives of it is to be read alone.
 * Ownership: as backplane_value_borrow. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_borrow_const(int32_t dtype, const int64_t* dims,
                                                             size_t rank, const void* data,
                                                             uint64_t bytes, backplane_value** out);

/* A value from a serialized proto: kind "tensor", "sequence", "optional" or "map"; and back.
 * Ownership: copied. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_parse(const char* kind, const void* data,
                                                      uint64_t bytes, backplane_value** out);
BACKPLANE_API backplane_status* backplane_value_serialize(const backplane_value* value,
                                                          backplane_string** out);
BACKPLANE_API void backplane_value_destroy(backplane_value* value);

/* The value's ONNX type string ("tensor(float)", "seq(tensor(int64))").
 * Ownership: as rule 3. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API const char* backplane_value_type(const backplane_value* value);

/* Of a tensor: element type, rank, dims (rank entries), elements in host memory (NULL for strings), their bytes. Of
 * anything else: 0, 0, NULL, NULL, 0.
 * Ownership: as rule 3. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API int32_t backplane_value_dtype(const backplane_value* value);
BACKPLANE_API size_t backplane_value_rank(const backplane_value* value);
BACKPLANE_API const int64_t* backplane_value_dims(const backplane_value* value);
BACKPLANE_API void* backplane_value_data(backplane_value* value);
BACKPLANE_API uint64_t backplane_value_bytes(const backplane_value* value);

/* One string of a string tensor: its bytes and their number; and writing one.
 * Ownership: as rule 3, until the value is written. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_value_get_string(const backplane_value* value,
                                                           uint64_t index, const char** data,
                                                           uint64_t* size);
BACKPLANE_API backplane_status* backplane_value_set_string(backplane_value* value, uint64_t index,
                                                           const char* data, uint64_t size);

/* Elements of a sequence or optional (a map: 0 is its keys, 1 its values).
 * Ownership: *out is a value of the caller's that shares the element. Threads: any.
 * Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API uint64_t backplane_value_element_count(const backplane_value* value);
BACKPLANE_API backplane_status* backplane_value_element(const backplane_value* value,
                                                        uint64_t index, backplane_value** out);

/* ---- Sessions ---- */

/* Loads a model, places it, plans it as far as its shapes are known. `options` may be NULL. A failure leaves nothing
 * behind. Bytes must stay until the session is destroyed. There is no session that is created and not loaded: what is
 * returned can be run, so nothing can be run too early or initialized twice.
 * Ownership: as rule 2. Threads: any.
 * Errors: all; the message says at which step, and names file, node, option or provider. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_create(backplane_environment* environment,
                                                         const char* path,
                                                         const backplane_options* options,
                                                         backplane_session** out);
BACKPLANE_API backplane_status* backplane_session_create_from_memory(
    backplane_environment* environment, const void* data, uint64_t bytes,
    const backplane_options* options, backplane_session** out);
BACKPLANE_API void backplane_session_destroy(backplane_session* session);

/* The inputs to be fed (initializers not among them), the outputs, the initializers that a feed may replace, and the
 * inputs with the initializers that are listed among them (before IR version 4 all are, and no feed may replace them).
 * Inputs stand in the model's order in each of these lists.
 * Ownership: as rule 3. Threads: any. Errors: none (an index too large gives NULL or 0). Since: 0.1 */
#define BACKPLANE_INPUTS 0
#define BACKPLANE_OUTPUTS 1
#define BACKPLANE_OVERRIDABLE 2
#define BACKPLANE_ALL_INPUTS 3
BACKPLANE_API size_t backplane_session_count(const backplane_session* session, int32_t list);
BACKPLANE_API const char* backplane_session_name(const backplane_session* session, int32_t list,
                                                 size_t index);
BACKPLANE_API const char* backplane_session_type(const backplane_session* session, int32_t list,
                                                 size_t index);
/* Rank is -1 when unknown; dims has rank entries; symbol is NULL where a dimension has none. */
BACKPLANE_API int32_t backplane_session_rank(const backplane_session* session, int32_t list,
                                             size_t index);
BACKPLANE_API const int64_t* backplane_session_dims(const backplane_session* session, int32_t list,
                                                    size_t index);
BACKPLANE_API const char* backplane_session_symbol(const backplane_session* session, int32_t list,
                                                   size_t index, int32_t axis);

/* What the model says of itself. Texts: "" where it says nothing. The version of a domain that it imports (NULL or "":
 * ONNX's own), 0 where it imports none. The custom map by index, and by key (NULL where there is none).
 * Ownership: as rule 3. Threads: any. Errors: none (wrong arguments give NULL or 0). Since: 0.1 */
#define BACKPLANE_TEXT_PRODUCER_NAME 0
#define BACKPLANE_TEXT_PRODUCER_VERSION 1
#define BACKPLANE_TEXT_DOMAIN 2
#define BACKPLANE_TEXT_DESCRIPTION 3
#define BACKPLANE_TEXT_GRAPH_NAME 4
#define BACKPLANE_TEXT_GRAPH_DESCRIPTION 5
BACKPLANE_API const char* backplane_session_text(const backplane_session* session, int32_t which);
BACKPLANE_API int64_t backplane_session_model_version(const backplane_session* session);
BACKPLANE_API int64_t backplane_session_ir_version(const backplane_session* session);
BACKPLANE_API int64_t backplane_session_opset(const backplane_session* session, const char* domain);
BACKPLANE_API size_t backplane_session_metadata_count(const backplane_session* session);
BACKPLANE_API const char* backplane_session_metadata_key(const backplane_session* session,
                                                         size_t index);
BACKPLANE_API const char* backplane_session_metadata(const backplane_session* session,
                                                     const char* key);

/* The tensor that is a parameter ("SCALE_TENSOR") of a value, by the model's quantization annotations; NULL where it
 * has no such annotation.
 * Ownership: as rule 3. Threads: any. Errors: none. Since: 0.1 */
BACKPLANE_API const char* backplane_session_quantization(const backplane_session* session,
                                                         const char* value, const char* parameter);

/* All that is known of the model and its placement, as JSON: the form of `backplane inspect --json`, and more.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_explain(backplane_session* session,
                                                          backplane_string** out);

/* Figures as JSON: {"load_ms","plan_ms","plans","programs","arena_bytes":{device: n},"device_allocations",
 * "nodes_on":{provider: n},"copies"}: of the plan that ran last. "programs": sets of feeds and fetches that are kept
 * with their plans, at most 64 beside those that bindings hold; the least recently used goes first. "files":
 * [{"what","path"}] that the session reads, plugins included, or that its options have it write.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_OUT_OF_MEMORY. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_statistics(backplane_session* session,
                                                             backplane_string** out);

/* The spans of all runs so far as a Chrome/Perfetto trace; the session must have "profile" = true. Clears them.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_trace(backplane_session* session,
                                                        backplane_string** out);

/* Runs the model. Feeds by name; fetches by name: outputs, or any inner values; with none, all outputs are fetched
 * and `fetch_count` is their number. *fetches[i] NULL: the session allocates it and it becomes the caller's. Otherwise
 * it is written, and must fit in type and dims. It may lie in the memory of no other fetch, nor in a feed's: but where a
 * kernel that works in place makes it of that feed, which nothing else reads (a cache of keys and values that is past and
 * present at once), both may be one memory of the host's.
 * Ownership: feeds are borrowed for the call; fetches as said. Threads: any number at a time on one session.
 * Errors: all; BACKPLANE_INVALID_ARGUMENT for feeds and fetches names the value and says what was expected. A run that
 * failed leaves the session usable. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_run(
    backplane_session* session, const char* const* feed_names, const backplane_value* const* feeds,
    size_t feed_count, const char* const* fetch_names, backplane_value** fetches,
    size_t fetch_count);

/* What an option was set to for this session, by its creator or by the model (see options_from_model), or its default;
 * "entry.KEY" gives what was kept there.
 * Ownership: as rule 2. Threads: any. Errors: as backplane_options_get. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_option(const backplane_session* session,
                                                         const char* key, backplane_string** out);

/* Writes what was decided (placement, order, kernels) and the weights packed so far. A session of the same model with
 * the option "saved_plan" neither asks providers nor packs again. It is refused, with the reason, when the model's
 * contents, a plugin, a device, an option that decides or the version of this library is another. The file is replaced
 * as a whole or not at all.
 * Ownership: none. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT (one of the session's own files, a
 * folder that is not there), BACKPLANE_FILE_FAILED (a full disk; a model that changed meanwhile). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_save_plan(backplane_session* session,
                                                            const char* path);

/* Paths: ways through the session's model with their own inputs, outputs, providers and threads (options
 * "path.NAME.KEY"), sharing its weights. run_path is run for one: every input of the path is fed, any of its outputs
 * are fetched; with no names, all of them.
 * Ownership: as backplane_session_run; a name as rule 3. Threads: any. Errors: as backplane_session_run, and
 * BACKPLANE_NOT_FOUND for a path that the session does not have. Since: 0.1 */
BACKPLANE_API size_t backplane_session_path_count(const backplane_session* session);
BACKPLANE_API const char* backplane_session_path_name(const backplane_session* session,
                                                      size_t index);
BACKPLANE_API size_t backplane_session_path_output_count(const backplane_session* session,
                                                         const char* path);
BACKPLANE_API backplane_status* backplane_session_run_path(
    backplane_session* session, const char* path, const char* const* feed_names,
    const backplane_value* const* feeds, size_t feed_count, const char* const* fetch_names,
    backplane_value** fetches, size_t fetch_count);

/* A binding keeps feeds and fetches between runs: names are looked up once, and with equal shapes a run allocates
 * nothing. A value given replaces the one before it; NULL for an output lets the session allocate it at the next run
 * and reuse it while its shape stays; one that is given must have the type and shape that a run makes.
 * backplane_binding_output gives what the last run wrote.
 * Ownership: a binding keeps its session and bound values, not the memory that values borrow; the result of
 * binding_output belongs to the binding. Threads: one per binding; many bindings at a time per session.
 * Errors: as backplane_session_run. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_binding_create(backplane_session* session,
                                                         backplane_binding** out);
BACKPLANE_API void backplane_binding_destroy(backplane_binding* binding);
BACKPLANE_API backplane_status* backplane_binding_bind_input(backplane_binding* binding,
                                                             const char* name,
                                                             const backplane_value* value);
BACKPLANE_API backplane_status* backplane_binding_bind_output(backplane_binding* binding,
                                                              const char* name,
                                                              backplane_value* value);
BACKPLANE_API backplane_status* backplane_binding_run(backplane_binding* binding);
BACKPLANE_API const backplane_value* backplane_binding_output(const backplane_binding* binding,
                                                              const char* name);

#ifdef __cplusplus
}
#endif

#include "backplane/host/custom_op.h"
#include "backplane/host/explanation.h"
#include "backplane/host/graph.h"
#include "backplane/host/run.h"
#include "backplane/host/values.h"
