// Models that were saved with operators of a provider's own.
#pragma once

#include <onnx/onnx_pb.h>
#include <string>

#include "core/onnx/importer.hpp"

namespace backplane::core {

/// Lets the options accept the private operators of a model whose metadata say that it has such. Throws Unsupported,
/// saying which device they are for, when nobody does, or when the graph is not the one that was saved: kernels of private
/// operators rely on what the rewrite that made them has checked, and no schema says it.
void accept_private_operators(const ::onnx::ModelProto& model, const ImportOptions& options);

/// Metadata of such a model: what private_contents gave when it was saved.
inline constexpr const char* kPrivateContentsKey = "backplane.private_contents";

/// A hash of the model's graph as save_model writes it without unused initializers. Of contents only small ones count: large
/// ones are not worth the time, and change results alone.
std::string private_contents(const Model& model);

}  // namespace backplane::core
