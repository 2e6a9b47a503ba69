/* Graphs that a program builds or changes: nodes and values by name, resolved, run, saved. Part of backplane.h, whose
 * conventions hold here.
 *
 *   backplane_graph_create(environment, NULL, &graph);
 *   backplane_graph_add_value(graph, "x", type);
 *   backplane_graph_add_node(graph, "Relu", "", "", inputs, 1, outputs, 1, &node);
 *   backplane_graph_resolve(graph);
 *   backplane_session_create_from_graph(environment, graph, NULL, &session);
 *
 * Names make the edges, and a name may be read before anything makes it. What the graph amounts to is found by
 * backplane_graph_resolve: graph inputs (names that nodes read and nothing makes, in order of first use) and outputs
 * (what nodes make and no node reads, in order of production), unless they are set by hand; types and shapes; whether
 * an order exists. Nodes may be added and removed between two resolves.
 *
 * A graph is used by one thread at a time. */
#pragma once

#include "backplane/backplane.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct backplane_graph backplane_graph;
typedef struct backplane_type backplane_type;

/* The type of a value: an ONNX type string ("tensor(float)", "seq(tensor(int64))") and, of the tensors in it, a shape:
 * rank -1 where it is unknown, then dims and symbols are not read; dims -1 for an unknown dimension; `symbols` may be
 * NULL, and so may be each of them.
 * Ownership: as rule 2. Threads: any. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_type_create(const char* type, int32_t rank,
                                                      const int64_t* dims,
                                                      const char* const* symbols,
                                                      backplane_type** out);
BACKPLANE_API void backplane_type_destroy(backplane_type* type);

/* An empty graph of IR version 10 that imports opset 21 of ONNX's own domain. Operators of `environment`'s plugins and
 * of the libraries in `options` (custom_ops) are known to it; both may be NULL, and are where it is to be a body. And a
 * graph from an ONNX file, whose inputs and outputs count as set by hand, and whose functions are inlined.
 * Ownership: as rule 2; a graph keeps its environment alive. Threads: any.
 * Errors: BACKPLANE_OUT_OF_MEMORY; load: those of a session's creation that a file can cause. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_create(backplane_environment* environment,
                                                       const backplane_options* options,
                                                       backplane_graph** out);
BACKPLANE_API backplane_status* backplane_graph_load(backplane_environment* environment,
                                                     const char* path,
                                                     const backplane_options* options,
                                                     backplane_graph** out);
BACKPLANE_API void backplane_graph_destroy(backplane_graph* graph);

/* IR version (1 and more), the model's own version, the version of a domain that the model imports (0 takes the import
 * away), a text (BACKPLANE_TEXT_*), an entry of the custom map (NULL takes it away).
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_set_ir_version(backplane_graph* graph,
                                                               int64_t version);
BACKPLANE_API backplane_status* backplane_graph_set_model_version(backplane_graph* graph,
                                                                  int64_t version);
BACKPLANE_API backplane_status* backplane_graph_set_opset(backplane_graph* graph,
                                                          const char* domain, int64_t version);
BACKPLANE_API backplane_status* backplane_graph_set_text(backplane_graph* graph, int32_t which,
                                                         const char* text);
BACKPLANE_API backplane_status* backplane_graph_set_metadata(backplane_graph* graph,
                                                             const char* key, const char* value);

/* Says the type of a value, be it an input, made by a node, or yet to come; again: another type.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_add_value(backplane_graph* graph, const char* name,
                                                          const backplane_type* type);

/* Gives a value contents, a tensor; again: other contents. An initializer is not an input, unless the inputs are set by
 * hand and list it (then a run may override it), or the IR version is below 4 (then it is one, and cannot be overridden).
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT (made by a node; no such one). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_add_initializer(backplane_graph* graph,
                                                                const char* name,
                                                                const backplane_value* value);
BACKPLANE_API backplane_status* backplane_graph_remove_initializer(backplane_graph* graph,
                                                                   const char* name);

/* A quantization annotation of a value: a parameter ("SCALE_TENSOR", "ZERO_POINT_TENSOR") and the tensor that is it.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_annotate(backplane_graph* graph, const char* value,
                                                         const char* parameter, const char* tensor);

/* Adds a node. `domain` and `name` may be NULL or empty: ONNX's own domain, a name of the graph's choice. NULL or ""
 * leaves an input or output out. *node is its number, for the functions below; `node` may be NULL.
 * Ownership: copied. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT (a name that is taken, an output that something else makes). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_add_node(
    backplane_graph* graph, const char* op_type, const char* domain, const char* name,
    const char* const* inputs, size_t input_count, const char* const* outputs, size_t output_count,
    int64_t* node);
/* Removes a node; its outputs stay as names, which another node may make or which become graph inputs.
 * Ownership: none. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT (no such node). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_remove_node(backplane_graph* graph, int64_t node);
/* The number of the node with a name.
 * Ownership: none. Threads: one. Errors: BACKPLANE_NOT_FOUND. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_find_node(backplane_graph* graph, const char* name,
                                                          int64_t* node);

/* Attributes of a node, one function a kind; setting one again replaces it. Strings are bytes with a size. A graph that
 * becomes a body is copied: what is done to it later does not show. Which of the names that a body reads belong to an
 * enclosing graph is found by resolve: those that one of them makes, reads, declares or has as input or initializer.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_set_int(backplane_graph* graph, int64_t node,
                                                        const char* name, int64_t value);
BACKPLANE_API backplane_status* backplane_graph_set_float(backplane_graph* graph, int64_t node,
                                                          const char* name, float value);
BACKPLANE_API backplane_status* backplane_graph_set_string(backplane_graph* graph, int64_t node,
                                                           const char* name, const char* data,
                                                           uint64_t size);
BACKPLANE_API backplane_status* backplane_graph_set_tensor(backplane_graph* graph, int64_t node,
                                                           const char* name,
                                                           const backplane_value* value);
BACKPLANE_API backplane_status* backplane_graph_set_type(backplane_graph* graph, int64_t node,
                                                         const char* name,
                                                         const backplane_type* type);
BACKPLANE_API backplane_status* backplane_graph_set_body(backplane_graph* graph, int64_t node,
                                                         const char* name,
                                                         const backplane_graph* body);
BACKPLANE_API backplane_status* backplane_graph_set_ints(backplane_graph* graph, int64_t node,
                                                         const char* name, const int64_t* values,
                                                         size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_floats(backplane_graph* graph, int64_t node,
                                                           const char* name, const float* values,
                                                           size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_strings(backplane_graph* graph, int64_t node,
                                                            const char* name,
                                                            const char* const* data,
                                                            const uint64_t* sizes, size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_tensors(backplane_graph* graph, int64_t node,
                                                            const char* name,
                                                            const backplane_value* const* values,
                                                            size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_types(backplane_graph* graph, int64_t node,
                                                          const char* name,
                                                          const backplane_type* const* types,
                                                          size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_bodies(backplane_graph* graph, int64_t node,
                                                           const char* name,
                                                           const backplane_graph* const* bodies,
                                                           size_t count);
BACKPLANE_API backplane_status* backplane_graph_remove_attribute(backplane_graph* graph,
                                                                 int64_t node, const char* name);

/* A control edge makes `later` run after `earlier`, though it reads nothing of it. A priority decides in the session
 * order "priority" (option execution_order): smaller numbers run first; 0 at first. Both are saved with the model.
 * Ownership: none. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT (no such node). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_add_control_edge(backplane_graph* graph,
                                                                 int64_t earlier, int64_t later);
BACKPLANE_API backplane_status* backplane_graph_set_priority(backplane_graph* graph, int64_t node,
                                                             int32_t priority);

/* Sets inputs or outputs by hand, in this order; a name that stands twice counts once. NULL lets resolve find them again.
 * Ownership: copied. Threads: one. Errors: BACKPLANE_INVALID_ARGUMENT. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_set_inputs(backplane_graph* graph,
                                                           const char* const* names, size_t count);
BACKPLANE_API backplane_status* backplane_graph_set_outputs(backplane_graph* graph,
                                                            const char* const* names, size_t count);

/* Finds inputs, outputs, types and shapes, and checks everything. The functions below, and sessions, do it by themselves
 * when something has changed since.
 * Ownership: none. Threads: one.
 * Errors: BACKPLANE_INVALID_ARGUMENT (a name that nothing makes, with its node; an input without a type; a cycle, with its
 * nodes; what contradicts an operator's schema), BACKPLANE_UNSUPPORTED (an operator that nobody knows). Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_resolve(backplane_graph* graph);

/* What the last resolve found: `list` as of backplane_session_count, and BACKPLANE_INNER_VALUES: what a node makes and
 * another one reads, if it is no output.
 * Ownership: as rule 3, until the next resolve. Threads: one. Errors: none (an index too large, or nothing resolved yet,
 * gives NULL or 0). Since: 0.1 */
#define BACKPLANE_INNER_VALUES 4
BACKPLANE_API size_t backplane_graph_count(const backplane_graph* graph, int32_t list);
BACKPLANE_API const char* backplane_graph_name(const backplane_graph* graph, int32_t list,
                                               size_t index);
BACKPLANE_API const char* backplane_graph_type(const backplane_graph* graph, int32_t list,
                                               size_t index);
BACKPLANE_API int32_t backplane_graph_rank(const backplane_graph* graph, int32_t list,
                                           size_t index);
BACKPLANE_API const int64_t* backplane_graph_dims(const backplane_graph* graph, int32_t list,
                                                  size_t index);
BACKPLANE_API const char* backplane_graph_symbol(const backplane_graph* graph, int32_t list,
                                                 size_t index, int32_t axis);

/* All of it as JSON: {"ir_version","opsets","model","metadata","inputs","all_inputs","outputs",
 * "overridable_initializers","inner_values","initializers","quantization",
 * "nodes":[{"number","name","op","domain","inputs","outputs","attributes","priority","after"}],"order"}.
 * Ownership: as rule 2. Threads: one. Errors: as resolve. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_graph_describe(backplane_graph* graph,
                                                         backplane_string** out);

/* Writes an ONNX file in one step: a failure leaves what was there. `external`: contents of initializers go to a second
 * file "<name>.data" beside it (which is put in place first) where one file would exceed 2 GiB; always, from 1 KiB on;
 * or never. And the bytes of such a file.
 * Ownership: as rule 2. Threads: one. Errors: as resolve; BACKPLANE_INVALID_ARGUMENT (the path; more than 2 GiB),
 * BACKPLANE_FILE_FAILED (a full disk). Since: 0.1 */
#define BACKPLANE_EXTERNAL_AUTO 0
#define BACKPLANE_EXTERNAL_ALWAYS 1
#define BACKPLANE_EXTERNAL_NEVER 2
BACKPLANE_API backplane_status* backplane_graph_save(backplane_graph* graph, const char* path,
                                                     int32_t external);
BACKPLANE_API backplane_status* backplane_graph_serialize(backplane_graph* graph,
                                                          backplane_string** out);

/* A session of a graph as it is now; it shares the contents of initializers, and nothing else.
 * Ownership: as rule 2. Threads: any, the graph's one. Errors: as resolve and backplane_session_create. Since: 0.1 */
BACKPLANE_API backplane_status* backplane_session_create_from_graph(
    backplane_environment* environment, backplane_graph* graph, const backplane_options* options,
    backplane_session** out);

#ifdef __cplusplus
}
#endif
