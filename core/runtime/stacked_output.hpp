// Outputs of Loop and Scan that stack what the turns make.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/value_state.hpp"
#include "core/runtime/value_memory.hpp"

namespace backplane::core {

/// Slices of one shape, each made in its place where that can be. Where the number of turns is unknown, the memory
/// doubles when it is full, so that all slices together are moved less than twice.
///
/// Steady state: keeps its memory from run to run, less what finish() handed over, for which it gets what the output had.
class StackedOutput {
 public:
  /// `space`: where the slices are made and the whole lies.
  StackedOutput(const DeviceSet& devices, SpaceCopies& copies, int space);

  /// Before the first turn. `whole`: already has memory for all slices; null: finish() gives it some. `count`: of
  /// slices; -1: unknown.
  void begin(RuntimeValue* whole, std::int64_t count);
  /// The body is about to make slice `index`, and knows how large it is.
  void provide(const ValueState& slice, RuntimeValue& value);
  /// The slice that the next turn makes.
  void next(std::int64_t index) {
    index_ = index;
    is_provided_ = false;
  }
  /// The turn is over; `value` is what the body made.
  void add(const RuntimeValue& value);
  /// Slice `index` of a tensor on the host is zeros, or empty strings. Some slice before it was made, or the whole has
  /// memory.
  void add_zeros();
  /// After the last turn: the output's dims are `stack`, then a slice's. With no slice at all, the declared type says
  /// what a slice would be, unknown dims being 0.
  /// `axis`: where the stacked axis comes to stand; other than 0 only on the host, and with one axis in `stack`.
  void finish(RuntimeValue& output, const std::vector<std::int64_t>& stack, const Type& declared,
              std::int64_t axis = 0);

 private:
  void move_axis(RuntimeValue& output, std::size_t axis);
  void check(DataType type, const std::vector<std::int64_t>& dims);
  void make_room();
  bp_tensor whole() const;

  const DeviceSet& devices_;
  SpaceCopies& copies_;
  int space_;
  RuntimeValue* given_ = nullptr;
  RuntimeValue own_, larger_;
  DataType type_ = DataType::None;
  std::vector<std::int64_t> dims_, all_dims_;
  std::uint64_t slice_bytes_ = 0;
  std::int64_t count_ = -1, capacity_ = 0, index_ = 0, made_ = 0, last_count_ = 0;
  bool is_provided_ = false, in_place_ = false;
};

}  // namespace backplane::core
