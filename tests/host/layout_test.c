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

FIXED(codes, BACKPLANE_OK == 0 && BACKPLANE_INVALID_ARGUMENT == 1 && BACKPLANE_UNSUPPORTED == 2 &&
                 BACKPLANE_NOT_FOUND == 3 && BACKPLANE_OUT_OF_MEMORY == 4 &&
                 BACKPLANE_DEVICE_LOST == 5 && BACKPLANE_CANCELLED == 6 && BACKPLANE_FAILED == 7 &&
                 BACKPLANE_INTERNAL == 8 && BACKPLANE_UNIMPLEMENTED == 9 &&
                 BACKPLANE_INCOMPATIBLE == 10 && BACKPLANE_TIMEOUT == 11);
FIXED(lists, BACKPLANE_INPUTS == 0 && BACKPLANE_OUTPUTS == 1 && BACKPLANE_OVERRIDABLE == 2);
FIXED(kinds, BACKPLANE_KIND_NONE == 0 && BACKPLANE_KIND_TENSOR == 1 &&
                 BACKPLANE_KIND_SEQUENCE == 2 && BACKPLANE_KIND_OPTIONAL == 3 &&
                 BACKPLANE_KIND_MAP == 4);

int main(void) { return 0; }
