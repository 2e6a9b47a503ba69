/* Backplane plugin ABI: reading graphs, nodes, attributes and value infos. */
#pragma once

#include "backplane/plugin_api/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of attributes: the numbers of ONNX's AttributeProto.AttributeType. */
#define BP_ATTRIBUTE_FLOAT 1
#define BP_ATTRIBUTE_INT 2
#define BP_ATTRIBUTE_STRING 3
#define BP_ATTRIBUTE_TENSOR 4
#define BP_ATTRIBUTE_GRAPH 5
#define BP_ATTRIBUTE_FLOATS 6
#define BP_ATTRIBUTE_INTS 7
#define BP_ATTRIBUTE_STRINGS 8
#define BP_ATTRIBUTE_TENSORS 9
#define BP_ATTRIBUTE_GRAPHS 10
#define BP_ATTRIBUTE_TYPE 13
#define BP_ATTRIBUTE_TYPES 14

/* A typed attribute; the same struct is read from a node and given for a node that a rewrite adds. The array
 * that fits `type` holds `count` entries (1 for a single value); the others are NULL. Types are ONNX type
 * strings such as "seq(tensor(int64))". Graphs are for reading only.
 *
 * Tensors stand in two arrays: `tensors`, and `values`, whose entries hold the same tensors. When reading,
 * both are there, and bp_value_api::string_get reads a string tensor's entry of `values`. When giving, one of
 * them is enough, and `values` goes first: it holds values that the host made (read from the graph, or by
 * bp_value_api::tensor_new), and alone can give string tensors. */
typedef struct bp_attribute {
  BP_HEAD;
  const char* name;
  int32_t type;
  uint32_t count;
  const float* floats;
  const int64_t* ints;
  const bp_str* strings;
  const bp_tensor* const* tensors;
  const bp_graph* const* graphs;
  const char* const* types;
  const bp_value* const* values;
} bp_attribute;

/* Reads graphs. A graph is what the host shows a provider: the nodes it may speak of, in topological order,
 * with the values at their border as inputs and outputs. All strings are UTF-8, terminated, and all results
 * are borrowed and valid as long as the graph, which is for the call it was given to (for `create`: until
 * the kernel is destroyed). None of these functions fails: an index out of range gives NULL or 0. */
typedef struct bp_graph_api {
  BP_HEAD;

  /* The graph's name, the number of its nodes, and its nodes in topological order.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const char* (*graph_name)(const bp_graph* graph);
  uint64_t (*graph_node_count)(const bp_graph* graph);
  const bp_node* (*graph_node)(const bp_graph* graph, uint64_t index);

  /* Values that come from outside, constants not among them; values that are used outside.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  uint64_t (*graph_input_count)(const bp_graph* graph);
  const bp_value_info* (*graph_input)(const bp_graph* graph, uint64_t index);
  uint64_t (*graph_output_count)(const bp_graph* graph);
  const bp_value_info* (*graph_output)(const bp_graph* graph, uint64_t index);

  /* Any value of the graph by its name; NULL when there is none.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const bp_value_info* (*graph_value)(const bp_graph* graph, const char* name);

  /* A node's name (unique in its graph), operator, domain ("" is ONNX's own), and the version of the
   * operator's schema that the model's opset selects (not the opset's own number).
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const char* (*node_name)(const bp_node* node);
  const char* (*node_op_type)(const bp_node* node);
  const char* (*node_domain)(const bp_node* node);
  int32_t (*node_since_version)(const bp_node* node);

  /* A node's inputs and outputs, in the schema's order; NULL for one that is left out.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  uint64_t (*node_input_count)(const bp_node* node);
  const bp_value_info* (*node_input)(const bp_node* node, uint64_t index);
  uint64_t (*node_output_count)(const bp_node* node);
  const bp_value_info* (*node_output)(const bp_node* node, uint64_t index);

  /* A node's attributes as the model gives them, defaults of the schema not filled in.
   * Ownership: borrowed. Threads: any. Errors: none (`node_attribute`: NULL when absent). Since: 1.0 */
  uint64_t (*node_attribute_count)(const bp_node* node);
  const bp_attribute* (*node_attribute_at)(const bp_node* node, uint64_t index);
  const bp_attribute* (*node_attribute)(const bp_node* node, const char* name);

  /* A value's name, and its type as an ONNX type string: "tensor(float)", "" while unknown.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const char* (*value_name)(const bp_value_info* value);
  const char* (*value_type)(const bp_value_info* value);

  /* A tensor's element type (BP_NONE: unknown or not a tensor), rank (-1: unknown) and dims in elements
   * (`rank` entries, -1: unknown; NULL where the rank is).
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  bp_dtype (*value_dtype)(const bp_value_info* value);
  int32_t (*value_rank)(const bp_value_info* value);
  const int64_t* (*value_dims)(const bp_value_info* value);

  /* The symbol of an unknown dimension ("batch"); NULL where it has none. Equal symbols are equal sizes.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const char* (*value_symbol)(const bp_value_info* value, int32_t axis);

  /* The contents of a constant, in host memory; NULL when the value is not constant, or is a constant that a
   * rewrite adds and nobody has computed yet. A large one may be a
   * mapped file: reading it may block. Strings: by bp_value_api on `value_constant_value`.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const bp_tensor* (*value_constant)(const bp_value_info* value);
  const bp_value* (*value_constant_value)(const bp_value_info* value);

  /* The node of this graph that makes the value (NULL: it comes from outside), and those that read it, each
   * once per input that reads it. Whether it is also used outside is what value_is_output tells.
   * Ownership: borrowed. Threads: any. Errors: none. Since: 1.0 */
  const bp_node* (*value_producer)(const bp_value_info* value);
  uint64_t (*value_consumer_count)(const bp_value_info* value);
  const bp_node* (*value_consumer)(const bp_value_info* value, uint64_t index);
  uint32_t (*value_is_output)(const bp_value_info* value);

  /* 1 where value_constant gives contents, 0 elsewhere. Reads none of them: a large constant that lies unaligned in a
   * model's file is copied by the first call of value_constant, and the copy stays as long as the model's graph.
   * Ownership: none. Threads: any. Errors: none. Since: 1.1 */
  uint32_t (*value_is_constant)(const bp_value_info* value);

  /* The contents of a constant where they lie, dense and row-major: `*bytes` of them, at any alignment. Never copied,
   * whatever their size: for a look at large constants, of which value_constant would keep a copy. A model's file may be behind
   * them: reading may block. NULL, and 0 bytes, where value_is_constant gives 0, for strings and for tensors without elements.
   * Ownership: borrowed, as long as the graph. Threads: any. Errors: none. Since: 1.2 */
  const void* (*value_constant_stored)(const bp_value_info* value, uint64_t* bytes);
} bp_graph_api;

#ifdef __cplusplus
}
#endif
