// Element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace backplane::core {

/// ONNX element types, by the numbers of TensorProto.DataType.
enum class DataType : std::int32_t {
  None = 0,
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  Float8E8M0 = 24,
  UInt2 = 25,
  Int2 = 26,
};

/// Bits of one element; 0 for None and String.
int element_bits(DataType type);

/// ONNX's word: "float", "int64"; "undefined" for None.
std::string_view name(DataType type);

/// The inverse of name().
std::optional<DataType> data_type_named(std::string_view name);

/// Bytes that `count` elements take, sub-byte elements packed; nullopt when that overflows 63 bits.
std::optional<std::uint64_t> storage_bytes(DataType type, std::uint64_t count);

}  // namespace backplane::core
