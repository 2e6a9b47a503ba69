// From models to ONNX protos.
#pragma once

#include <functional>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Where the contents of a tensor go: fills in everything of `proto` but its name, type and dims.
using ContentsWriter = std::function<void(const ConstantPtr& contents, ::onnx::TensorProto& proto)>;

/// The contents in the proto itself, as raw_data (strings: string_data).
void write_inline(const ConstantPtr& contents, ::onnx::TensorProto& proto);

struct ExportSettings {
  ContentsWriter contents =
      write_inline;  ///< of initializers; those of attributes are always inline
  /// Leaves out initializers that nobody reads, lists as an input or names in an annotation.
  bool drop_unused = false;
  bool sorted = true;  ///< false: nodes by index, whatever they read
};

/// The model as a proto that any reader of ONNX understands: nodes in an order in which they can run, types of all
/// values that are known, quantization annotations, metadata. Control edges and priorities go to the nodes' metadata
/// (keys below). Constants are initializers; in bodies before IR version 4 they are Constant nodes.
/// Errors: InvalidArgument, as topological_order.
::onnx::ModelProto export_model(const Model& model, const ExportSettings& settings);

/// Metadata of a node: its priority, and the names of nodes that a control edge puts before it, counted from 0.
inline constexpr const char* kPriorityKey = "backplane.priority";
inline constexpr const char* kAfterKey = "backplane.after.";

/// Reads those keys of a graph's nodes, which have been added under their protos' names. An edge from a node that is
/// gone binds nobody. Throws InvalidArgument naming the node whose priority is no number.
void read_node_metadata(const ::onnx::GraphProto& proto, Graph& graph);

}  // namespace backplane::core
