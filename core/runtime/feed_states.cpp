#include "core/runtime/feed_states.hpp"

#include <algorithm>
#include <cstring>

#include "core/runtime/plan_key.hpp"

namespace backplane::core {

RuntimeValuePtr lasting_copy(const RuntimeValue& value) {
  auto copy = std::make_shared<RuntimeValue>();
  copy->set_owned_tensor(
      value.element(), std::vector<std::int64_t>(value.description.dims,
                                                 value.description.dims + value.description.rank));
  if (value.description.bytes > 0)
    std::memcpy(copy->description.host_ptr, value.description.host_ptr, value.description.bytes);
  return copy;
}

ValueState state_of(const RuntimeValue& value) {
  if (value.is_tensor())
    return tensor_state(value.element(),
                        {value.description.dims, value.description.dims + value.description.rank});
  ValueState state;
  state.kind = ValueState::Kind::Object;
  state.object_type = value.type.to_string();
  return state;
}

ValueStates states_of_feeds(const Program& program, const std::vector<RuntimeValue*>& feeds) {
  ValueStates states(program.graph().value_count());
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    ValueState state = state_of(*feeds[i]);
    // An empty optional does not know what it could hold; the model does.
    const Type& declared = program.graph().value(program.feeds()[i]).type;
    if (state.kind == ValueState::Kind::Object && declared.kind != Type::Kind::Unknown)
      state.object_type = declared.to_string();
    states[program.feeds()[i]] = std::move(state);
  }
  for (const std::size_t i : program.keyed_feeds()) {
    if (is_keyed(*feeds[i])) states[program.feeds()[i]] = known_state(lasting_copy(*feeds[i]));
  }
  return states;
}

ValueStates states_of_body(const Program& program, const std::vector<ValueState>& feeds) {
  ValueStates states(program.graph().value_count());
  const std::vector<std::size_t>& keyed = program.keyed_feeds();
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    ValueState state = feeds[i];
    const bool counts = std::find(keyed.begin(), keyed.end(), i) != keyed.end() &&
                        state.known != nullptr && is_keyed(*state.known);
    state.known = counts ? lasting_copy(*feeds[i].known) : nullptr;
    states[program.feeds()[i]] = std::move(state);
  }
  return states;
}

std::vector<LiveValue> live_feeds(const Program& program, const BodyPlaces* places) {
  std::vector<LiveValue> live;
  for (std::size_t i = 0; i < program.feeds().size(); ++i)
    live.push_back({program.feeds()[i], places != nullptr ? places->feeds[i] : kHostSpace, -1});
  return live;
}

void place_feeds(const Program& program, const BodyPlaces* places, ValueStates& values) {
  for (const LiveValue& feed : live_feeds(program, places)) {
    SharedState& shared = values[feed.value];
    if (shared->space == feed.space) continue;
    ValueState state = *shared;
    state.space = feed.space;
    shared = std::move(state);
  }
}

}  // namespace backplane::core
