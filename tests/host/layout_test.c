/* The structs of the host interface keep their layout: fields are appended, and struct_size says how many there are. LP64 only, as the
 * library is. */
#include <stddef.h>

#include "backplane/backplane.h"

/* An array of -1 elements does not compile: C99 has no static assertion. */
#define FIXED(name, condition) typedef char name[(condition) ? 1 : -1]

FIXED(node_size, sizeof(backplane_node) >= 72);
FIXED(node_struct_size, offsetof(backplane_node, struct_size) == 0);
FIXED(node_name, offsetof(backplane_node, name) == 8);
FIXED(node_op_type, offsetof(backplane_node, op_type) == 16);
FIXED(node_domain, offsetof(backplane_node, domain) == 24);
FIXED(node_provider, offsetof(backplane_node, provider) == 32);
FIXED(node_input_count, offsetof(backplane_node, input_count) == 40);
FIXED(node_inputs, offsetof(backplane_node, inputs) == 48);
FIXED(node_output_count, offsetof(backplane_node, output_count) == 56);
FIXED(node_outputs, offsetof(backplane_node, outputs) == 64);

/* Its size is what callers pass: a longer one must be accepted with this size too. */
FIXED(callbacks_size, sizeof(backplane_node_callbacks) == 32);
FIXED(callbacks_struct_size, offsetof(backplane_node_callbacks, struct_size) == 0);
FIXED(callbacks_context, offsetof(backplane_node_callbacks, context) == 8);
FIXED(callbacks_before, offsetof(backplane_node_callbacks, before) == 16);
FIXED(callbacks_after, offsetof(backplane_node_callbacks, after) == 24);

/* Likewise: callers tell how long theirs are. */
FIXED(tensor_size, sizeof(backplane_tensor) == 64);
FIXED(tensor_struct_size, offsetof(backplane_tensor, struct_size) == 0);
FIXED(tensor_name, offsetof(backplane_tensor, name) == 8);
FIXED(tensor_value, offsetof(backplane_tensor, value) == 16);
FIXED(tensor_data, offsetof(backplane_tensor, data) == 24);
FIXED(tensor_bytes, offsetof(backplane_tensor, bytes) == 32);
FIXED(tensor_dims, offsetof(backplane_tensor, dims) == 40);
FIXED(tensor_rank, offsetof(backplane_tensor, rank) == 48);
FIXED(tensor_dtype, offsetof(backplane_tensor, dtype) == 56);
FIXED(tensor_kind, offsetof(backplane_tensor, kind) == 60);

/* They stand in arrays: this one never grows. */
FIXED(reason_size, sizeof(backplane_reason) == 24);
FIXED(reason_provider, offsetof(backplane_reason, provider) == 0);
FIXED(reason_code, offsetof(backplane_reason, code) == 8);
FIXED(reason_text, offsetof(backplane_reason, text) == 16);

FIXED(explained_node_size, sizeof(backplane_explained_node) >= 72);
FIXED(explained_node_struct_size, offsetof(backplane_explained_node, struct_size) == 0);
FIXED(explained_node_name, offsetof(backplane_explained_node, name) == 8);
FIXED(explained_node_op_type, offsetof(backplane_explained_node, op_type) == 16);
FIXED(explained_node_domain, offsetof(backplane_explained_node, domain) == 24);
FIXED(explained_node_provider, offsetof(backplane_explained_node, provider) == 32);
FIXED(explained_node_kernel, offsetof(backplane_explained_node, kernel) == 40);
FIXED(explained_node_fused_into, offsetof(backplane_explained_node, fused_into) == 48);
FIXED(explained_node_reason_count, offsetof(backplane_explained_node, reason_count) == 56);
FIXED(explained_node_reasons, offsetof(backplane_explained_node, reasons) == 64);

FIXED(explained_copy_size, sizeof(backplane_explained_copy) >= 56);
FIXED(explained_copy_struct_size, offsetof(backplane_explained_copy, struct_size) == 0);
FIXED(explained_copy_value, offsetof(backplane_explained_copy, value) == 8);
FIXED(explained_copy_from, offsetof(backplane_explained_copy, from) == 16);
FIXED(explained_copy_to, offsetof(backplane_explained_copy, to) == 24);
FIXED(explained_copy_cause, offsetof(backplane_explained_copy, cause) == 32);
FIXED(explained_copy_route, offsetof(backplane_explained_copy, route) == 40);
FIXED(explained_copy_bytes, offsetof(backplane_explained_copy, bytes) == 48);

FIXED(explained_memory_size, sizeof(backplane_explained_memory) >= 24);
FIXED(explained_memory_struct_size, offsetof(backplane_explained_memory, struct_size) == 0);
FIXED(explained_memory_memory, offsetof(backplane_explained_memory, memory) == 8);
FIXED(explained_memory_bytes, offsetof(backplane_explained_memory, bytes) == 16);

FIXED(codes, BACKPLANE_OK == 0 && BACKPLANE_INVALID_ARGUMENT == 1 && BACKPLANE_UNSUPPORTED == 2 &&
                 BACKPLANE_NOT_FOUND == 3 && BACKPLANE_OUT_OF_MEMORY == 4 &&
                 BACKPLANE_DEVICE_LOST == 5 && BACKPLANE_CANCELLED == 6 && BACKPLANE_FAILED == 7 &&
                 BACKPLANE_INTERNAL == 8 && BACKPLANE_UNIMPLEMENTED == 9 &&
                 BACKPLANE_INCOMPATIBLE == 10 && BACKPLANE_TIMEOUT == 11 &&
                 BACKPLANE_FILE_FAILED == 12);
FIXED(lists, BACKPLANE_INPUTS == 0 && BACKPLANE_OUTPUTS == 1 && BACKPLANE_OVERRIDABLE == 2);
FIXED(kinds, BACKPLANE_KIND_NONE == 0 && BACKPLANE_KIND_TENSOR == 1 &&
                 BACKPLANE_KIND_SEQUENCE == 2 && BACKPLANE_KIND_OPTIONAL == 3 &&
                 BACKPLANE_KIND_MAP == 4);

int main(void) { return 0; }
