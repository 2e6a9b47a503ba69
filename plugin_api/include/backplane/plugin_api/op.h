/* Backplane plugin ABI: schemas of custom operators. */
#pragma once

#include "backplane/plugin_api/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How often an input or output is there (bp_param::kind). */
#define BP_PARAM_REQUIRED 0
#define BP_PARAM_OPTIONAL 1
#define BP_PARAM_VARIADIC 2 /* the last one only */

/* An input or output of an operator. */
typedef struct bp_param {
  BP_HEAD;
  const char* name;
  const char* type; /* a type parameter ("T") or a fixed ONNX type string ("tensor(float)") */
  const char* doc;
  int32_t kind;           /* BP_PARAM_* */
  uint32_t heterogeneous; /* variadic: 1 when each may have a type of its own */
  uint64_t min_count;     /* variadic: at least so many */
} bp_param;

/* An attribute of an operator. */
typedef struct bp_attribute_def {
  BP_HEAD;
  const char* name;
  const char* doc;
  int32_t type; /* BP_ATTRIBUTE_* */
  uint32_t required;
  const bp_attribute* default_value; /* NULL: none; shown to users, filled in by nobody */
} bp_attribute_def;

/* A type parameter of an operator and the types it may take, as ONNX type strings. */
typedef struct bp_type_param {
  BP_HEAD;
  const char* name;
  const char* doc;
  const char* const* types;
  uint64_t type_count;
} bp_type_param;

struct bp_infer_api;

/* What shape inference gets: the node, whose inputs' types, dims, symbols and constants are read through
 * bp_graph_api. */
typedef struct bp_infer_ctx {
  BP_HEAD;
  const struct bp_infer_api* api;
  const bp_node* node;
} bp_infer_ctx;

typedef struct bp_infer_api {
  BP_HEAD;

  /* Says what a tensor output is, as far as it is known before a run: `rank` -1 when unknown (dims NULL),
   * dims -1 when unknown, then with a symbol where `symbols` is not NULL and has one.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_output)(const bp_infer_ctx* ctx, uint32_t output, bp_dtype dtype, int32_t rank,
                           const int64_t* dims, const char* const* symbols);

  /* Likewise by an ONNX type string, shape unknown.
   * Ownership: copied. Threads: the calling one. Errors: BP_INVALID_ARGUMENT. Since: 1.0 */
  bp_status* (*set_output_type)(const bp_infer_ctx* ctx, uint32_t output, const char* type);
} bp_infer_api;

/* The schema of a custom operator. Several with one domain and name are its versions. Two plugins that
 * define the same one are an error that names both. Valid, unchanged, until `shutdown`. */
typedef struct bp_op_schema {
  BP_HEAD;
  const char* domain; /* "" puts the operator beside ONNX's own; it may not have the name of one */
  const char* name;
  const char* doc;
  int32_t since_version; /* the first version of the domain that has this form */
  uint32_t reserved0;    /* 0 */
  const bp_param* const* inputs;
  const bp_param* const* outputs;
  const bp_attribute_def* const* attributes;
  const bp_type_param* const* type_params;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t attribute_count;
  uint32_t type_param_count;
  void* self; /* handed to `infer` */

  /* Optional; without it the outputs' types come from the type parameters and their shapes are unknown until
   * `prepare`.
   * Ownership: all borrowed for the call. Threads: any.
   * Errors: BP_INVALID_ARGUMENT: the model is wrong, and why. Since: 1.0 */
  bp_status* (*infer)(void* self, const bp_infer_ctx* ctx);
} bp_op_schema;

#ifdef __cplusplus
}
#endif
