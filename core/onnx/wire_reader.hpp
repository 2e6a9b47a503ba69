// Models on the wire: large tensor data stays where it is, the rest goes to protobuf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace backplane::core {

/// Contents of a tensor of at most so many bytes go through protobuf, where shape inference can read them.
inline constexpr std::size_t kInlineBytes = 1024;

/// So deep may graphs, nodes, attributes and tensors lie in one another, which is protobuf's usual bound. The types of
/// values in them go a few messages deeper.
inline constexpr int kDeepestMessage = 100;
inline constexpr int kDeepestPart = kDeepestMessage + 20;

/// A serialized model without its large tensor data.
///
/// Each TensorProto of an initializer or attribute (of the main graph, bodies, functions) whose contents lie in one
/// piece of more than kInlineBytes, as raw_data or as packed float_data or double_data of a fitting type, has instead
/// a `segment`: the piece's first and last+1 byte in the model. Models that use segments themselves are refused (ONNX
/// reserves them for a format that never was). Training information is left out.
std::string reduce_model(std::span<const std::byte> model);

}  // namespace backplane::core
