// Sets of element types as ONNX's schemas name them, and calling a template by element type.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/half.hpp"

namespace backplane::common {

using sdk::DataType;
using TypeList = std::vector<DataType>;

/// Both, one after the other.
inline TypeList join(TypeList left, const TypeList& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// float16, float, double.
inline TypeList ieee_float_types() {
  return {DataType::Float16, DataType::Float, DataType::Double};
}

/// The same and bfloat16.
inline TypeList float_types() { return join(ieee_float_types(), {DataType::BFloat16}); }

inline TypeList signed_types() {
  return {DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64};
}

inline TypeList unsigned_types() {
  return {DataType::UInt8, DataType::UInt16, DataType::UInt32, DataType::UInt64};
}

inline TypeList integer_types() { return join(signed_types(), unsigned_types()); }

/// All integers of 8 bits and more, and all floating-point numbers of 16 bits and more.
inline TypeList number_types() { return join(float_types(), integer_types()); }

template <class T>
struct TypeTag {
  using type = T;
};

template <class T>
constexpr bool kIsHalfType = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
/// float, double and the 16-bit types.
template <class T>
constexpr bool kIsFloatType = std::is_floating_point_v<T> || kIsHalfType<T>;

/// Calls body(TypeTag<T>()) for the type that stores `type`'s elements, one of Ts, and returns the
/// result. Errors: BP_UNSUPPORTED for another type.
template <class First, class... Rest, class Body>
auto with_type(DataType type, Body&& body) -> decltype(body(TypeTag<First>())) {
  if (type == sdk::data_type_of<First>()) return body(TypeTag<First>());
  if constexpr (sizeof...(Rest) > 0) {
    return with_type<Rest...>(type, std::forward<Body>(body));
  } else {
    sdk::unsupported("elements of type ", sdk::type_name(type), " are not handled");
  }
}

/// with_type over number_types().
template <class Body>
auto with_number(DataType type, Body&& body) {
  return with_type<float, double, Half, BFloat16, std::int8_t, std::int16_t, std::int32_t,
                   std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(
      type, std::forward<Body>(body));
}

/// with_type over float_types().
template <class Body>
auto with_float(DataType type, Body&& body) {
  return with_type<float, double, Half, BFloat16>(type, std::forward<Body>(body));
}

}  // namespace backplane::common
