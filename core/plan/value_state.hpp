// What is known of a value while planning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/ids.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// What is known of a value while planning.
struct ValueState {
  enum class Kind {
    Unset,
    Tensor,   ///< type and dims are known
    Pending,  ///< made by a kernel or a body that will tell its size when it runs
    Object,   ///< a sequence, optional or map
  };
  Kind kind = Kind::Unset;
  DataType type = DataType::None;
  std::vector<std::int64_t> dims;
  std::uint32_t format = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 64;
  int space = 0;  ///< the memory space where it is made
  std::string object_type;
  RuntimeValuePtr known;  ///< the elements, on the host, where they do not depend on a run
  /// What kernels see while they prepare: made, when first needed, by the thread that plans.
  mutable RuntimeValuePtr description;
};

/// A state that stays as it is: plans whose values are the same share it. Empty, it is unset.
class SharedState {
 public:
  SharedState() = default;
  SharedState(ValueState state)  // implicit: each is one
      : state_(std::make_shared<const ValueState>(std::move(state))) {}

  const ValueState& operator*() const {
    static const ValueState kUnset;
    return state_ != nullptr ? *state_ : kUnset;
  }
  const ValueState* operator->() const { return &**this; }
  /// One and the same; states of equal contents may be two.
  bool is(const SharedState& other) const { return state_ == other.state_; }

 private:
  std::shared_ptr<const ValueState> state_;
};

using ValueStates = PerValue<SharedState>;
using FeedStates = std::vector<SharedState>;  ///< by place in Program::feeds()

/// The tensor state of given dims, plain.
ValueState tensor_state(DataType type, const std::vector<std::int64_t>& dims);
/// The state of a value whose elements are known; it shares them.
ValueState known_state(RuntimeValuePtr value);

/// Bytes from the first element of a tensor to behind its last one, where it lies with such strides. Strides come from
/// plugins: with negative ones, or such as are too large to count with, it reaches past everything, 2^64 - 1.
std::uint64_t strided_extent(DataType type, const std::vector<std::int64_t>& dims,
                             const std::vector<std::int64_t>& strides);
/// Whether `extent` bytes from `offset` on end within `bytes`.
constexpr bool reaches_at_most(std::uint64_t offset, std::uint64_t extent, std::uint64_t bytes) {
  return offset <= bytes && extent <= bytes - offset;
}

/// A tensor that lies in memory: not a string tensor, and of known size.
inline bool has_memory(const ValueState& state) {
  return state.kind == ValueState::Kind::Tensor && state.type != DataType::String;
}

}  // namespace backplane::core
