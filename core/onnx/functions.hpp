// The functions of a model, put in the place of their calls.
#pragma once

#include <cstdint>
#include <onnx/onnx_pb.h>
#include <vector>

#include "core/onnx/opsets.hpp"

namespace backplane::core {

/// Inlines all functions that the model holds, by ONNX's inliner, and removes them; operators that have a function body
/// in ONNX's schemas are left alone. Nodes of a function that imports other opset versions than the model keep them.
/// Returns for each node of the main graph the index of the node that it stood for before.
/// Errors: InvalidArgument for calls that form a cycle or fit no parameters, for functions that blow up: call chains of
///         more than 100, bodies nested deeper than that, more than a million nodes.
std::vector<std::int32_t> inline_functions(::onnx::ModelProto& model, Opsets& opsets);

}  // namespace backplane::core
