// ONNX type strings of sequences and optionals, and copying tensors out of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"

namespace backplane::cpu {

/// The element type of the tensors in "seq(tensor(float))", "optional(seq(tensor(float)))" and the like.
/// Errors: BP_UNSUPPORTED when the type is unknown.
inline sdk::DataType element_type_of(std::string_view type) {
  constexpr std::string_view kTensor = "tensor(";
  const std::size_t begin = type.find(kTensor);
  if (begin != std::string_view::npos) {
    const std::size_t first = begin + kTensor.size();
    const std::string_view name = type.substr(first, type.find(')', first) - first);
    for (int i = BP_FLOAT; i <= BP_INT2; ++i) {
      if (name == sdk::type_name(static_cast<sdk::DataType>(i)))
        return static_cast<sdk::DataType>(i);
    }
  }
  sdk::unsupported("the type '", type, "' is not of tensors with known elements");
}

/// Gives an output of unknown size the dims and the elements of a tensor value.
inline void copy_to_new_output(const sdk::ComputeContext& ctx, const sdk::Value& source,
                               std::uint32_t output) {
  const sdk::Tensor tensor = source.tensor();
  ctx.alloc_output(output, tensor.dims());
  if (tensor.size() > 0) ElementMover(source, ctx.output_value(output)).copy(0, 0, tensor.size());
}

}  // namespace backplane::cpu
