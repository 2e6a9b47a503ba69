// In what type a product holds its constant weights: the attribute of a node that a rewrite makes, and the device's option.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

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

/// Weights that are read as they are have to be packed. Where a node is evaluated while planning, the device's own kernel takes it.
inline void check_weights(const sdk::Tensor& b, bool packed) {
  if (!packed && b.type() != sdk::DataType::Float)
    sdk::unsupported("weights of ", sdk::type_name(b.type()), " must be constant");
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

/// What a matrix product asks for its packed weights by. What they have in common is put into words once: prepare asks again
/// for each size.
class ProductKey {
 public:
  ProductKey(sdk::DataType weight_type, ProductPrecision precision, Isa isa, float alpha)
      : before_(sdk::message("matmul ", packed_variant(weight_type, precision), " isa ",
                             static_cast<int>(isa), " dims ")),
        after_(sdk::message(" alpha ", alpha)) {}
  std::string of(sdk::DimsView dims, bool transposed) const {
    return before_ + sdk::to_string(dims) + (transposed ? " transposed 1" : " transposed 0") +
           after_;
  }

 private:
  std::string before_, after_;
};

}  // namespace backplane::cpu
