// Segments made by hand: float tensors in the host's arena, one step after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/plan/aliasing.hpp"

namespace backplane::core {

using Dims = std::vector<std::int64_t>;

/// A plan under construction.
class Plan {
 public:
  int slot(const Dims& dims, Place place = Place::Arena) {
    Slot made;
    made.value = ValueId(draft_.segment.slots.size());
    made.place = place;
    made.arena = place == Place::Arena ? 0 : -1;
    made.number = place == Place::Fetch || place == Place::Incoming ? 0 : -1;
    made.state = tensor_state(DataType::Float, dims);
    draft_.segment.slots.push_back(std::move(made));
    return made_slots() - 1;
  }
  /// A step that makes new slots of these dims; returns its index.
  int step(const std::vector<int>& inputs, const std::vector<int>& outputs,
           StepKind kind = StepKind::Compute) {
    Step made;
    made.kind = kind;
    made.device = 0;
    made.inputs = inputs;
    made.outputs = outputs;
    made.input_state.resize(inputs.size());
    auto said = std::make_shared<PrepareResult>();
    PrepareResult& wishes = *said;
    wishes.inputs.resize(inputs.size());
    for (const int output : outputs) {
      OutputPlan plan;
      plan.kind = OutputPlan::Kind::Tensor;
      plan.type = DataType::Float;
      if (output >= 0) plan.dims = draft_.segment.slot(output).state->dims;
      wishes.outputs.push_back(std::move(plan));
    }
    draft_.segment.steps.push_back(std::move(made));
    draft_.wishes.push_back({said, ""});
    said_.push_back(std::move(said));
    return static_cast<int>(draft_.segment.steps.size()) - 1;
  }
  /// A step that makes one new value.
  int make(const Dims& dims, const std::vector<int>& inputs = {}) {
    const int made = slot(dims);
    step(inputs, {made});
    return made;
  }
  void read(int slot_index) { step({slot_index}, {slot({1})}); }

  PrepareResult& wishes(int step_index) { return *said_[static_cast<std::size_t>(step_index)]; }
  PrepareResult& last() { return *said_.back(); }
  Segment& segment() { return draft_.segment; }
  Slot& operator[](int index) { return draft_.segment.slot(index); }
  void keep(int index) {
    draft_.segment.outgoing.push_back({(*this)[index].value, kHostSpace, index});
  }

  Plan& find() {
    aliases_ = find_aliases(draft_);
    return *this;
  }
  bool share(int a, int b) const { return storage_of(a) == storage_of(b); }
  bool dropped(int step_index) const {
    return aliases_.dropped[static_cast<std::size_t>(step_index)];
  }
  bool is_inside(int step_index, std::size_t input) const {
    return (draft_.segment.step(step_index).input_state[input] & BP_INPUT_INSIDE) != 0;
  }
  const Storage& storage(int index) const {
    return aliases_.storages[static_cast<std::size_t>(storage_of(index))];
  }

  SegmentDraft& draft() { return draft_; }
  Aliases& aliases() { return aliases_; }

 private:
  int made_slots() const { return static_cast<int>(draft_.segment.slots.size()); }
  int storage_of(int index) const { return aliases_.storage_of[static_cast<std::size_t>(index)]; }
  SegmentDraft draft_;
  std::vector<std::shared_ptr<PrepareResult>> said_;  ///< by step
  Aliases aliases_;
};

}  // namespace backplane::core
