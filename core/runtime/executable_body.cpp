// An executable as the body of a control flow node.
#include "core/runtime/executable.hpp"
#include "core/runtime/feed_states.hpp"

namespace backplane::core {

BodyPlaces Executable::homes() const {
  const std::shared_ptr<Generation> current = generation();
  std::call_once(current->homes_found, [&] { current->homes = find_homes(*current->program); });
  return current->homes;
}

std::optional<bool> Executable::constant_truth(std::size_t fetch) const {
  const std::shared_ptr<Generation> current = generation();
  const Program& program = *current->program;
  const ConstantPtr& constant = program.graph().value(program.fetches()[fetch]).constant;
  if (constant == nullptr || constant->bytes().empty()) return std::nullopt;
  return constant->bytes().front() != std::byte{0};
}

std::vector<ValueState> Executable::plan_body(const std::vector<ValueState>& feeds,
                                              const BodyPlaces& places) {
  return with_generations(nullptr, [&](const std::shared_ptr<Generation>& generation) {
    return plan_body_of(generation, feeds, places);
  });
}

std::vector<ValueState> Executable::plan_body_of(const std::shared_ptr<Generation>& generation,
                                                 const std::vector<ValueState>& feeds,
                                                 const BodyPlaces& places) {
  Program& program = *generation->program;
  const std::lock_guard lock(generation->planning);
  FeedStates known = states_of_body(program, feeds);
  place_feeds(&places, known);
  ValueStates values = values_of_feeds(program, known);
  PlanKey key;
  if (try_make_plan_key(program, feeds, places, key)) {
    std::shared_ptr<PlanNode> plan = generation->plans.next.find(key);
    if (plan == nullptr)
      plan = make_first_plan(*generation, std::move(key), std::move(values), &places,
                             HostViewWishes());
    values = plan->segment->values;
    const std::lock_guard last(mutex_);
    if (last_segment_ == nullptr || last_generation_ != generation) {
      last_segment_ = plan->segment;
      last_generation_ = generation;
    }
  } else {
    values = walk_shapes(program, 0, std::move(values)).values;
  }
  std::vector<ValueState> states;
  for (const ValueId fetch : program.fetches()) {
    const SharedState& state = values[fetch];
    const bool is_constant =
        state->kind == ValueState::Kind::Unset && program.placed().is_constant(fetch);
    states.push_back(is_constant ? *state_of_constant(program, fetch) : *state);
  }
  return states;
}

}  // namespace backplane::core
