// The inputs of ONNX's integer products and convolutions, and of what chains of quantisation become.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {

/// Places of the inputs beside a, which is 0; one that an operator has not is past the end of any node's.
struct IntegerPlaces {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  std::uint32_t b = 1, a_zero = 2, b_zero = 3;
  std::uint32_t a_scale = kNone, b_scale = kNone, y_scale = kNone, y_zero = kNone, bias = kNone;
  bool is_chain = false;  ///< results without a scale are floats
};
inline constexpr IntegerPlaces kSums{};
inline constexpr IntegerPlaces kScaled{3, 2, 5, 1, 4, 6, 7, 8, false};
/// The same inputs as kScaled; the bias is of floats, and y's scale and zero point may be left out.
inline constexpr IntegerPlaces kChain{3, 2, 5, 1, 4, 6, 7, 8, true};

inline void require_bytes(const sdk::Tensor& a, const sdk::Tensor& b) {
  for (const sdk::Tensor& tensor : {a, b}) {
    if (tensor.type() != DataType::Int8 && tensor.type() != DataType::UInt8)
      sdk::unsupported("integer products of ", sdk::type_name(a.type()), " and ",
                       sdk::type_name(b.type()), " are not handled");
  }
}

/// The type of a chain's result that is no longer quantized: float32, or what the rewrite wants.
inline DataType chain_type(const sdk::Node& node) {
  return static_cast<DataType>(node.get_int("type", static_cast<std::int64_t>(DataType::Float)));
}

/// Errors: BP_UNSUPPORTED for quantized results of other types than eight bits.
inline DataType result_type(const sdk::PrepareContext& ctx, const IntegerPlaces& places,
                            DataType of_chain) {
  if (places.y_scale == IntegerPlaces::kNone) return DataType::Int32;
  const sdk::Tensor zero = ctx.input(places.y_zero);
  if (!zero.present()) return ctx.input(places.y_scale).present() ? DataType::UInt8 : of_chain;
  if (zero.type() != DataType::Int8 && zero.type() != DataType::UInt8)
    sdk::unsupported("a result of type ", sdk::type_name(zero.type()), " of an integer product");
  return zero.type();
}

/// Whether a zero point is known to be zero, and the elements are not moved: then nothing is taken off.
inline bool is_known_zero(const sdk::PrepareContext& ctx, std::uint32_t place, int shift) {
  const sdk::Tensor zero = ctx.input(place);
  if (!zero.present() || shift != 0 || !ctx.input_constant(place)) return false;
  const auto* const bytes = zero.data<std::uint8_t>();
  if (bytes == nullptr) return false;
  for (std::int64_t i = 0; i < zero.size(); ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

}  // namespace backplane::cuda
