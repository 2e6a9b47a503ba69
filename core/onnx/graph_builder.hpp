// From protos to the graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <onnx/onnx_pb.h>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/onnx/opsets.hpp"
#include "core/onnx/tensors.hpp"

namespace backplane::core {

/// Makes the graph of a body; null: bodies are left out.
using BodyBuilder = std::function<std::shared_ptr<Graph>(const ::onnx::GraphProto& body)>;

/// Whether there are graphs among its attributes.
bool has_bodies(const ::onnx::NodeProto& node);

/// Adds a node to a graph, with its attributes.
NodeId add_node(Graph& graph, const ::onnx::NodeProto& node, int since_version,
                TensorReader& tensors, const BodyBuilder& body);

struct GraphSource {
  std::int64_t ir_version;
  const Opsets& opsets;
  const SchemaRegistry& schemas;
  TensorReader& tensors;
};

/// Makes the main graph, whose protos are in normal form, sorted, verified and inferred. `origins` has the original node
/// of each node; `listed_initializers` is the number of dense initializers that the file lists (lifted constants follow
/// them).
Graph build_graph(const ::onnx::GraphProto& proto, const GraphSource& source,
                  const std::vector<std::int32_t>& origins, int listed_initializers);

}  // namespace backplane::core
