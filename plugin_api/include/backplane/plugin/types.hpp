// Backplane SDK: element types.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "backplane/plugin/error.hpp"

namespace backplane::sdk {

/// Element types, by ONNX's numbers (TensorProto.DataType).
enum class DataType : std::int32_t {
  None = BP_NONE,
  Float = BP_FLOAT,
  UInt8 = BP_UINT8,
  Int8 = BP_INT8,
  UInt16 = BP_UINT16,
  Int16 = BP_INT16,
  Int32 = BP_INT32,
  Int64 = BP_INT64,
  String = BP_STRING,
  Bool = BP_BOOL,
  Float16 = BP_FLOAT16,
  Double = BP_DOUBLE,
  UInt32 = BP_UINT32,
  UInt64 = BP_UINT64,
  Complex64 = BP_COMPLEX64,
  Complex128 = BP_COMPLEX128,
  BFloat16 = BP_BFLOAT16,
  Float8E4M3FN = BP_FLOAT8E4M3FN,
  Float8E4M3FNUZ = BP_FLOAT8E4M3FNUZ,
  Float8E5M2 = BP_FLOAT8E5M2,
  Float8E5M2FNUZ = BP_FLOAT8E5M2FNUZ,
  UInt4 = BP_UINT4,
  Int4 = BP_INT4,
  Float4E2M1 = BP_FLOAT4E2M1,
  Float8E8M0 = BP_FLOAT8E8M0,
  UInt2 = BP_UINT2,
  Int2 = BP_INT2,
};

/// IEEE 754 half precision, stored; arithmetic is done in float.
struct Half {
  std::uint16_t bits;
};

/// The upper half of a float, stored; arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits;
};

/// The element type that a C++ type stores.
template <class T>
constexpr DataType data_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DataType::Float;
  else if constexpr (std::is_same_v<U, double>)
    return DataType::Double;
  else if constexpr (std::is_same_v<U, bool>)
    return DataType::Bool;
  else if constexpr (std::is_same_v<U, std::int8_t>)
    return DataType::Int8;
  else if constexpr (std::is_same_v<U, std::uint8_t>)
    return DataType::UInt8;
  else if constexpr (std::is_same_v<U, std::int16_t>)
    return DataType::Int16;
  else if constexpr (std::is_same_v<U, std::uint16_t>)
    return DataType::UInt16;
  else if constexpr (std::is_same_v<U, std::int32_t>)
    return DataType::Int32;
  else if constexpr (std::is_same_v<U, std::uint32_t>)
    return DataType::UInt32;
  else if constexpr (std::is_same_v<U, std::int64_t>)
    return DataType::Int64;
  else if constexpr (std::is_same_v<U, std::uint64_t>)
    return DataType::UInt64;
  else if constexpr (std::is_same_v<U, Half>)
    return DataType::Float16;
  else if constexpr (std::is_same_v<U, BFloat16>)
    return DataType::BFloat16;
  else
    static_assert(!sizeof(U), "no ONNX element type is stored as this C++ type");
}

/// Bits of one element; 0 for strings and unknown types.
constexpr int element_bits(DataType type) {
  switch (type) {
    case DataType::Bool:
    case DataType::Int8:
    case DataType::UInt8:
    case DataType::Float8E4M3FN:
    case DataType::Float8E4M3FNUZ:
    case DataType::Float8E5M2:
    case DataType::Float8E5M2FNUZ:
    case DataType::Float8E8M0:
      return 8;
    case DataType::Int16:
    case DataType::UInt16:
    case DataType::Float16:
    case DataType::BFloat16:
      return 16;
    case DataType::Float:
    case DataType::Int32:
    case DataType::UInt32:
      return 32;
    case DataType::Double:
    case DataType::Int64:
    case DataType::UInt64:
    case DataType::Complex64:
      return 64;
    case DataType::Complex128:
      return 128;
    case DataType::UInt4:
    case DataType::Int4:
    case DataType::Float4E2M1:
      return 4;
    case DataType::UInt2:
    case DataType::Int2:
      return 2;
    default:
      return 0;
  }
}

/// Bytes of one element of a type whose elements are whole bytes; 0 otherwise.
constexpr int element_bytes(DataType type) {
  return element_bits(type) % 8 == 0 ? element_bits(type) / 8 : 0;
}

/// ONNX's word for an element type: "float", "int64"; "undefined" for an unknown one.
__attribute__((visibility("hidden"))) inline const char* type_name(DataType type) {
  static const char* const kNames[] = {
      "undefined",      "float",    "uint8",        "int8",           "uint16",
      "int16",          "int32",    "int64",        "string",         "bool",
      "float16",        "double",   "uint32",       "uint64",         "complex64",
      "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
      "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
      "uint2",          "int2"};
  const auto index = static_cast<std::int32_t>(type);
  return index >= 0 && index < static_cast<std::int32_t>(std::size(kNames)) ? kNames[index]
                                                                            : kNames[0];
}

/// The ONNX type string of a tensor: "tensor(float)".
inline std::string tensor_type(DataType type) {
  return std::string("tensor(") + type_name(type) + ")";
}

}  // namespace backplane::sdk
