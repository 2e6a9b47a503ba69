// Models that were saved with operators of a provider's own.
#pragma once

#include <onnx/onnx_pb.h>

#include "core/onnx/importer.hpp"

namespace backplane::core {

/// Lets the options accept the private operators of a model whose metadata say that it has such. Throws Unsupported,
/// saying which device they are for, when nobody does.
void accept_private_operators(const ::onnx::ModelProto& model, const ImportOptions& options);

}  // namespace backplane::core
