// Feeds and fetches that devices work on where they lie: steps that hand them over and back, in place of copies.
#include <algorithm>
#include <iterator>

#include "core/plan/step_builder.hpp"

namespace backplane::core {

bool StepBuilder::may_view(int device, const Slot& slot) const {
  const HostMemory* memory = devices_.at(device).host_memory();
  return memory != nullptr && core::has_memory(*slot.state) && slot.state->format == 0 &&
         slot.state->bytes >= memory->least_bytes;
}

/// A feed as the device of a space sees it, where its memory allows that; else -1.
int StepBuilder::view_of_feed(ValueId value, int source, int space, const ReadCause& cause) {
  const Slot& host = draft_.segment.slot(source);
  const auto feed = std::find(program_.feeds().begin(), program_.feeds().end(), value);
  if (request_.views.feeds.empty() || host.place != Place::Incoming ||
      feed == program_.feeds().end())
    return -1;
  const int device = DeviceSet::device_of_space(space);
  const auto index = static_cast<std::size_t>(feed - program_.feeds().begin());
  if (request_.views.feeds[index] == 0 || !may_view(device, host)) return -1;
  const int view = new_slot(slot_for(value, space));
  return add_view({device, source, view, ViewAccess::Read}, cause.describe());
}

/// What is fetched is made in the fetch, where the device that makes it can view that and nobody else needs it.
void StepBuilder::place_as_view(Slot& slot) {
  if (slot.place != Place::Arena || slot.space == kHostSpace || request_.views.fetches.empty())
    return;
  const std::vector<ValueId>& fetches = program_.fetches();
  const auto fetch = std::find(fetches.begin(), fetches.end(), slot.value);
  if (fetch == fetches.end()) return;
  const auto k = static_cast<std::size_t>(fetch - fetches.begin());
  const int device = DeviceSet::device_of_space(slot.space);
  if (request_.views.fetches[k] == 0 || request_.fetched[k] || fetch_space(k) != kHostSpace ||
      !may_view(device, slot) || needed_later().contains(slot.value))
    return;
  Slot host = slot_for(slot.value, kHostSpace);
  host.place = Place::Fetch;
  host.number = static_cast<int>(k);
  slot.place = Place::View;
  slot.number = static_cast<int>(draft_.segment.views.size());
  direct_fetches_.insert(static_cast<int>(k));
  const int host_slot = new_slot(std::move(host));
  draft_.segment.fetches.emplace_back(static_cast<int>(k), host_slot);
  const int view = static_cast<int>(draft_.segment.slots.size());  // where keep_output() puts it
  add_view({device, host_slot, view, ViewAccess::Write},
           text("it is the output '", graph_.value(slot.value).name, "'"));
}

/// Hands a feed over from here on, a fetch from the beginning: what is made inside it is written before its kernel
/// computes. A feed's slot is there; a fetch's follows.
int StepBuilder::add_view(const PlannedView& view, const std::string& cause) {
  Segment& segment = draft_.segment;
  const Slot& host = segment.slot(view.host_slot);
  const bool is_feed = view.access == ViewAccess::Read;
  const std::string& name = graph_.value(host.value).name;
  const std::string device = devices_.at(view.device).label();
  Step step;
  step.kind = StepKind::HandOver;
  step.device = view.device;
  step.on_stream = true;
  if (is_feed) step.inputs = {view.host_slot};
  step.outputs = {view.slot};
  step.label = text("view '", name, is_feed ? "' host to " : "' for ", device);
  if (is_feed) {
    Slot& slot = segment.slot(view.slot);
    slot.place = Place::View;
    slot.number = static_cast<int>(segment.views.size());
  }
  segment.copies.push_back({name, is_feed ? "host" : device, is_feed ? device : "host", cause, 0,
                            "view", host.state->bytes});
  segment.views.push_back(view);
  (is_feed ? segment.steps : first_steps_).push_back(std::move(step));
  return view.slot;
}

/// At the end: the host may touch again what devices had.
void StepBuilder::hand_views_back() {
  draft_.wishes.resize(draft_.segment.steps.size());
  draft_.wishes.insert(draft_.wishes.begin(), first_steps_.size(), StepWishes());
  std::vector<Step>& steps = draft_.segment.steps;
  steps.insert(steps.begin(), std::make_move_iterator(first_steps_.begin()),
               std::make_move_iterator(first_steps_.end()));
  for (const PlannedView& view : draft_.segment.views) {
    const Slot& host = draft_.segment.slot(view.host_slot);
    const bool is_feed = view.access == ViewAccess::Read;
    Step step;
    step.kind = StepKind::HandBack;
    step.device = view.device;
    step.on_stream = true;
    step.inputs = {view.slot};
    if (!is_feed) step.outputs = {view.host_slot};
    step.label = text(is_feed ? "give back '" : "view '", graph_.value(host.value).name, "' ",
                      devices_.at(view.device).label(), " to host");
    draft_.segment.steps.push_back(std::move(step));
  }
}

}  // namespace backplane::core
