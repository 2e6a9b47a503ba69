// Element types of ONNX and their arithmetic of bits, from their definitions: the tests' own, so
// that an error in a plugin's conversions is not repeated here.
#pragma once

#include <cstdint>
#include <string_view>

namespace backplane::reference {

/// By the numbers of TensorProto.DataType.
enum class ElementType : std::int32_t {
  Undefined = 0,
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
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  UInt2 = 25,
  Int2 = 26,
};

/// ONNX's word, such as "float16".
std::string_view name(ElementType type);

bool is_float(ElementType type);
bool is_integer(ElementType type);  // Bool is none
bool is_signed(ElementType type);

/// Bits of one element; 0 for String.
int bits(ElementType type);

/// Of a floating-point type: the distance from 1 to the next number.
double epsilon(ElementType type);
/// Of a floating-point type: the smallest positive number.
double smallest(ElementType type);
/// The least and the greatest finite value.
double lowest(ElementType type);
double highest(ElementType type);

/// `value` as an element of `type`. Floating point: rounded to nearest, ties to even; what is too
/// large becomes an infinity, or NaN where the type has none. Integers: the fraction is cut off,
/// then modulo 2^bits. Bool: != 0.
double round_to(ElementType type, double value);

/// `value` into the range of an integer type, rounded to nearest even; NaN becomes 0.
double saturate_to(ElementType type, double value);

/// The bits of round_to(type, value), and the value of bits.
std::uint64_t encode(ElementType type, double value);
double decode(ElementType type, std::uint64_t pattern);

}  // namespace backplane::reference
