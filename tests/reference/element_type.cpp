#include "tests/reference/element_type.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace backplane::reference {
namespace {

enum class Kind { Float, Integer, Other };
/// How a floating-point type writes what is no finite number.
enum class Special { Ieee, OnlyNan, NegativeZeroIsNan, None };

struct Format {
  ElementType type;
  std::string_view name;
  Kind kind;
  int bits;
  bool has_sign = true;
  int fraction_bits = 0;
  int bias = 0;
  Special special = Special::Ieee;
};

constexpr Format kFormats[] = {
    {ElementType::Float, "float", Kind::Float, 32, true, 23, 127},
    {ElementType::Double, "double", Kind::Float, 64, true, 52, 1023},
    {ElementType::Float16, "float16", Kind::Float, 16, true, 10, 15},
    {ElementType::BFloat16, "bfloat16", Kind::Float, 16, true, 7, 127},
    {ElementType::Float8E4M3FN, "float8e4m3fn", Kind::Float, 8, true, 3, 7, Special::OnlyNan},
    {ElementType::Float8E4M3FNUZ, "float8e4m3fnuz", Kind::Float, 8, true, 3, 8,
     Special::NegativeZeroIsNan},
    {ElementType::Float8E5M2, "float8e5m2", Kind::Float, 8, true, 2, 15},
    {ElementType::Float8E5M2FNUZ, "float8e5m2fnuz", Kind::Float, 8, true, 2, 16,
     Special::NegativeZeroIsNan},
    {ElementType::Float4E2M1, "float4e2m1", Kind::Float, 4, true, 1, 1, Special::None},
    {ElementType::Int8, "int8", Kind::Integer, 8},
    {ElementType::Int16, "int16", Kind::Integer, 16},
    {ElementType::Int32, "int32", Kind::Integer, 32},
    {ElementType::Int64, "int64", Kind::Integer, 64},
    {ElementType::Int4, "int4", Kind::Integer, 4},
    {ElementType::Int2, "int2", Kind::Integer, 2},
    {ElementType::UInt8, "uint8", Kind::Integer, 8, false},
    {ElementType::UInt16, "uint16", Kind::Integer, 16, false},
    {ElementType::UInt32, "uint32", Kind::Integer, 32, false},
    {ElementType::UInt64, "uint64", Kind::Integer, 64, false},
    {ElementType::UInt4, "uint4", Kind::Integer, 4, false},
    {ElementType::UInt2, "uint2", Kind::Integer, 2, false},
    {ElementType::Bool, "bool", Kind::Other, 8, false},
    {ElementType::String, "string", Kind::Other, 0, false},
};

constexpr std::size_t kNumbers = 32;  // more than any ElementType

/// Formats by the numbers of their types: every element of every tensor asks for one.
constexpr std::array<const Format*, kNumbers> kFormatOf = [] {
  std::array<const Format*, kNumbers> formats{};
  for (const Format& format : kFormats) formats[static_cast<std::size_t>(format.type)] = &format;
  return formats;
}();

const Format& format_of(ElementType type) {
  const auto number = static_cast<std::size_t>(type);
  if (number < kNumbers && kFormatOf[number] != nullptr) return *kFormatOf[number];
  throw std::logic_error("tests/reference knows no element type " +
                         std::to_string(static_cast<int>(type)));
}

constexpr int kDoubleBias = 1023, kDoubleFractionBits = 52;

/// 2^exponent, of -1022 to 1023. std::ldexp, which takes all, takes several times as long.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kDoubleBias)
                               << kDoubleFractionBits);
}

/// The exponent of a finite number; of 0 and of what is smaller than normal numbers one below theirs.
int exponent_of(double value) {
  const auto field = (std::bit_cast<std::uint64_t>(value) >> kDoubleFractionBits) & 0x7FFu;
  return static_cast<int>(field) - kDoubleBias;
}

/// The exponent field of the largest finite number and its fraction field.
struct Largest {
  int exponent;
  int fraction;
};

Largest largest_of(const Format& format) {
  const int exponent_bits = format.bits - 1 - format.fraction_bits;
  const int all_exponent = (1 << exponent_bits) - 1;
  const int all_fraction = (1 << std::min(format.fraction_bits, 30)) - 1;
  switch (format.special) {
    case Special::Ieee:
      return {all_exponent - 1, all_fraction};
    case Special::OnlyNan:
      return {all_exponent, all_fraction - 1};
    default:
      return {all_exponent, all_fraction};
  }
}

double greatest_float(const Format& format) {
  if (format.type == ElementType::Double) return std::numeric_limits<double>::max();
  const Largest largest = largest_of(format);
  const double fraction = 1 + largest.fraction * power_of_two(-format.fraction_bits);
  return fraction * power_of_two(largest.exponent - format.bias);
}

double round_float(const Format& format, double value) {
  if (format.type == ElementType::Double || std::isnan(value)) return value;
  if (format.type == ElementType::Float) return static_cast<float>(value);
  if (format.special == Special::NegativeZeroIsNan && value == 0) return 0;
  const double limit = greatest_float(format);
  double rounded = value;
  if (std::isfinite(value) && value != 0) {
    const int exponent = std::max(exponent_of(value), 1 - format.bias);
    const double unit = power_of_two(exponent - format.fraction_bits);
    rounded = std::nearbyint(value / unit) * unit;
  }
  if (std::abs(rounded) <= limit) {
    return format.special == Special::NegativeZeroIsNan && rounded == 0 ? 0 : rounded;
  }
  if (format.special == Special::Ieee) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  if (format.special == Special::None) return std::copysign(limit, value);
  return std::numeric_limits<double>::quiet_NaN();
}

std::uint64_t mask_of(int bit_count) {
  return bit_count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bit_count) - 1;
}

std::uint64_t integer_bits(double value) {
  value = std::trunc(value);
  if (value >= -0x1p63 && value < 0x1p63) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  }
  if (value >= 0x1p63 && value < 0x1p64) return static_cast<std::uint64_t>(value);
  const double low = std::fmod(value, 0x1p64);
  const auto magnitude = static_cast<std::uint64_t>(std::abs(low));
  return low < 0 ? ~magnitude + 1 : magnitude;
}

double integer_value(const Format& format, std::uint64_t pattern) {
  pattern &= mask_of(format.bits);
  const bool negative = format.has_sign && ((pattern >> (format.bits - 1)) & 1u) != 0;
  if (!negative) return static_cast<double>(pattern);
  return -static_cast<double>((~pattern & mask_of(format.bits)) + 1);
}

std::uint64_t encode_float(const Format& format, double value) {
  if (format.type == ElementType::Double) {
    std::uint64_t pattern = 0;
    std::memcpy(&pattern, &value, sizeof(pattern));
    return pattern;
  }
  if (format.type == ElementType::Float && !std::isnan(value)) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  const double rounded = round_float(format, value);
  const std::uint64_t sign_bit = std::uint64_t{1} << (format.bits - 1);
  const std::uint64_t sign = std::signbit(rounded) ? sign_bit : 0;
  const std::uint64_t fraction_mask = mask_of(format.fraction_bits);
  const std::uint64_t exponents = mask_of(format.bits - 1) & ~fraction_mask;
  if (std::isnan(rounded)) {
    if (format.special == Special::NegativeZeroIsNan) return sign_bit;
    if (format.special == Special::OnlyNan) return exponents | fraction_mask;
    return exponents | (std::uint64_t{1} << (format.fraction_bits - 1));
  }
  if (std::isinf(rounded)) return sign | exponents;
  const double magnitude = std::abs(rounded);
  const int exponent = std::max(exponent_of(magnitude), 1 - format.bias);
  const auto units = static_cast<std::uint64_t>(
      magnitude * power_of_two(format.fraction_bits - exponent));  // with the hidden bit, if any
  const std::uint64_t hidden = std::uint64_t{1} << format.fraction_bits;
  if (units < hidden) return sign | units;
  const std::int64_t biased = std::int64_t{exponent} + format.bias;
  const auto field = static_cast<std::uint64_t>(biased);
  return sign | (field << format.fraction_bits) | (units - hidden);
}

double decode_float(const Format& format, std::uint64_t pattern) {
  if (format.type == ElementType::Double) {
    double value = 0;
    std::memcpy(&value, &pattern, sizeof(value));
    return value;
  }
  if (format.type == ElementType::Float) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
  }
  pattern &= mask_of(format.bits);
  const bool negative = (pattern >> (format.bits - 1)) != 0;
  const auto fraction = static_cast<int>(pattern & mask_of(format.fraction_bits));
  const int exponent_bits = format.bits - 1 - format.fraction_bits;
  const auto exponent =
      static_cast<int>((pattern >> format.fraction_bits) & mask_of(exponent_bits));
  const bool top = exponent == (1 << exponent_bits) - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double sign = negative ? -1 : 1;
  if (format.special == Special::Ieee && top) {
    return fraction != 0 ? nan : sign * std::numeric_limits<double>::infinity();
  }
  const int all_fraction = (1 << format.fraction_bits) - 1;
  if (format.special == Special::OnlyNan && top && fraction == all_fraction) return nan;
  if (format.special == Special::NegativeZeroIsNan && negative && exponent == 0 && fraction == 0) {
    return nan;
  }
  const double scaled = fraction * power_of_two(-format.fraction_bits);
  if (exponent == 0) return sign * scaled * power_of_two(1 - format.bias);
  return sign * (1 + scaled) * power_of_two(exponent - format.bias);
}

}  // namespace

std::string_view name(ElementType type) {
  return type == ElementType::Undefined ? "undefined" : format_of(type).name;
}

bool is_float(ElementType type) { return format_of(type).kind == Kind::Float; }
bool is_integer(ElementType type) { return format_of(type).kind == Kind::Integer; }
bool is_signed(ElementType type) { return format_of(type).has_sign; }
int bits(ElementType type) { return format_of(type).bits; }
double epsilon(ElementType type) { return std::ldexp(1.0, -format_of(type).fraction_bits); }

double smallest(ElementType type) {
  const Format& format = format_of(type);
  return std::ldexp(1.0, 1 - format.bias - format.fraction_bits);
}

double lowest(ElementType type) {
  const Format& format = format_of(type);
  if (format.kind == Kind::Float) return -greatest_float(format);
  return format.kind == Kind::Integer && format.has_sign ? -std::ldexp(1.0, format.bits - 1) : 0;
}

double highest(ElementType type) {
  const Format& format = format_of(type);
  if (format.kind == Kind::Float) return greatest_float(format);
  if (format.kind != Kind::Integer) return 1;
  const int value_bits = format.bits - (format.has_sign ? 1 : 0);
  // 2^63 - 1 and 2^64 - 1 are no doubles; the next below them are.
  return value_bits > 53 ? std::nextafter(std::ldexp(1.0, value_bits), 0)
                         : std::ldexp(1.0, value_bits) - 1;
}

double round_to(ElementType type, double value) {
  const Format& format = format_of(type);
  if (format.kind == Kind::Float) return round_float(format, value);
  if (format.kind == Kind::Integer) return integer_value(format, integer_bits(value));
  return type == ElementType::Bool ? static_cast<double>(value != 0) : value;
}

double saturate_to(ElementType type, double value) {
  if (std::isnan(value)) return 0;
  return std::fmin(std::fmax(std::nearbyint(value), lowest(type)), highest(type));
}

std::uint64_t encode(ElementType type, double value) {
  const Format& format = format_of(type);
  if (format.kind == Kind::Float) return encode_float(format, value);
  if (format.kind == Kind::Integer) return integer_bits(value) & mask_of(format.bits);
  return value != 0 ? 1 : 0;
}

double decode(ElementType type, std::uint64_t pattern) {
  const Format& format = format_of(type);
  if (format.kind == Kind::Float) return decode_float(format, pattern);
  if (format.kind == Kind::Integer) return integer_value(format, pattern);
  return (pattern & 0xFFu) != 0 ? 1 : 0;
}

}  // namespace backplane::reference
