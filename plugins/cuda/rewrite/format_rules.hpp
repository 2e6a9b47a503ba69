// What operators read and write when values between nodes are stored in half precision, or channels last.
#pragma once

#include <cstdint>
#include <string_view>

#include "plugins/cuda/rewrite/recorded_edit.hpp"

namespace backplane::cuda {

/// Which elements a node of float32 wants when it may store them in 16 bits.
enum class Storage : std::uint8_t {
  kAsked,  ///< a product or a convolution: 16 bits, which its speed is of
  kFollow,  ///< 16 bits where one of its operands is: it computes in float32 and rounds what it writes
  kMakes,  ///< 16 bits, of operands that are no floats
  kRead,   ///< reads 16 bits as they are; what it writes is no float, or says itself what it is
  kFloat,  ///< float32, for the reason given
};

/// How a node works on images that lie channels last.
enum class Layout : std::uint8_t {
  kPlain,        ///< not at all
  kConvolution,  ///< asks for it
  kWindow,       ///< pooling
  kElements,     ///< element by element, with broadcasting
  kAxis,         ///< along one axis, which is the attribute
  kMean,         ///< folds the spatial axes
  kAxes,         ///< a constant input has a number for each axis
};

inline constexpr std::size_t kAllInputs = 1000;

struct FormatRule {
  const char* op_type;
  Storage storage;
  Layout layout = Layout::kPlain;
  std::size_t values =
      kAllInputs;  ///< how many inputs, from the first, are values; the others stay as they are
  const char* why = nullptr;  ///< of kFloat: what would go wrong
};

/// The rule of an operator, of ONNX's domain or of a rewrite; one of kFloat for operators that no row names.
const FormatRule& format_rule(std::string_view op_type);

}  // namespace backplane::cuda
