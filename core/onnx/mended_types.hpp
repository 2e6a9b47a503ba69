// Where ONNX's functions for types and shapes say more than is so.
#pragma once

#include <onnx/defs/shape_inference.h>
#include <onnx/onnx_pb.h>

namespace backplane::core {

/// The type without the shapes of a sequence's or optional's elements: a Loop may carry elements of other shapes than it
/// began with, and nobody compares the elements of a fed sequence with what is declared.
::onnx::TypeProto without_element_shapes(const ::onnx::TypeProto& type);

/// Takes back what inference said of a node's outputs and may not be so, or says it right. Threads: any.
void mend_output_types(const ::onnx::NodeProto& node, ::onnx::InferenceContext& context);

}  // namespace backplane::core
