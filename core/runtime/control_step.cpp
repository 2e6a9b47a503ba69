#include "core/runtime/control_step.hpp"

#include <algorithm>
#include <cstring>

namespace backplane::core {

std::unique_ptr<ControlStep> make_control_step(const Graph& graph, const Node& node,
                                               const Step& step, const DeviceSet& devices) {
  switch (step.control->node->kind) {
    case ControlKind::If:
      return make_if_step(node, step, devices);
    case ControlKind::Loop:
      return make_loop_step(graph, node, step, devices);
    case ControlKind::Scan:
      break;
  }
  return make_scan_step(graph, node, step, devices);
}

BodyRunner::BodyRunner(const ControlBody& body, const BodyPlaces& places, const DeviceSet& devices)
    : feeds(body.input_count + body.captured.size()),
      fetches(body.fetch_count),
      stacks(body.fetch_count, nullptr),
      is_fixed(body.fetch_count, false),
      body_(body),
      places_(places),
      devices_(devices),
      executable_(static_cast<Executable&>(*body.body)) {}

void BodyRunner::take_captured(const ControlCall& call, std::size_t first) {
  for (std::size_t i = 0; i < body_.captured.size(); ++i)
    feeds[body_.input_count + i] = &call.input(first + i);
}

void BodyRunner::run(const ControlCall& call, std::int64_t turn) {
  call.controls.stop.check();
  RunSettings settings;
  settings.controls = call.controls;
  settings.controls.synchronize = true;
  settings.memo = &memo_;
  settings.places = &places_;
  settings.fetch_memory = this;
  try {
    executable_.run(feeds, fetches, settings);
  } catch (const Error& error) {
    throw error.within(turn < 0 ? text("its body '", body_.attribute, "'")
                                : text("turn ", turn, " of its body"));
  }
}

void BodyRunner::provide(std::size_t fetch, const ValueState& state, int space,
                         RuntimeValue& value) {
  if (stacks[fetch] != nullptr) {
    stacks[fetch]->provide(state, value);
    return;
  }
  if (!is_fixed[fetch]) {
    own_tensor(value, state.type, state.dims, space, devices_);
    return;
  }
  if (value.is_tensor() && value.element() == state.type && value.dims == state.dims) return;
  throw Error(Code::Internal,
              text("its body '", body_.attribute, "' makes tensor(", name(state.type), ") ",
                   to_string(state.dims), " where ", to_string(value.dims), " was planned"));
}

CarriedValues::CarriedValues(SpaceCopies& copies, std::size_t count)
    : copies_(copies), current_(count), next_(count), places_(count) {}

RuntimeValue& CarriedValues::free_place(std::size_t index) {
  for (const std::unique_ptr<RuntimeValue>& place : places_[index]) {
    if (std::find(current_.begin(), current_.end(), place.get()) == current_.end()) return *place;
  }
  places_[index].push_back(std::make_unique<RuntimeValue>());
  return *places_[index].back();
}

bool CarriedValues::is_place_of(std::size_t index, const RuntimeValue& value) const {
  return std::any_of(places_[index].begin(), places_[index].end(),
                     [&](const auto& place) { return place.get() == &value; });
}

void CarriedValues::finish(std::size_t index, RuntimeValue& output, int space) {
  RuntimeValue& last = *current_[index];
  const bool used_later = std::find(current_.begin() + static_cast<std::ptrdiff_t>(index) + 1,
                                    current_.end(), &last) != current_.end();
  if (is_place_of(index, last) && !used_later) {
    move_value(last, output);
  } else {
    copies_.copy_value(last, output, space);
  }
}

namespace {

/// The bytes of a tensor of one element.
const void* one_element(const RuntimeValue& value, DataType type, const char* what) {
  if (!value.is_tensor() || value.element() != type || element_count(value.dims) != 1) {
    invalid("its ", what, " must be one ", name(type), ", but is ",
            value.is_tensor() ? text("tensor(", name(value.element()), ") ", to_string(value.dims))
                              : value.type.to_string());
  }
  return value.description.host_ptr;
}

}  // namespace

bool read_condition(const RuntimeValue& value, const char* what) {
  unsigned char byte = 0;
  std::memcpy(&byte, one_element(value, DataType::Bool, what), sizeof(byte));
  return byte != 0;
}

std::int64_t read_count(const RuntimeValue& value, const char* what) {
  std::int64_t count = 0;
  std::memcpy(&count, one_element(value, DataType::Int64, what), sizeof(count));
  return count;
}

}  // namespace backplane::core
