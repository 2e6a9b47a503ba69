#include "core/runtime/segment_context.hpp"

#include <algorithm>

#include "core/runtime/control_step.hpp"

namespace backplane::core {
namespace {

/// Describes a slot's tensor, memory aside.
void describe(RuntimeValue& value, const Slot& slot) {
  const ValueState& state = *slot.state;
  if (state.kind == ValueState::Kind::Object) {
    value.set_type(Type::parse(state.object_type));
    return;
  }
  if (state.kind == ValueState::Kind::Tensor && state.type == DataType::String) {
    value.set_owned_tensor(state.type, state.dims);
  } else {
    value.set_tensor(state.type, state.dims);
  }
  value.description.format = state.format;
  if (state.kind == ValueState::Kind::Tensor) value.description.bytes = state.bytes;
  if (slot.strides) {
    value.strides = *slot.strides;
    value.description.strides = value.strides.data();
  }
  value.description.memory = slot.space == kHostSpace ? BP_MEMORY_HOST : BP_MEMORY_DEVICE;
}

/// Points a value `offset` bytes into a piece of memory.
void point(RuntimeValue& value, bp_buffer* buffer, std::uint64_t buffer_offset, void* host,
           std::uint64_t offset) {
  value.description.buffer = buffer;
  value.description.offset = buffer != nullptr ? buffer_offset + offset : 0;
  value.description.host_ptr = host != nullptr ? static_cast<std::byte*>(host) + offset : nullptr;
}

void point_at_weight(RuntimeValue& value, const Slot& slot) {
  const bp_tensor& weight = slot.weight->value.description;
  point(value, weight.buffer, weight.offset, weight.host_ptr, slot.offset);
}

}  // namespace

bp_status* Operation::call_in_turn() const {
  const auto calling = turn == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*turn);
  UnknownOutputs* const unknown = ctx->unknown;
  if (unknown != nullptr) unknown->begin();
  bp_status* const status = call_for_status([this] { return compute(prepared, ctx); });
  return status == nullptr && unknown != nullptr ? unknown->end(*ctx) : status;
}

SegmentContext::SegmentContext(std::shared_ptr<const Segment> segment, const DeviceSet& devices,
                               const Program& program, bp_threads* threads)
    : segment_(std::move(segment)),
      marks_(segment_->steps.size()),
      incoming_(segment_->incoming.size()),
      fetches_(program.fetches().size()),
      views_(segment_->views.size()),
      current_views_(segment_->views.size()),
      whole_incoming_(segment_->incoming.size()) {
  make_values();
  find_spare();
  make_contexts(devices, program, threads);
  for (const ParallelGroup& group : segment_->groups)
    parallel_runs_.push_back(std::make_unique<ParallelRun>(group));
  if (segment_->capture != nullptr) {
    const CapturePlan& plan = *segment_->capture;
    captures_.reserve(plan.ranges.size());
    for (std::size_t i = 0; i < plan.ranges.size(); ++i)
      captures_.emplace_back(plan.ranges[i], plan.tallies[i]);
  }
  for (const Step& step : segment_->steps) {
    control_.push_back(
        step.kind == StepKind::Control
            ? make_control_step(program.graph(), program.graph().node(step.node), step, devices)
            : nullptr);
  }
}

SegmentContext::~SegmentContext() = default;

void SegmentContext::find_spare() {
  is_spare_.resize(segment_->slots.size());
  for (const auto& [fetch, slot] : segment_->dynamic_fetches) {
    const auto is_this = [slot = slot](const auto& entry) { return entry.second == slot; };
    const auto is_left = [slot = slot](const LiveValue& live) { return live.slot == slot; };
    const auto& fetches = segment_->dynamic_fetches;
    is_spare_[static_cast<std::size_t>(slot)] =
        segment_->slot(slot).place == Place::Dynamic &&
        std::count_if(fetches.begin(), fetches.end(), is_this) == 1 &&
        std::none_of(segment_->outgoing.begin(), segment_->outgoing.end(), is_left);
  }
}

void SegmentContext::make_values() {
  values_ = std::make_unique<RuntimeValue[]>(segment_->slots.size());
  for (std::size_t i = 0; i < segment_->slots.size(); ++i) {
    const Slot& slot = segment_->slots[i];
    RuntimeValue* const value = &values_[i];
    if (slot.place != Place::Weight || slot.state->type != DataType::String) describe(*value, slot);
    const auto number = static_cast<std::size_t>(slot.number);
    if (slot.place == Place::Incoming && !is_whole(slot))
      incoming_[number].push_back({value, slot.offset});
    if (slot.place == Place::Dynamic) dynamic_.push_back(i);
    if (slot.place == Place::Fetch) fetches_[number].push_back({value, slot.offset});
    if (slot.place == Place::View) views_[number].push_back({value, slot.offset});
    if (slot.place == Place::Weight && slot.state->type != DataType::String)
      point_at_weight(*value, slot);
  }
}

const bp_value* SegmentContext::pointer_for(int slot_index) {
  static const RuntimeValue kAbsent;
  if (slot_index < 0) return &kAbsent;
  const Slot& slot = segment_->slot(slot_index);
  if (slot.place == Place::Weight && slot.state->type == DataType::String)
    return &slot.weight->value;
  if (slot.place == Place::Incoming && is_whole(slot))
    whole_incoming_[static_cast<std::size_t>(slot.number)].push_back(pointers_.size());
  return &values_[static_cast<std::size_t>(slot_index)];
}

void SegmentContext::make_contexts(const DeviceSet& devices, const Program& program,
                                   bp_threads* threads) {
  std::size_t pointer_count = 0, pack_count = 0;
  for (const Step& step : segment_->steps) {
    pointer_count += step.inputs.size() + step.outputs.size();
    pack_count += step.packs.size();
  }
  pointers_.reserve(pointer_count);  // contexts point into these
  packs_.reserve(pack_count);
  contexts_.reserve(segment_->steps.size());
  workspaces_.resize(segment_->steps.size());
  unknown_.resize(segment_->steps.size());
  for (std::size_t i = 0; i < segment_->steps.size(); ++i) {
    const Step& step = segment_->steps[i];
    ComputeContext ctx =
        make_compute_context(step.device >= 0 ? &devices.at(step.device) : nullptr, threads);
    ctx.inputs = pointers_.data() + pointers_.size();
    ctx.input_count = static_cast<std::uint32_t>(step.inputs.size());
    for (const int input : step.inputs) pointers_.push_back(pointer_for(input));
    ctx.outputs = pointers_.data() + pointers_.size();
    ctx.output_count = static_cast<std::uint32_t>(step.outputs.size());
    for (const int output : step.outputs) pointers_.push_back(pointer_for(output));
    ctx.packed = packs_.data() + packs_.size();
    ctx.packed_count = static_cast<std::uint32_t>(step.packs.size());
    for (const WeightPtr& pack : step.packs) packs_.push_back(pack->value.tensor);
    ctx.input_state = step.input_state.data();
    workspaces_[i].struct_size = sizeof(bp_tensor);
    workspaces_[i].bytes = step.workspace_bytes;
    workspaces_[i].dtype = BP_UINT8;
    ctx.workspace = &workspaces_[i];
    contexts_.push_back(ctx);
  }
  for (std::size_t i = 0; i < segment_->steps.size(); ++i) {
    const Step& step = segment_->steps[i];
    const bool computes = step.kind == StepKind::Compute;
    operations_.push_back({nullptr, nullptr, &contexts_[i],
                           computes && step.waits.empty() && !step.signals && step.dead.empty(),
                           true, static_cast<std::int32_t>(i), nullptr,
                           step.node == kNone ? nullptr : &program.graph().node(step.node)});
    set_kernel(i);
  }
}

/// Points a step's operation at its prepared kernel.
void SegmentContext::set_kernel(std::size_t index) {
  const Step& step = segment_->steps[index];
  if (step.kernel == nullptr) return;
  const PreparedHandle& prepared = step.kernel->said.prepared;
  Operation& operation = operations_[index];
  operation.compute = prepared.def().compute;
  operation.prepared = prepared.raw();
  operation.turn = prepared.turn();
  auto unknown = std::make_unique<UnknownOutputs>(step.kernel->said);
  unknown_[index] = unknown->empty() ? nullptr : std::move(unknown);
  contexts_[index].unknown = unknown_[index].get();
  operation.simple = operation.turn == nullptr && unknown_[index] == nullptr;
  workspaces_[index].bytes = step.workspace_bytes;
}

void SegmentContext::resize(const SegmentChange& change) {
  for (const int index : change.steps) set_kernel(static_cast<std::size_t>(index));
  for (const int index : change.slots) {
    const Slot& slot = segment_->slot(index);
    RuntimeValue& value = values_[static_cast<std::size_t>(index)];
    describe(value, slot);
    if (slot.place == Place::Weight) point_at_weight(value, slot);
    const auto number = static_cast<std::size_t>(slot.number);
    if (slot.place == Place::Incoming) set_offset(incoming_[number], value, slot.offset);
    if (slot.place == Place::Fetch) set_offset(fetches_[number], value, slot.offset);
  }
  forget_memory();
}

void SegmentContext::set_offset(std::vector<Bound>& all, const RuntimeValue& value,
                                std::uint64_t offset) {
  for (Bound& bound : all) {
    if (bound.value == &value) bound.offset = offset;
  }
}

void SegmentContext::bind_memory(const std::vector<Arena>& arenas,
                                 const std::vector<bp_stream*>& streams, std::uint64_t generation) {
  if (generation_ == generation) return;
  generation_ = generation;
  for (std::size_t i = 0; i < segment_->slots.size(); ++i) {
    const Slot& slot = segment_->slots[i];
    if (slot.place != Place::Arena) continue;
    const ArenaPlace place = place_in_arena(*segment_, slot.arena, slot.offset);
    const DeviceBuffer& buffer = arenas[static_cast<std::size_t>(slot.arena)].buffer(place.buffer);
    // Pinned memory is plain host memory to everybody but the device that copies from and to it.
    point(values_[i], slot.space == kHostSpace ? nullptr : buffer.raw(), 0, buffer.host_ptr(),
          place.offset);
  }
  for (std::size_t i = 0; i < segment_->steps.size(); ++i) {
    const Step& step = segment_->steps[i];
    if (step.device >= 0) contexts_[i].stream = streams[static_cast<std::size_t>(step.device)];
    if (step.workspace_arena < 0) continue;
    const ArenaPlace place = place_in_arena(*segment_, step.workspace_arena, step.workspace_offset);
    const DeviceBuffer& buffer =
        arenas[static_cast<std::size_t>(step.workspace_arena)].buffer(place.buffer);
    workspaces_[i].buffer = buffer.raw();
    workspaces_[i].offset = buffer.raw() != nullptr ? place.offset : 0;
    workspaces_[i].host_ptr =
        buffer.host_ptr() != nullptr ? buffer.host_ptr() + place.offset : nullptr;
  }
}

void SegmentContext::empty_dynamic() {
  for (const std::size_t index : dynamic_) describe(values_[index], segment_->slots[index]);
}

void SegmentContext::give_dynamic_back() {
  for (const std::size_t index : dynamic_) give_back(static_cast<int>(index));
}

void SegmentContext::give_back(int slot) {
  const Slot& said = segment_->slot(slot);
  if (said.space == kHostSpace && is_whole(said)) value(slot).give_back();
}

void SegmentContext::bind_incoming(std::size_t index, const RuntimeValue& value) {
  for (const Bound& bound : incoming_[index]) {
    point(*bound.value, value.description.buffer, value.description.offset,
          value.description.host_ptr, bound.offset);
  }
  for (const std::size_t position : whole_incoming_[index]) pointers_[position] = &value;
}

void SegmentContext::bind_fetch(int fetch, const RuntimeValue& value) {
  for (const Bound& bound : fetches_[static_cast<std::size_t>(fetch)]) {
    point(*bound.value, value.description.buffer, value.description.offset,
          value.description.host_ptr, bound.offset);
  }
}

void SegmentContext::bind_view(std::size_t index, HostView& view) {
  current_views_[index] = &view;
  for (const Bound& bound : views_[index])
    point(*bound.value, view.raw(), 0, nullptr, bound.offset);
}

void SegmentContext::set_stop(const StopSignal* stop) {
  if (stop_ == stop) return;
  stop_ = stop;
  for (ComputeContext& ctx : contexts_) ctx.stop = stop;
}

}  // namespace backplane::core
