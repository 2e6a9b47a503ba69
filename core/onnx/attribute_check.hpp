// What attributes may be, beyond what schemas say.
#pragma once

#include <onnx/onnx_pb.h>

namespace backplane::core {

/// Refuses attribute values that ONNX's inference functions do not stand: an axis beyond 32 bits is cut to a negative
/// index (found in LayerNormalization), and an Einsum equation with anything but letters, commas, one ellipsis per term
/// and one arrow is read for ever. Throws InvalidArgument that names the node.
void check_attributes(const ::onnx::NodeProto& node);

/// Removes the spaces that an Einsum equation may have, which ONNX's inference cannot read.
void remove_equation_spaces(::onnx::NodeProto& node);

}  // namespace backplane::core
