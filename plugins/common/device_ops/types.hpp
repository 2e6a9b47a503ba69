// Kinds of element types.
#pragma once

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

/// Whether elements are numbers with a fraction, of any precision that kernels compute in.
inline bool is_float(sdk::DataType type) {
  return type == sdk::DataType::Float || type == sdk::DataType::Double ||
         type == sdk::DataType::Float16 || type == sdk::DataType::BFloat16;
}

inline bool is_half(sdk::DataType type) {
  return type == sdk::DataType::Float16 || type == sdk::DataType::BFloat16;
}

/// The unsigned integer of an element's size, for what only moves elements.
inline sdk::DataType word_of(sdk::DataType type) {
  const int bytes = sdk::element_bytes(type);
  return bytes == 1   ? sdk::DataType::UInt8
         : bytes == 2 ? sdk::DataType::UInt16
         : bytes == 4 ? sdk::DataType::UInt32
                      : sdk::DataType::UInt64;
}

}  // namespace backplane::device_ops
