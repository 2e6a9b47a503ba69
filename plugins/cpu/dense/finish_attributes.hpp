// What becomes of the sums of a quantized node, from the attributes that the rewrite gives it.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"

namespace backplane::cpu {

/// Whether the bytes of input `name` are signed: attribute NAME_type, an ONNX type.
inline bool is_signed_input(const sdk::Node& node, const std::string& name) {
  return node.get_int((name + "_type").c_str(), 0) ==
         static_cast<std::int64_t>(sdk::DataType::Int8);
}

/// The result of a quantized node: attributes `to` (an ONNX type: 1 float, 2 uint8, 3 int8), `zero`, `least`
/// and `most` (integers of that type), `lo` and `hi` (floats).
struct QuantizedResult {
  sdk::DataType type;
  FinishU8 finish;

  explicit QuantizedResult(const sdk::Node& node)
      : type(static_cast<sdk::DataType>(node.get_int("to", 0))) {
    finish.floats = type == sdk::DataType::Float;
    finish.lo = node.get_float("lo", 0);
    finish.hi = node.get_float("hi", 0);
    const std::int64_t offset = type == sdk::DataType::Int8 ? 128 : 0;
    finish.flip = static_cast<std::uint8_t>(offset);
    finish.zero = static_cast<std::int32_t>(node.get_int("zero", 0) + offset);
    finish.least = static_cast<std::uint8_t>(node.get_int("least", 0) + offset);
    finish.most = static_cast<std::uint8_t>(node.get_int("most", 0) + offset);
  }
};

}  // namespace backplane::cpu
