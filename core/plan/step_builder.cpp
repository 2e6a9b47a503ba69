#include "core/plan/step_builder.hpp"

#include <algorithm>

#include "core/plugin_host/copy_mode.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

bool has_memory(const Slot& slot) { return core::has_memory(*slot.state); }

/// `what`: gives the words for it, which are only made where it counts.
template <class What>
void count_weight(const ProgramContext& context, int space, const WeightPtr& weight,
                  const What& what) {
  if (context.memory == nullptr || weight->buffer.bytes() == 0) return;
  const std::string place = MemoryBudget::place_of(*context.devices, space);
  try {
    context.memory->hold(place, weight, what());
  } catch (const Error& error) {
    if (context.spill == Spill::Forbidden || space == kHostSpace) throw;
    if (const auto overrun = context.memory->overrun(place, weight->buffer.bytes()))
      throw DeviceFull{DeviceSet::device_of_space(space), overrun->missing, overrun->limit, error};
    throw;
  }
}

}  // namespace

WeightPtr weight_of(Program& program, ValueId value, const ValueState& state, int space) {
  const ProgramContext& context = program.context();
  const DeviceSet& devices = *context.devices;
  std::weak_ptr<const Weight>& kept = program.plain_weight(value, space);
  ConstantRef constant = program.placed().constant(value);
  if (constant) {
    if (WeightPtr weight = kept.lock()) return weight;  // counted already
  } else {
    constant.known = state.known->to_constant();
  }
  const int device = space == kHostSpace ? devices.on_host() : DeviceSet::device_of_space(space);
  if (device < 0)
    throw Error(Code::Unsupported,
                "no provider works on host memory; add one to the plugin folder");
  WeightPtr weight =
      context.weights->plain(devices.entry(device).device, constant, context.threads);
  count_weight(context, space, weight,
               [&] { return text("the weight '", program.graph().value(value).name, "'"); });
  kept = weight;
  return weight;
}

StepBuilder::StepBuilder(Program& program, ShapeWalk& walk, const std::vector<LiveValue>& available,
                         const SegmentRequest& request)
    : program_(program),
      graph_(program.graph()),
      devices_(*program.context().devices),
      walk_(walk),
      request_(request),
      slots_(graph_.value_count(), devices_.space_count()),
      available_(graph_.value_count(), devices_.space_count()),
      is_fetched_(graph_.value_count()) {
  for (const LiveValue& live : available) {
    available_.at(live.value, live.space) = 0;
    const std::vector<ValueId>& feeds = program.feeds();
    if (std::find(feeds.begin(), feeds.end(), live.value) == feeds.end()) left_.push_back(live);
  }
  for (const ValueId fetch : program.fetches()) is_fetched_[fetch] = true;
}

SegmentDraft StepBuilder::build() {
  for (PreparedNode& prepared : walk_.nodes) {
    if (prepared.control != nullptr) {
      add_control(prepared);
    } else {
      add_node(prepared);
    }
  }
  finish_fetches();
  hand_views_back();
  draft_.segment.is_last = walk_.end == program_.order().size() && later_fetches_.empty();
  finish_outgoing();
  draft_.wishes.resize(draft_.segment.steps.size());
  return std::move(draft_);
}

int StepBuilder::new_slot(Slot slot) {
  draft_.segment.slots.push_back(std::move(slot));
  return static_cast<int>(draft_.segment.slots.size()) - 1;
}

Slot StepBuilder::slot_for(ValueId value, int space) const {
  Slot slot;
  slot.value = value;
  slot.space = space;
  slot.arena = space;
  slot.state = walk_.values[value];
  slot.place = has_memory(slot) ? Place::Arena : Place::Dynamic;
  return slot;
}

std::string StepBuilder::space_name(int space) const {
  return space == kHostSpace ? "host" : devices_.at(DeviceSet::device_of_space(space)).label();
}

void StepBuilder::add_node(const PreparedNode& prepared) {
  const Node& node = graph_.node(prepared.id);
  const ProgramNode& placed = program_.node(prepared.id);
  const int space = devices_.space_of(placed.device);
  const PrepareResult& said = prepared.kernel->said;
  Step step;
  step.node = prepared.id;
  step.device = placed.device;
  step.on_stream = !devices_.at(placed.device).on_host_memory();
  step.inputs.reserve(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    step.inputs.push_back(input_slot(prepared.id, i, said, space));
  step.outputs.reserve(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    step.outputs.push_back(output_slot(node, i, said, space));
  step.input_state.resize(node.inputs.size());
  add_packs(node, *prepared.kernel, space, step);
  if (said.workspace_bytes > 0) {
    step.workspace_arena = space;
    step.workspace_bytes = said.workspace_bytes;
  }
  const char* const kernel = placed.kernel.def().name;
  step.label = kernel;
  if (!said.variant.empty()) step.label += " " + said.variant;
  step.kernel = prepared.kernel;
  draft_.wishes.resize(draft_.segment.steps.size());
  draft_.segment.steps.push_back(std::move(step));
  draft_.wishes.push_back(
      {std::shared_ptr<const PrepareResult>(prepared.kernel, &prepared.kernel->said), kernel});
}

void StepBuilder::add_packs(const Node& node, PreparedKernel& kernel, int space, Step& step) {
  Device& device = devices_.at(step.device);
  kernel.packs.resize(kernel.said.packs.size());
  for (std::size_t i = 0; i < kernel.packs.size(); ++i) {
    step.packs.push_back(kernel.packs[i].lock());
    if (step.packs.back() != nullptr) continue;  // counted already
    const PackWish& wish = kernel.said.packs[i];
    std::vector<ConstantRef> sources;
    for (const std::uint32_t input : wish.inputs)
      sources.push_back(program_.placed().constant(node.inputs[input]));
    step.packs.back() = program_.context().weights->packed(device.shared_from_this(), wish, sources,
                                                           program_.context().threads);
    count_weight(program_.context(), space, step.packs.back(),
                 [&] { return text("node '", node.name, "' (a packed weight)"); });
    kernel.packs[i] = step.packs.back();
  }
}

int StepBuilder::input_slot(NodeId id, std::size_t index, const PrepareResult& prepared,
                            int space) {
  const ValueId value = graph_.node(id).inputs[index];
  if (value == kNone) return -1;
  const std::int32_t role = program_.node(id).kernel.input_role(index);
  if (role == BP_INPUT_SHAPE_ONLY || prepared.inputs[index].is_ignored) return shape_slot(value);
  const bool on_host = role == BP_INPUT_HOST_VALUE || role == BP_INPUT_HOST_DATA;
  const int wanted = on_host ? kHostSpace : space;
  return slot_in(value, wanted, {"node '", graph_.node(id).name, "' reads it"});
}

int StepBuilder::output_slot(const Node& node, std::size_t index, const PrepareResult& prepared,
                             int space) {
  const ValueId value = node.outputs[index];
  if (value == kNone) return -1;
  const bool on_host = program_.node(node.id).kernel.output_role(index) == BP_OUTPUT_HOST;
  Slot slot = slot_for(value, on_host ? kHostSpace : space);
  if (prepared.outputs[index].format == 0) {
    place_as_fetch(slot);
    place_as_view(slot);
  }
  return keep_output(std::move(slot));
}

/// What is fetched is made in the fetch, where both are in one space.
void StepBuilder::place_as_fetch(Slot& slot) {
  if (slot.place != Place::Arena || !is_fetched_[slot.value]) return;
  for (std::size_t k = 0; k < program_.fetches().size(); ++k) {
    if (program_.fetches()[k] != slot.value || request_.fetched[k] ||
        slot.space != fetch_space(k) || !direct_fetches_.insert(static_cast<int>(k)).second)
      continue;
    slot.place = Place::Fetch;
    slot.number = static_cast<int>(k);
    return;
  }
}

int StepBuilder::keep_output(Slot slot) {
  const int number = new_slot(std::move(slot));
  const Slot& made = draft_.segment.slot(number);
  if (made.place == Place::Fetch) draft_.segment.fetches.emplace_back(made.number, number);
  slots_.at(made.value, made.space) = number;
  return number;
}

int StepBuilder::shape_slot(ValueId value) {
  Slot slot = slot_for(value, kHostSpace);
  slot.place = Place::Nowhere;
  return new_slot(std::move(slot));
}

int StepBuilder::slot_in(ValueId value, int space, const ReadCause& cause) {
  if (const int known = slots_.at(value, space); known >= 0) return known;
  if (program_.placed().is_constant(value) || walk_.values[value]->known != nullptr)
    return constant_slot(value, space);
  if (available_.contains(value, space)) {
    Slot slot = slot_for(value, space);
    slot.place = Place::Incoming;
    slot.number = static_cast<int>(draft_.segment.incoming.size());
    const int number = new_slot(std::move(slot));
    draft_.segment.incoming.push_back({value, space, number});
    return slots_.at(value, space) = number;
  }
  return copy_to(value, space, cause);
}

int StepBuilder::constant_slot(ValueId value, int space) {
  Slot slot = slot_for(value, space);
  slot.place = Place::Weight;
  slot.weight = weight_of(program_, value, *slot.state, space);
  return slots_.at(value, space) = new_slot(std::move(slot));
}

int StepBuilder::copy_to(ValueId value, int space, const ReadCause& cause) {
  int from = -1;
  for (int other = 0; other < static_cast<int>(devices_.space_count()) && from < 0; ++other) {
    if (other != space && (slots_.contains(value, other) || available_.contains(value, other)))
      from = other;
  }
  if (from < 0)
    throw Error(Code::Internal,
                text("the value '", graph_.value(value).name, "' is read before it is made"));
  const int source = slot_in(value, from, cause);
  if (!has_memory(draft_.segment.slot(source))) {
    throw Error(
        Code::Unsupported,
        text("the value '", graph_.value(value).name,
             "' is no plain tensor of known size and cannot be copied to ", space_name(space)));
  }
  if (from == kHostSpace) {
    const int device = DeviceSet::device_of_space(space);
    if (const int view = view_of_feed(value, source, space, cause); view >= 0)
      return slots_.at(value, space) = view;
    if (copy_mode(devices_.at(device), BP_MEMORY_HOST, BP_MEMORY_DEVICE) != BP_COPY_NONE)
      return slots_.at(value, space) = copy_step(source, device, space, space, {"direct", cause});
    Slot pinned = slot_for(value, kHostSpace);
    pinned.arena = pinned_arena(devices_, device);
    const int staged = host_copy(source, std::move(pinned), cause);
    return slots_.at(value, space) = copy_step(staged, device, space, space, {"staged", cause});
  }
  const int device = DeviceSet::device_of_space(from);
  if (space == kHostSpace) {
    const bool pinned = devices_.at(device).has_pinned();
    return slots_.at(value, space) = copy_step(source, device, space,
                                               pinned ? pinned_arena(devices_, device) : kHostSpace,
                                               {pinned ? "staged" : "direct", cause});
  }
  const int target = DeviceSet::device_of_space(space);
  if (devices_.at(target).provider_name() == devices_.at(device).provider_name() &&
      copy_mode(devices_.at(device), BP_MEMORY_DEVICE, BP_MEMORY_DEVICE, &devices_.at(target)) !=
          BP_COPY_NONE) {
    return slots_.at(value, space) = copy_step(source, device, space, space, {"peer", cause});
  }
  slot_in(value, kHostSpace, cause);
  return copy_to(value, space, cause);
}

int StepBuilder::copy_step(int from, int device, int to_space, int to_arena, const Reason& reason) {
  const Slot source = draft_.segment.slot(from);
  Slot target = slot_for(source.value, to_space);
  target.arena = to_arena;
  // Another copy into the fetch would be the second one to that device.
  if (to_space != kHostSpace) place_as_fetch(target);
  const int to = new_slot(std::move(target));
  const Slot& made = draft_.segment.slot(to);
  if (made.place == Place::Fetch) draft_.segment.fetches.emplace_back(made.number, to);
  Step step;
  step.kind = StepKind::Copy;
  step.device = device;
  step.on_stream = true;
  step.inputs = {from};
  step.outputs = {to};
  const std::string& name = graph_.value(source.value).name;
  step.label = text("copy '", name, "' ", space_name(source.space), " to ", space_name(to_space));
  step.record = static_cast<int>(draft_.segment.copies.size());
  draft_.segment.copies.push_back({name, space_name(source.space), space_name(to_space),
                                   reason.cause.describe(), source.state->bytes, reason.route,
                                   source.state->bytes});
  draft_.segment.steps.push_back(std::move(step));
  return to;
}

int StepBuilder::host_copy(int from, Slot to, const ReadCause& cause) {
  const int target = new_slot(std::move(to));
  Step step;
  step.kind = StepKind::HostCopy;
  step.inputs = {from};
  step.outputs = {target};
  step.label = "copy on the host: " + cause.describe();
  draft_.segment.steps.push_back(std::move(step));
  return target;
}

/// A value that lies on a device alone goes straight into the fetch, where the device can copy there.
bool StepBuilder::fetch_from_device(ValueId value, int fetch, const ReadCause& cause) {
  if (slots_.contains(value, kHostSpace) || available_.contains(value, kHostSpace)) return false;
  for (int space = kHostSpace + 1; space < static_cast<int>(devices_.space_count()); ++space) {
    const int device = DeviceSet::device_of_space(space);
    if (!slots_.contains(value, space) && !available_.contains(value, space)) continue;
    const int source = slot_in(value, space, cause);
    if (!has_memory(draft_.segment.slot(source))) return false;
    if (copy_mode(devices_.at(device), BP_MEMORY_DEVICE, BP_MEMORY_HOST) == BP_COPY_NONE)
      return false;
    const int target = copy_step(source, device, kHostSpace, kHostSpace, {"direct", cause});
    Slot& slot = draft_.segment.slot(target);
    slot.place = Place::Fetch;
    slot.number = fetch;
    draft_.segment.fetches.emplace_back(fetch, target);
    slots_.at(value, kHostSpace) = target;
    return true;
  }
  return false;
}

/// Whether a value of unknown size lies elsewhere alone: it can be copied when its size is known.
bool StepBuilder::must_wait(ValueId value, int space) const {
  const ValueState& state = *walk_.values[value];
  return state.kind == ValueState::Kind::Pending && !slots_.contains(value, space) &&
         !available_.contains(value, space);
}

/// One copy of the value into a fetch in a device's memory: from elsewhere, or from another place of the device. That
/// it ends in the fetch is copy_step's doing.
void StepBuilder::leave_on_device(ValueId value, int space, const ReadCause& cause) {
  const int device = DeviceSet::device_of_space(space);
  const bool is_there = slots_.contains(value, space) || available_.contains(value, space);
  const bool is_constant =
      program_.placed().is_constant(value) || walk_.values[value]->known != nullptr;
  if (!is_there && !is_constant) {
    const int made = copy_to(value, space, cause);
    if (draft_.segment.slot(made).place == Place::Fetch) return;
  }
  if (copy_mode(devices_.at(device), BP_MEMORY_DEVICE, BP_MEMORY_DEVICE) != BP_COPY_NONE) {
    copy_step(slot_in(value, space, cause), device, space, space, {"direct", cause});
    return;
  }
  const int source = slot_in(value, kHostSpace, cause);
  if (copy_mode(devices_.at(device), BP_MEMORY_HOST, BP_MEMORY_DEVICE) != BP_COPY_NONE) {
    copy_step(source, device, space, space, {"direct", cause});
    return;
  }
  Slot pinned = slot_for(value, kHostSpace);
  pinned.arena = pinned_arena(devices_, device);
  copy_step(host_copy(source, std::move(pinned), cause), device, space, space, {"staged", cause});
}

void StepBuilder::finish_fetch(std::size_t k, const ReadCause& cause) {
  const ValueId value = program_.fetches()[k];
  const int fetch = static_cast<int>(k);
  const int space = fetch_space(k);
  if (must_wait(value, space)) {
    later_fetches_.insert(value);
    return;
  }
  if (space == kHostSpace && fetch_from_device(value, fetch, cause)) return;
  const bool memory = core::has_memory(*walk_.values[value]);
  if (!memory) {
    draft_.segment.dynamic_fetches.emplace_back(fetch, slot_in(value, space, cause));
    return;
  }
  if (space != kHostSpace) return leave_on_device(value, space, cause);
  host_fetches_.emplace_back(fetch, slot_in(value, kHostSpace, cause));
}

/// What the host copies into fetches, when all devices have been given their copies: it then waits for the first one while they
/// do the others.
void StepBuilder::copy_host_fetches() {
  for (const auto& [fetch, source] : host_fetches_) {
    const ValueId value = draft_.segment.slot(source).value;
    const int target = host_copy(source, slot_for(value, kHostSpace),
                                 {"it is the output '", graph_.value(value).name, "'"});
    Slot& slot = draft_.segment.slot(target);
    slot.place = Place::Fetch;
    slot.number = fetch;
    draft_.segment.fetches.emplace_back(fetch, target);
  }
}

void StepBuilder::finish_fetches() {
  for (std::size_t k = 0; k < program_.fetches().size(); ++k) {
    const ValueId value = program_.fetches()[k];
    const ValueState& state = *walk_.values[value];
    const bool made = state.kind != ValueState::Kind::Unset || program_.placed().is_constant(value);
    if (request_.fetched[k] || direct_fetches_.contains(static_cast<int>(k)) || !made) continue;
    if (state.kind == ValueState::Kind::Unset)
      walk_.values[value] = state_of_constant(program_, value);
    finish_fetch(k, {"it is the output '", graph_.value(value).name, "'"});
  }
  copy_host_fetches();
}

/// What nodes behind the segment read.
std::set<ValueId> StepBuilder::needed_later() const {
  std::set<ValueId> later;
  for (std::size_t i = walk_.end; i < program_.order().size(); ++i) {
    const Node& node = graph_.node(program_.order()[i]);
    later.insert(node.inputs.begin(), node.inputs.end());
    later.insert(node.captured.begin(), node.captured.end());
  }
  return later;
}

void StepBuilder::finish_outgoing() {
  if (draft_.segment.is_last) return;
  static const std::string kNobody;
  for (const ValueId value : walk_.wants_value)
    slot_in(value, kHostSpace, {"a shape depends on it", kNobody, ""});
  std::set<ValueId> later = needed_later();
  later.insert(later_fetches_.begin(), later_fetches_.end());
  for (const LiveValue& live : left_) {
    if (!later.contains(live.value)) draft_.segment.dead.push_back(live);
  }
  for (const ValueId value : later) {
    if (value == kNone) continue;
    for (int space = 0; space < static_cast<int>(devices_.space_count()); ++space) {
      const int slot = slots_.at(value, space);
      if (slot < 0) continue;
      // A view is handed back with the segment: the next one takes the feed anew.
      const Place place = draft_.segment.slot(slot).place;
      if (place != Place::Weight && place != Place::View)
        draft_.segment.outgoing.push_back({value, space, slot});
    }
  }
}

}  // namespace backplane::core
