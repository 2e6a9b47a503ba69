// Steps that the core runs itself: If, Loop, Scan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/segment.hpp"
#include "core/runtime/executable.hpp"
#include "core/runtime/stacked_output.hpp"
#include "core/runtime/value_memory.hpp"

namespace backplane::core {

/// What a step is given for one run.
struct ControlCall {
  const bp_value* const* inputs;   ///< as Step::inputs
  const bp_value* const* outputs;  ///< as Step::outputs
  RunControls controls;            ///< of the run

  RuntimeValue& input(std::size_t index) const { return writable(inputs[index]); }
  RuntimeValue& output(std::size_t index) const { return writable(outputs[index]); }

 private:
  /// Every bp_value that the host shows is a RuntimeValue of its own.
  static RuntimeValue& writable(const bp_value* value) {
    return const_cast<RuntimeValue&>(static_cast<const RuntimeValue&>(*value));
  }
};

/// A step with what it keeps from run to run.
/// Threads: one run at a time.
class ControlStep {
 public:
  ControlStep() = default;
  ControlStep(const ControlStep&) = delete;
  ControlStep& operator=(const ControlStep&) = delete;
  virtual ~ControlStep() = default;
  /// Runs the bodies and waits for them. Errors name the body and what is in it; the caller adds the node.
  virtual void run(const ControlCall& call) = 0;
};

std::unique_ptr<ControlStep> make_control_step(const Graph& graph, const Node& node,
                                               const Step& step, const DeviceSet& devices);
std::unique_ptr<ControlStep> make_if_step(const Node& node, const Step& step,
                                          const DeviceSet& devices);
std::unique_ptr<ControlStep> make_loop_step(const Graph& graph, const Node& node, const Step& step,
                                            const DeviceSet& devices);
std::unique_ptr<ControlStep> make_scan_step(const Graph& graph, const Node& node, const Step& step,
                                            const DeviceSet& devices);

/// Runs one body again and again.
class BodyRunner final : public FetchMemory {
 public:
  BodyRunner(const ControlBody& body, const BodyPlaces& places, const DeviceSet& devices);

  /// To be filled in before run(), by feed and fetch; captured values by take_captured().
  RunValues feeds, fetches;
  /// By fetch: what stacks it; null: the fetch has memory of its own, or is_fixed.
  std::vector<StackedOutput*> stacks;
  /// By fetch: memory of the right size is there and must be used.
  std::vector<bool> is_fixed;

  const ControlBody& body() const { return body_; }
  /// `first`: index of the body's first captured value among the step's inputs.
  void take_captured(const ControlCall& call, std::size_t first);
  /// Runs the body once. `turn`: for errors; -1: there is just one.
  void run(const ControlCall& call, std::int64_t turn);
  void provide(std::size_t fetch, const ValueState& state, int space, RuntimeValue& value) override;

 private:
  const ControlBody& body_;
  const BodyPlaces& places_;
  const DeviceSet& devices_;
  Executable& executable_;
  PlanMemo memo_;
};

/// Values that turns carry: where each is now, and memory for what comes next.
class CarriedValues {
 public:
  CarriedValues(SpaceCopies& copies, std::size_t count);

  /// Before the first turn.
  void begin(std::size_t index, RuntimeValue& initial) { current_[index] = &initial; }
  RuntimeValue& current(std::size_t index) { return *current_[index]; }
  /// Memory for the next value `index` that no current value lies in.
  RuntimeValue& free_place(std::size_t index);
  /// What is current after this turn; takes effect at end_turn().
  void set_next(std::size_t index, RuntimeValue& value) { next_[index] = &value; }
  void end_turn() { current_.swap(next_); }
  /// Hands the last value `index` over to an output without memory; the values after it may be the same one.
  void finish(std::size_t index, RuntimeValue& output, int space);

 private:
  bool is_place_of(std::size_t index, const RuntimeValue& value) const;

  SpaceCopies& copies_;
  std::vector<RuntimeValue*> current_, next_;
  std::vector<std::vector<std::unique_ptr<RuntimeValue>>> places_;  ///< by index
};

/// A scalar that the host reads: a condition, a trip count. Throws InvalidArgument naming `what`.
bool read_condition(const RuntimeValue& value, const char* what);
std::int64_t read_count(const RuntimeValue& value, const char* what);

}  // namespace backplane::core
