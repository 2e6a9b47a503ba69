#include "core/base/element_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace backplane::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A binary float of at most 16 bits with a sign.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  enum Specials {
    Ieee,      ///< the largest exponent is infinity and NaN
    OneNan,    ///< all ones is NaN, there is no infinity
    NanAtTop,  ///< the sign bit alone is NaN; there is no infinity and no -0
    None,
  } specials;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t magnitude_mask() const { return sign_bit() - 1; }
  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  std::uint32_t nan() const {
    if (specials == Ieee) return infinity() | (1u << (mantissa_bits - 1));
    return specials == OneNan ? magnitude_mask() : sign_bit();
  }
  std::uint32_t largest() const {
    if (specials == Ieee) return infinity() - 1;
    return specials == OneNan ? magnitude_mask() - 1 : magnitude_mask();
  }

  double decode(std::uint32_t word) const {
    const std::uint32_t magnitude = word & magnitude_mask();
    if (specials == NanAtTop && word == sign_bit()) return std::nan("");
    if (specials == OneNan && magnitude == magnitude_mask()) return std::nan("");
    const double sign = (word & sign_bit()) != 0 ? -1 : 1;
    if (specials == Ieee && magnitude >= infinity())
      return magnitude == infinity() ? sign * kInfinity : std::nan("");
    const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
    const auto mantissa = static_cast<double>(magnitude & ((1u << mantissa_bits) - 1));
    const double one = static_cast<double>(1u << mantissa_bits);
    const double significand = exponent == 0 ? mantissa : one + mantissa;
    return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
  }

  std::uint32_t encode(double number) const {
    if (std::isnan(number)) return specials == None ? 0 : nan();
    const std::uint32_t sign = std::signbit(number) ? sign_bit() : 0;
    const double magnitude = std::fabs(number);
    const double top = decode(largest());
    int exponent = 0;
    std::frexp(std::isinf(magnitude) ? top : magnitude, &exponent);
    exponent = std::max(exponent - 1, 1 - bias);  // of the leading bit; subnormals share the least
    const double quantum = std::ldexp(1.0, exponent - mantissa_bits);
    const double rounded =
        std::isinf(magnitude) ? kInfinity : std::nearbyint(magnitude / quantum) * quantum;
    if (rounded > top) return sign | (specials == Ieee ? infinity() : largest());
    const auto steps = static_cast<std::uint32_t>(rounded / quantum);
    // Steps of a normal number include its leading one, which the exponent field counts.
    std::uint32_t word = steps;
    if (rounded >= std::ldexp(1.0, 1 - bias))
      word = (static_cast<std::uint32_t>(exponent + bias - 1) << mantissa_bits) + steps;
    return specials == NanAtTop && word == 0 ? 0 : sign | word;
  }
};

const SmallFloat* small_float(DataType type) {
  static constexpr SmallFloat kHalf{5, 10, 15, SmallFloat::Ieee};
  static constexpr SmallFloat kBrain{8, 7, 127, SmallFloat::Ieee};
  static constexpr SmallFloat kE4M3{4, 3, 7, SmallFloat::OneNan};
  static constexpr SmallFloat kE4M3Uz{4, 3, 8, SmallFloat::NanAtTop};
  static constexpr SmallFloat kE5M2{5, 2, 15, SmallFloat::Ieee};
  static constexpr SmallFloat kE5M2Uz{5, 2, 16, SmallFloat::NanAtTop};
  static constexpr SmallFloat kE2M1{2, 1, 1, SmallFloat::None};
  switch (type) {
    case DataType::Float16:
      return &kHalf;
    case DataType::BFloat16:
      return &kBrain;
    case DataType::Float8E4M3FN:
      return &kE4M3;
    case DataType::Float8E4M3FNUZ:
      return &kE4M3Uz;
    case DataType::Float8E5M2:
      return &kE5M2;
    case DataType::Float8E5M2FNUZ:
      return &kE5M2Uz;
    case DataType::Float4E2M1:
      return &kE2M1;
    default:
      return nullptr;
  }
}

/// A power of two, its exponent biased by 127; 255 is NaN.
double decode_scale(std::uint32_t word) {
  return word == 255 ? std::nan("") : std::ldexp(1.0, static_cast<int>(word) - 127);
}

std::uint32_t encode_scale(double number) {
  if (std::isnan(number)) return 255;
  if (!(number > 0)) return 0;
  int exponent = 0;
  const double fraction = std::isinf(number) ? 1 : std::frexp(number, &exponent);
  if (std::isinf(number)) return 254;
  const int below = exponent - 1 + 127;  // number is between 2^(exponent-1) and 2^exponent
  const bool up = fraction > 0.75 || (fraction == 0.75 && below % 2 != 0);
  return static_cast<std::uint32_t>(std::clamp(below + (up ? 1 : 0), 0, 254));
}

bool is_signed(DataType type) {
  return type == DataType::Int8 || type == DataType::Int16 || type == DataType::Int32 ||
         type == DataType::Int64 || type == DataType::Int4 || type == DataType::Int2;
}

/// The `bits` bits at `index`; those of less than a byte lie from the lowest bit on.
std::uint64_t read_bits(const std::byte* elements, std::uint64_t index, unsigned bits) {
  if (bits >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, elements + index * (bits / 8), bits / 8);
    return word;
  }
  const std::uint64_t at = index * bits;
  return (std::to_integer<std::uint64_t>(elements[at / 8]) >> (at % 8)) & ((1u << bits) - 1);
}

void write_bits(std::byte* elements, std::uint64_t index, unsigned bits, std::uint64_t word) {
  if (bits >= 8) {
    std::memcpy(elements + index * (bits / 8), &word, bits / 8);
    return;
  }
  const std::uint64_t at = index * bits;
  const auto mask = static_cast<std::byte>(((1u << bits) - 1) << (at % 8));
  elements[at / 8] = (elements[at / 8] & ~mask) | (static_cast<std::byte>(word << (at % 8)) & mask);
}

double read_integer(std::uint64_t word, unsigned bits, bool with_sign) {
  if (!with_sign) return static_cast<double>(word);
  const unsigned unused = 64 - bits;
  return static_cast<double>(static_cast<std::int64_t>(word << unused) >> unused);
}

std::uint64_t integer_of(double number, unsigned bits, bool with_sign) {
  if (std::isnan(number)) return 0;
  const double rounded = std::nearbyint(number);
  const double limit = std::ldexp(1.0, static_cast<int>(with_sign ? bits - 1 : bits));
  if (rounded >= limit)
    return std::numeric_limits<std::uint64_t>::max() >> (64 - bits + (with_sign ? 1 : 0));
  if (!with_sign) return rounded <= 0 ? 0 : static_cast<std::uint64_t>(rounded);
  if (rounded < -limit) return std::uint64_t{1} << (bits - 1);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded));
}

}  // namespace

bool has_numbers(DataType type) { return type != DataType::String && element_bits(type) != 0; }

double read_number(DataType type, const std::byte* elements, std::uint64_t index) {
  switch (type) {
    case DataType::Float:
    case DataType::Complex64: {
      float number = 0;
      std::memcpy(&number, elements + index * sizeof(number), sizeof(number));
      return number;
    }
    case DataType::Double:
    case DataType::Complex128: {
      double number = 0;
      std::memcpy(&number, elements + index * sizeof(number), sizeof(number));
      return number;
    }
    default:
      break;
  }
  const auto bits = static_cast<unsigned>(element_bits(type));
  const std::uint64_t word = read_bits(elements, index, bits);
  if (const SmallFloat* format = small_float(type))
    return format->decode(static_cast<std::uint32_t>(word));
  if (type == DataType::Float8E8M0) return decode_scale(static_cast<std::uint32_t>(word));
  if (type == DataType::Bool) return word != 0 ? 1 : 0;
  return read_integer(word, bits, is_signed(type));
}

void write_number(DataType type, std::byte* elements, std::uint64_t index, double number) {
  switch (type) {
    case DataType::Float:
    case DataType::Complex64: {
      const auto narrow = static_cast<float>(number);
      std::memcpy(elements + index * sizeof(narrow), &narrow, sizeof(narrow));
      return;
    }
    case DataType::Double:
    case DataType::Complex128:
      std::memcpy(elements + index * sizeof(number), &number, sizeof(number));
      return;
    default:
      break;
  }
  const auto bits = static_cast<unsigned>(element_bits(type));
  std::uint64_t word = 0;
  if (const SmallFloat* format = small_float(type)) {
    word = format->encode(number);
  } else if (type == DataType::Float8E8M0) {
    word = encode_scale(number);
  } else if (type == DataType::Bool) {
    word = number != 0 ? 1 : 0;
  } else {
    word = integer_of(number, bits, is_signed(type));
  }
  write_bits(elements, index, bits, word);
}

}  // namespace backplane::core
