// Graphs of protos that were made here.
#pragma once

#include <onnx/onnx_pb.h>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

/// The graph of a model of one node that calls one of its functions, which is inlined. Contents of initializers are
/// copied; nodes have no origins. Errors: as import_bytes.
Graph import_call(::onnx::ModelProto proto, const SchemaRegistry& schemas);

}  // namespace backplane::core
