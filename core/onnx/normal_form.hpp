// Protos in one form, before anything looks at them.
#pragma once

#include <cstdint>
#include <onnx/onnx_pb.h>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Writes ONNX's own domain as "" and Einsum's equations without spaces, gives attributes of the oldest files their types, removes
/// marks of the importer's own and what stands for no size of a dimension ("?", -1), and gives each node of each graph a unique
/// name: its own, or Op_index where it has none or a taken one.
void normalize(::onnx::ModelProto& model);

/// The main graph's nodes in the file's order, for Model::original. After normalize.
std::vector<OriginalNode> original_nodes(const ::onnx::GraphProto& graph);

/// Checks that each value has one maker and each name that is read somebody who makes it, and puts the nodes of the
/// graph and of its bodies into an order in which each comes after what it reads: the given one where it is such.
/// `origins` has an entry per node of the main graph and is put into the same order.
/// Throws InvalidArgument that names the nodes and the value.
void sort_nodes(::onnx::GraphProto& graph, std::vector<std::int32_t>& origins);

/// Replaces Constant nodes by initializers, behind those that are there, bodies included. After verify_nodes.
void lift_constants(::onnx::GraphProto& graph, std::vector<std::int32_t>* origins);

}  // namespace backplane::core
