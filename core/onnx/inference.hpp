// Types and shapes of all values, by ONNX's inference functions and those of custom operators.
#pragma once

#include <cstdint>
#include <map>
#include <onnx/onnx_pb.h>
#include <set>
#include <string>

#include "core/onnx/opsets.hpp"
#include "core/onnx/tensors.hpp"

namespace backplane::core {

/// Gives symbolic dimensions sizes, everywhere in the model. Throws InvalidArgument for a symbol that no graph input has,
/// naming those they have, and for a size below 0.
void apply_dims(::onnx::GraphProto& graph, std::map<std::string, std::int64_t> dims,
                const std::map<std::string, std::int64_t>& denotations = {});

/// What the file alone says, see Model::unproven_symbols.
struct UnprovenSymbols {
  std::set<std::string> symbols;
  std::set<std::string> outputs;  ///< values that have others
};

/// Infers types and shapes of the graph and its bodies, whose nodes are sorted and verified; the result is written to
/// value_info, and to the types of outputs and of the bodies' inputs.
///
/// What an operator infers counts. What the file says (value_info, output types) fills in where an operator infers
/// nothing, and gives names to unknown dimensions: files often carry types of another export, so their sizes are not
/// believed over inference. Values of overridable initializers are not used.
/// Errors: InvalidArgument naming the node, where its inference says that the model is wrong; naming the output, where its
///         declared element type or rank contradicts the node that makes it.
UnprovenSymbols infer_types(::onnx::GraphProto& graph, std::int64_t ir_version,
                            const Opsets& opsets, const SchemaRegistry& schemas,
                            TensorReader& tensors);

}  // namespace backplane::core
