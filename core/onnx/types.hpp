// TypeProtos and types.
#pragma once

#include <onnx/onnx_pb.h>

#include "core/graph/type.hpp"

namespace backplane::core {

/// Throws Unsupported for opaque types and element types that this build does not know.
Type to_type(const ::onnx::TypeProto& proto);
::onnx::TypeProto to_proto(const Type& type);

}  // namespace backplane::core
