// Split's types and shapes, in place of ONNX's own functions, which cut sizes to 32 bits.
#pragma once

#include <onnx/defs/shape_inference.h>

namespace backplane::core {

/// Sets the types of a Split's outputs, of any opset. Threads: any. Errors: onnx::InferenceError, of attributes and sizes
/// that do not fit.
void infer_split(::onnx::InferenceContext& context, int since_version);

}  // namespace backplane::core
