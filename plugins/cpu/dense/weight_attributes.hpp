// In what type a product holds its constant weights: the attribute of a node that a rewrite makes, and the device's option.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

constexpr const char* kWeightType = "weight_type";

/// How products and convolutions of constant weights compute; sums are float.
enum class ProductPrecision {
  kFloat,
  kBFloatWeights,  // products hold weights rounded to bfloat16, and multiply floats
  kBFloat,         // both operands are rounded to bfloat16
};

/// In what type weights are held that are floats.
inline sdk::DataType product_weights(ProductPrecision precision) {
  return precision == ProductPrecision::kBFloatWeights ? sdk::DataType::BFloat16
                                                       : sdk::DataType::Float;
}

/// Float, or a type of 16 bits that holds every weight exactly or to which `precision` has them rounded.
inline sdk::DataType weight_type_of(const sdk::Node& node, ProductPrecision precision) {
  const auto type = static_cast<sdk::DataType>(
      node.get_int(kWeightType, static_cast<std::int64_t>(sdk::DataType::Float)));
  return type == sdk::DataType::Float ? product_weights(precision) : type;
}

/// Weights that are read as they are have to be packed.
inline void check_weights(const sdk::Tensor& b, bool packed) {
  if (!packed && b.type() != sdk::DataType::Float)
    sdk::invalid("weights of ", sdk::type_name(b.type()), " must be constant");
}

/// What the plan calls a product of packed weights.
inline const char* packed_variant(sdk::DataType weight_type, ProductPrecision precision) {
  if (precision == ProductPrecision::kBFloat) return "rounded to bfloat16";
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
