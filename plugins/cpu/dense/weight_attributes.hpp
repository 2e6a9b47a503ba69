// In what type a product holds its constant weights, as the attribute of a node that a rewrite makes.
#pragma once

#include "backplane/plugin.hpp"

namespace backplane::cpu {

constexpr const char* kWeightType = "weight_type";

/// Float, or a type of 16 bits that holds every weight exactly.
inline sdk::DataType weight_type_of(const sdk::Node& node) {
  return static_cast<sdk::DataType>(
      node.get_int(kWeightType, static_cast<std::int64_t>(sdk::DataType::Float)));
}

/// Weights that are read as they are have to be packed.
inline void check_weights(const sdk::Tensor& b, bool packed) {
  if (!packed && b.type() != sdk::DataType::Float)
    sdk::invalid("weights of ", sdk::type_name(b.type()), " must be constant");
}

/// What the plan calls a product of packed weights.
inline const char* packed_variant(sdk::DataType weight_type) {
  switch (weight_type) {
    case sdk::DataType::Float16:
      return "packed as float16";
    case sdk::DataType::BFloat16:
      return "packed as bfloat16";
    default:
      return "packed";
  }
}

}  // namespace backplane::cpu
