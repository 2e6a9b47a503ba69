// Nodes and bodies as protos.
#pragma once

#include <onnx/onnx_pb.h>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// The node as ONNX writes it, bodies included; constants of bodies are initializers, with their contents.
::onnx::NodeProto to_proto(const Graph& graph, const Node& node);

}  // namespace backplane::core
