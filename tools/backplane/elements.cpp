#include "tools/backplane/elements.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstring>
#include <limits>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

enum class Family { None, Float, Complex, Signed, Unsigned, Bool, String };

struct ElementRow {
  ElementType type;
  const char* name;
  int bits;
  Family family;
};

constexpr std::array<ElementRow, 26> kRows = {{
    {ElementType::Float, "float", 32, Family::Float},
    {ElementType::UInt8, "uint8", 8, Family::Unsigned},
    {ElementType::Int8, "int8", 8, Family::Signed},
    {ElementType::UInt16, "uint16", 16, Family::Unsigned},
    {ElementType::Int16, "int16", 16, Family::Signed},
    {ElementType::Int32, "int32", 32, Family::Signed},
    {ElementType::Int64, "int64", 64, Family::Signed},
    {ElementType::String, "string", 0, Family::String},
    {ElementType::Bool, "bool", 8, Family::Bool},
    {ElementType::Float16, "float16", 16, Family::Float},
    {ElementType::Double, "double", 64, Family::Float},
    {ElementType::UInt32, "uint32", 32, Family::Unsigned},
    {ElementType::UInt64, "uint64", 64, Family::Unsigned},
    {ElementType::Complex64, "complex64", 64, Family::Complex},
    {ElementType::Complex128, "complex128", 128, Family::Complex},
    {ElementType::BFloat16, "bfloat16", 16, Family::Float},
    {ElementType::Float8E4M3FN, "float8e4m3fn", 8, Family::Float},
    {ElementType::Float8E4M3FNUZ, "float8e4m3fnuz", 8, Family::Float},
    {ElementType::Float8E5M2, "float8e5m2", 8, Family::Float},
    {ElementType::Float8E5M2FNUZ, "float8e5m2fnuz", 8, Family::Float},
    {ElementType::UInt4, "uint4", 4, Family::Unsigned},
    {ElementType::Int4, "int4", 4, Family::Signed},
    {ElementType::Float4E2M1, "float4e2m1", 4, Family::Float},
    {ElementType::Float8E8M0, "float8e8m0", 8, Family::Float},
    {ElementType::UInt2, "uint2", 2, Family::Unsigned},
    {ElementType::Int2, "int2", 2, Family::Signed},
}};

const ElementRow* find(ElementType type) {
  for (const ElementRow& row : kRows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

Family family(ElementType type) {
  const ElementRow* row = find(type);
  return row == nullptr ? Family::None : row->family;
}

template <class T>
T read(const void* data, std::uint64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

/// How a small float is laid out: sign, exponent, mantissa from the top.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};

/// The value, where no bit pattern is set apart.
double plain_value(std::uint64_t bits, const SmallFloat& layout) {
  const std::uint64_t mantissa = bits & ((1u << layout.mantissa_bits) - 1);
  const int exponent =
      static_cast<int>((bits >> layout.mantissa_bits) & ((1u << layout.exponent_bits) - 1));
  const bool negative = ((bits >> (layout.mantissa_bits + layout.exponent_bits)) & 1) != 0;
  const std::uint64_t implied = exponent == 0 ? 0 : std::uint64_t{1} << layout.mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - layout.bias - layout.mantissa_bits;
  const double value = std::ldexp(static_cast<double>(mantissa + implied), scale);
  return negative ? -value : value;
}

/// Likewise with infinities and NaN at the largest exponent, as IEEE 754 has them.
double ieee_value(std::uint64_t bits, const SmallFloat& layout) {
  const std::uint64_t top = (1u << layout.exponent_bits) - 1;
  if (((bits >> layout.mantissa_bits) & top) != top) return plain_value(bits, layout);
  if ((bits & ((1u << layout.mantissa_bits) - 1)) != 0) return std::nan("");
  const bool negative = ((bits >> (layout.mantissa_bits + layout.exponent_bits)) & 1) != 0;
  const double infinity = std::numeric_limits<double>::infinity();
  return negative ? -infinity : infinity;
}

/// https://onnx.ai/onnx/technical/float8.html, float4.html
double small_float_value(ElementType type, std::uint64_t bits) {
  switch (type) {
    case ElementType::Float16:
      return ieee_value(bits, {5, 10, 15});
    case ElementType::BFloat16:
      return ieee_value(bits, {8, 7, 127});
    case ElementType::Float8E5M2:
      return ieee_value(bits, {5, 2, 15});
    case ElementType::Float8E4M3FN:
      return (bits & 0x7F) == 0x7F ? std::nan("") : plain_value(bits, {4, 3, 7});
    case ElementType::Float8E4M3FNUZ:
      return bits == 0x80 ? std::nan("") : plain_value(bits, {4, 3, 8});
    case ElementType::Float8E5M2FNUZ:
      return bits == 0x80 ? std::nan("") : plain_value(bits, {5, 2, 16});
    case ElementType::Float8E8M0:
      return bits == 0xFF ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case ElementType::Float4E2M1:
      return plain_value(bits, {2, 1, 1});
    default:
      return std::nan("");
  }
}

/// The fewest digits that are read as this number again, in its own type.
template <class T>
std::string number_text(T value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end.ptr};
}

template <class T>
std::string complex_text(std::complex<T> value) {
  return number_text(value.real()) + (std::signbit(value.imag()) ? "-" : "+") +
         number_text(std::fabs(value.imag())) + "i";
}

}  // namespace

int element_bits(ElementType type) {
  const ElementRow* row = find(type);
  return row == nullptr ? 0 : row->bits;
}

bool is_floating(ElementType type) {
  return family(type) == Family::Float || family(type) == Family::Complex;
}

bool is_complex(ElementType type) { return family(type) == Family::Complex; }

std::string element_name(ElementType type) {
  const ElementRow* row = find(type);
  return row == nullptr ? "undefined" : row->name;
}

ElementType element_named(const std::string& name) {
  for (const ElementRow& row : kRows) {
    if (name == row.name) return row.type;
  }
  return ElementType::None;
}

std::uint64_t element_bits_at(ElementType type, const void* data, std::uint64_t index) {
  const int bits = element_bits(type);
  switch (bits) {
    case 64:
      return read<std::uint64_t>(data, index);
    case 32:
      return read<std::uint32_t>(data, index);
    case 16:
      return read<std::uint16_t>(data, index);
    case 8:
      return read<std::uint8_t>(data, index);
    default: {  // packed, the first element in the lowest bits
      const std::uint64_t per_byte = 8u / static_cast<unsigned>(bits);
      const unsigned shift = static_cast<unsigned>(index % per_byte) * static_cast<unsigned>(bits);
      return (read<std::uint8_t>(data, index / per_byte) >> shift) & ((1u << bits) - 1);
    }
  }
}

double element_at(ElementType type, const void* data, std::uint64_t index) {
  if (type == ElementType::Float) return read<float>(data, index);
  if (type == ElementType::Double) return read<double>(data, index);
  const std::uint64_t bits = element_bits_at(type, data, index);
  switch (family(type)) {
    case Family::Signed: {
      const int unused = 64 - element_bits(type);
      return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
    }
    case Family::Unsigned:
      return static_cast<double>(bits);
    case Family::Bool:
      return bits != 0 ? 1 : 0;
    default:
      return small_float_value(type, bits);
  }
}

namespace {

/// An element of a signed integer type.
std::int64_t signed_at(ElementType type, const void* data, std::uint64_t index) {
  const int unused = 64 - element_bits(type);
  return static_cast<std::int64_t>(element_bits_at(type, data, index) << unused) >> unused;
}

}  // namespace

double integer_distance(ElementType type, const void* a, const void* b, std::uint64_t index) {
  std::uint64_t x = element_bits_at(type, a, index), y = element_bits_at(type, b, index);
  if (family(type) ==
      Family::Signed) {  // moved up by half the range, which keeps order and distance
    constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
    x = static_cast<std::uint64_t>(signed_at(type, a, index)) + kHalf;
    y = static_cast<std::uint64_t>(signed_at(type, b, index)) + kHalf;
  }
  return static_cast<double>(x > y ? x - y : y - x);
}

std::string element_text(ElementType type, const void* data, std::uint64_t index) {
  if (type == ElementType::Complex64) return complex_text(read<std::complex<float>>(data, index));
  if (type == ElementType::Complex128) return complex_text(read<std::complex<double>>(data, index));
  if (type == ElementType::Float) return number_text(read<float>(data, index));
  switch (family(type)) {
    case Family::Signed:
      return std::to_string(signed_at(type, data, index));
    case Family::Unsigned:
      return std::to_string(element_bits_at(type, data, index));
    case Family::Bool:
      return element_at(type, data, index) != 0 ? "true" : "false";
    default:
      return number_text(element_at(type, data, index));
  }
}

std::uint16_t bfloat16_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::uint16_t float16_bits(float value) {
  const float size = std::fabs(value);
  const unsigned sign = std::signbit(value) ? 0x8000 : 0;
  if (size < 0x1p-14f) return static_cast<std::uint16_t>(sign | std::lrint(size * 0x1p24f));
  int exponent = 0;
  const float mantissa = std::frexp(size, &exponent);        // in [0.5, 1)
  const long scaled = std::lrint(std::ldexp(mantissa, 11));  // in [1024, 2048]
  // The mantissa's leading bit adds the last one to the exponent, and so does a carry.
  const long magnitude = (static_cast<long>(exponent + 13) << 10) + scaled;
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(magnitude));
}

ElementType tensor_element(const std::string& type) {
  if (type.rfind("tensor(", 0) != 0 || type.back() != ')') return ElementType::None;
  return element_named(type.substr(7, type.size() - 8));
}

std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string result = "[";
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (axis > 0) result += ",";
    result += std::to_string(dims[axis]);
  }
  return result + "]";
}

}  // namespace backplane::cli
