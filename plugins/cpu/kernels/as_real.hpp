// Inputs and outputs of any floating-point type, seen as float or double.
#pragma once

#include <cstdint>
#include <cstring>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {

/// What arithmetic on elements of `type` is done in: double for double, otherwise float.
inline bool computes_in_double(sdk::DataType type) { return type == sdk::DataType::Double; }

/// Elements of `tensor` as T, float or double: its own memory where it holds T, otherwise converted
/// into `scratch`, which has room for all of them.
template <class T>
const T* read_as(const sdk::Tensor& tensor, T* scratch, Isa isa) {
  if (tensor.type() == sdk::data_type_of<T>()) return tensor.data<T>();
  const std::int64_t n = tensor.size();
  const bool is_half =
      tensor.type() == sdk::DataType::Float16 || tensor.type() == sdk::DataType::BFloat16;
  if constexpr (std::is_same_v<T, float>) {
    if (is_half) {
      if (n > 0) half_conversion(isa, tensor.type()).to_float(tensor.bytes_data(), scratch, n);
      return scratch;
    }
  }
  common::with_float(tensor.type(), [&](auto tag) {
    const auto* from = tensor.data<typename decltype(tag)::type>();
    for (std::int64_t i = 0; i < n; ++i) scratch[i] = static_cast<T>(common::widen(from[i]));
  });
  return scratch;
}

/// Where to compute an output: its own memory where it holds T, otherwise `scratch`.
template <class T>
T* write_as(const sdk::Tensor& tensor, T* scratch) {
  return tensor.type() == sdk::data_type_of<T>() ? tensor.mutable_data<T>() : scratch;
}

/// Brings what was computed in write_as's memory to the output.
template <class T>
void finish_write(const sdk::Tensor& tensor, const T* computed, Isa isa) {
  if (tensor.type() == sdk::data_type_of<T>()) return;
  const std::int64_t n = tensor.size();
  const bool is_half =
      tensor.type() == sdk::DataType::Float16 || tensor.type() == sdk::DataType::BFloat16;
  if constexpr (std::is_same_v<T, float>) {
    if (is_half) {
      half_conversion(isa, tensor.type()).from_float(computed, tensor.mutable_data<char>(), n);
      return;
    }
  }
  common::with_float(tensor.type(), [&](auto tag) {
    using To = typename decltype(tag)::type;
    auto* to = tensor.mutable_data<To>();
    for (std::int64_t i = 0; i < n; ++i) to[i] = common::narrow<To>(computed[i]);
  });
}

/// A workspace that is handed out piece by piece. Every piece begins on a cache line.
class Pieces {
 public:
  /// The bytes that pieces of these numbers of elements of 8 bytes at most take.
  template <class... Counts>
  static std::uint64_t bytes(Counts... counts) {
    return (std::uint64_t{0} + ... + rounded(static_cast<std::uint64_t>(counts)));
  }
  explicit Pieces(const sdk::Tensor& workspace) : next_(workspace.mutable_data<char>()) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = reinterpret_cast<T*>(next_);
    if (next_ != nullptr) next_ += rounded(static_cast<std::uint64_t>(count));
    return piece;
  }

 private:
  static std::uint64_t rounded(std::uint64_t count) { return (count * 8 + 63) / 64 * 64; }
  char* next_;
};

}  // namespace backplane::cpu
