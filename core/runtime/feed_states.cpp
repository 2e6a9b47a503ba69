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

namespace {

/// Whether that is all there is to be said of a feed.
bool says(const ValueState& state, const RuntimeValue& feed) {
  return state.kind == ValueState::Kind::Tensor && feed.is_tensor() && state.known == nullptr &&
         state.format == BP_FORMAT_PLAIN && state.alignment == ValueState{}.alignment &&
         state.type == feed.element() &&
         std::equal(state.dims.begin(), state.dims.end(), feed.description.dims,
                    feed.description.dims + feed.description.rank);
}

}  // namespace

FeedStates states_of_feeds(const Program& program, const std::vector<RuntimeValue*>& feeds,
                           const ValueStates* before) {
  FeedStates states(feeds.size());
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const ValueId id = program.feeds()[i];
    if (before != nullptr && says(*(*before)[id], *feeds[i])) {
      states[i] = (*before)[id];
      continue;
    }
    ValueState state = state_of(*feeds[i]);
    // An empty optional does not know what it could hold; the model does.
    const Type& declared = program.graph().value(id).type;
    if (state.kind == ValueState::Kind::Object && declared.kind != Type::Kind::Unknown)
      state.object_type = declared.to_string();
    states[i] = std::move(state);
  }
  for (const std::size_t i : program.keyed_feeds()) {
    if (is_keyed(*feeds[i])) states[i] = known_state(lasting_copy(*feeds[i]));
  }
  return states;
}

FeedStates states_of_body(const Program& program, const std::vector<ValueState>& feeds) {
  FeedStates states;
  const std::vector<std::size_t>& keyed = program.keyed_feeds();
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    ValueState state = feeds[i];
    const bool counts = std::find(keyed.begin(), keyed.end(), i) != keyed.end() &&
                        state.known != nullptr && is_keyed(*state.known);
    state.known = counts ? lasting_copy(*feeds[i].known) : nullptr;
    states.emplace_back(std::move(state));
  }
  return states;
}

void place_feeds(const BodyPlaces* places, FeedStates& states) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    const int space = places != nullptr ? places->feeds[i] : kHostSpace;
    if (states[i]->space == space) continue;
    ValueState state = *states[i];
    state.space = space;
    states[i] = std::move(state);
  }
}

ValueStates values_of_feeds(const Program& program, const FeedStates& feeds) {
  ValueStates values(program.graph().value_count());
  for (std::size_t i = 0; i < feeds.size(); ++i) values[program.feeds()[i]] = feeds[i];
  return values;
}

std::vector<LiveValue> live_feeds(const Program& program, const BodyPlaces* places) {
  std::vector<LiveValue> live;
  for (std::size_t i = 0; i < program.feeds().size(); ++i)
    live.push_back({program.feeds()[i], places != nullptr ? places->feeds[i] : kHostSpace, -1});
  return live;
}

}  // namespace backplane::core
