// Inputs of the operators of ai.onnx.ml: rows of features, of four element types.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {

inline constexpr const char* kMlDomain = "ai.onnx.ml";

/// The types that most of these operators read.
inline common::TypeList feature_types() {
  return {sdk::DataType::Float, sdk::DataType::Double, sdk::DataType::Int64, sdk::DataType::Int32};
}

/// One row for dims [columns].
struct FeatureRows {
  std::int64_t rows, columns;

  std::int64_t size() const { return rows * columns; }

  static FeatureRows of(const char* op, const sdk::Tensor& x) {
    if (x.rank() == 1) return {1, x.dim(0)};
    if (x.rank() == 2) return {x.dim(0), x.dim(1)};
    sdk::invalid(op, ": the input has dims ", sdk::to_string(x.dims()),
                 ", expected [features] or [rows, features]");
  }
};

/// Bytes that rows_as needs for a tensor of `type`.
template <class T>
std::uint64_t rows_bytes(sdk::DataType type, const FeatureRows& shape) {
  return type == sdk::data_type_of<T>() ? 0 : sizeof(T) * static_cast<std::uint64_t>(shape.size());
}

/// The features as T: where they lie, or converted into `buffer`.
template <class T>
const T* rows_as(const sdk::Tensor& x, void* buffer) {
  if (x.type() == sdk::data_type_of<T>()) return x.data<T>();
  auto* y = static_cast<T*>(buffer);
  common::with_type<float, double, std::int64_t, std::int32_t, sdk::Half>(x.type(), [&](auto tag) {
    const auto* from = x.data<typename decltype(tag)::type>();
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(common::widen(from[i]));
  });
  return y;
}

}  // namespace backplane::cpu
