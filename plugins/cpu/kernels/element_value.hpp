// A single element of any type, by its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "backplane/plugin.hpp"
#include "plugins/common/half.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"
#include "plugins/cpu/kernels/unit.hpp"

namespace backplane::cpu {

/// The pattern of one element of up to 16 bytes (a packed element: in the low bits of the first). Zeros by
/// default: 0, false, and an empty string.
struct ElementValue {
  std::array<std::uint8_t, 16> bytes{};

  template <class T>
  static ElementValue of(T value) {
    static_assert(sizeof(T) <= 16);
    ElementValue element;
    std::memcpy(element.bytes.data(), &value, sizeof(T));
    return element;
  }

  /// A number as a floating-point element.
  static ElementValue of_float(sdk::DataType type, double value) {
    switch (type) {
      case sdk::DataType::Double:
        return of(value);
      case sdk::DataType::Float16:
        return of(common::to_half(static_cast<float>(value)));
      case sdk::DataType::BFloat16:
        return of(common::to_bfloat16(static_cast<float>(value)));
      default:
        return of(static_cast<float>(value));
    }
  }

  /// The first element of a tensor in host memory, not of strings.
  static ElementValue first_of(const sdk::Tensor& tensor) {
    ElementValue element;
    const int bits = sdk::element_bits(tensor.type());
    if (bits < 8) {
      element.bytes[0] = static_cast<std::uint8_t>(get_bits(tensor.bytes_data(), 0, bits));
    } else {
      std::memcpy(element.bytes.data(), tensor.bytes_data(), static_cast<std::size_t>(bits / 8));
    }
    return element;
  }

  /// Writes `count` copies into memory, from element `at` on; `bits` is the size of an element.
  void fill(void* memory, std::int64_t at, std::int64_t count, int bits) const {
    if (bits < 8) {
      for (std::int64_t i = 0; i < count; ++i) set_bits(memory, at + i, bits, bytes[0]);
      return;
    }
    with_unit(bits / 8, [&](auto unit) {
      using T = decltype(unit);
      std::memcpy(&unit, bytes.data(), sizeof(T));
      T* target = static_cast<T*>(memory) + at;
      for (std::int64_t i = 0; i < count; ++i) target[i] = unit;
    });
  }
};

}  // namespace backplane::cpu
