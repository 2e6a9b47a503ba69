#include "core/runtime/run_context.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "core/plugin_host/status.hpp"
#include "core/runtime/control_step.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {
namespace {

std::string step_name(const Program& program, const Step& step) {
  return step.node == kNone ? step.label : program.words(step.node);
}

/// Where a value goes that a kernel or a body made of a size that nobody knew before.
struct Destination {
  const std::string& output;
  bool resize;    ///< a value that owns its memory is made to fit
  bool is_body;   ///< the value is the core's own: only memory that was placed binds
  bool is_spare;  ///< nobody else will read what it is made from
};

[[noreturn]] void refuse_given(const RuntimeValue& given, const RuntimeValue& made,
                               const std::string& output, const char* where = "") {
  invalid("the value given for output '", output, "' is tensor(", name(given.element()), ") ",
          to_string(given.dims), "; the run makes ",
          made.is_tensor() ? text("tensor(", name(made.element()), ") ", to_string(made.dims))
                           : made.type.to_string(),
          where);
}

/// Takes such a value over. A value that is there must fit, unless it may be made to.
void take_contents(RuntimeValue& from, RuntimeValue& to, const Destination& destination) {
  if (!from.is_tensor()) {
    if (destination.is_spare) return move_value(from, to);
    if (from.kind == BP_VALUE_ABSENT) return to.set_absent();
    to.set_type(from.type);
    to.elements = from.elements;
    return;
  }
  const bool on_device = from.description.memory == BP_MEMORY_DEVICE;
  const bool owned = to.memory != nullptr || to.element() == DataType::String;
  const bool placed =
      !owned && (to.description.host_ptr != nullptr || to.description.buffer != nullptr);
  const bool given =
      to.is_tensor() && (destination.is_body ? placed : !(destination.resize && owned));
  if (given && (to.element() != from.element() || to.dims != from.dims || on_device))
    refuse_given(to, from, destination.output, on_device ? " in memory of its own" : "");
  if (!given && destination.is_spare && from.memory != nullptr) return move_value(from, to);
  if (on_device) {
    to.set_tensor(from.element(), from.dims);
    to.memory = from.memory;
    point_into(to, from.description, 0);
    return;
  }
  if (!given) to.set_owned_tensor(from.element(), from.dims);
  to.strings = from.strings;
  if (from.description.bytes > 0 && from.description.host_ptr != nullptr)
    std::memcpy(to.description.host_ptr, from.description.host_ptr, from.description.bytes);
}

std::vector<std::uint64_t> buffer_sizes(const Segment& segment, std::size_t arena) {
  const auto split = segment.split_arenas.find(static_cast<int>(arena));
  if (split != segment.split_arenas.end()) return split->second.bytes;
  return {segment.arena_bytes[arena]};
}

bool has_room(const Arena& there, const Segment& segment, std::size_t arena) {
  const auto split = segment.split_arenas.find(static_cast<int>(arena));
  if (split == segment.split_arenas.end())
    return segment.arena_bytes[arena] <= there.buffer(0).bytes();
  const std::vector<std::uint64_t>& bytes = split->second.bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > there.buffer(i).bytes()) return false;
  }
  return true;
}

}  // namespace

Error within_run(const Error& error) {
  switch (error.code()) {
    case Code::InvalidArgument:
    case Code::Unsupported:
    case Code::NotFound:
    case Code::Unimplemented:
    case Code::Incompatible:
      return {Code::Failed, error.message()};
    default:
      return error;
  }
}

RunContext::RunContext(const Program& program, bp_threads* threads, std::size_t max_contexts,
                       bool is_body, ArenaPool* pool)
    : program_(program),
      devices_(*program.context().devices),
      threads_(threads),
      max_contexts_(max_contexts),
      streams_(devices_.devices.size()),
      raw_streams_(devices_.devices.size(), nullptr),
      times_(devices_.devices.size()),
      in_flight_(devices_.devices.size()),
      own_pool_(pool == nullptr ? std::make_unique<ArenaPool>() : nullptr),
      pool_(pool == nullptr ? *own_pool_ : *pool),
      arena_bytes_(arena_count(devices_)),
      is_body_(is_body) {
  for (const SessionDevice& device : devices_.devices) {
    if (is_body) break;
    tells_devices_ = tells_devices_ || BP_HAS_FN(bp_device_api, &device.device->api(), run_begin);
  }
}

RunContext::~RunContext() {
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->drain();
  }
  end_run();
}

void RunContext::start(std::uint64_t run_id, const RunControls& controls) {
  try {
    synchronize();
  } catch (const Error& error) {
    throw error.within("an earlier run, which was not synchronized");
  }
  run_id_ = controls.run != 0 ? controls.run : run_id;
  controls_ = controls;
  used_before_run_ = use_count_;
  for (WorkInFlight& work : in_flight_) work.begin();
  if (controls_.views != nullptr) controls_.views->begin();
  arenas_ = pool_.take(last_arenas_);
  if (!tells_devices_) return;
  for (int i = 0; i < static_cast<int>(devices_.devices.size()); ++i) {
    Device& device = devices_.at(i);
    device.throw_if_lost();
    if (!BP_HAS_FN(bp_device_api, &device.api(), run_begin)) continue;
    try {
      device.check(device.call(device.api().run_begin, run_id), "could not begin the run");
    } catch (const Error& error) {
      throw within_run(error);
    }
    begun_.push_back(i);
  }
}

void RunContext::finish() noexcept {
  if (controls_.views != nullptr) std::exchange(controls_.views, nullptr)->sweep();
  if (going_on_ == nullptr) end_run();
}

void RunContext::end_run() noexcept {
  for (const int i : begun_) {
    Device& device = devices_.at(i);
    if (BP_HAS_FN(bp_device_api, &device.api(), run_end))
      device.tell("run_end", device.api().run_end, run_id_);
  }
  begun_.clear();
  held_.clear();
  own_views_.clear();
  left_.clear();
  for (SegmentContext* const context : dynamic_) context->give_dynamic_back();
  dynamic_.clear();
  if (arenas_ == nullptr) return;
  last_arenas_ = arenas_;
  pool_.give(std::exchange(arenas_, nullptr));
}

void RunContext::synchronize() {
  if (going_on_ == nullptr) return;
  const std::shared_ptr<const Segment> segment = std::move(going_on_);
  going_on_ = nullptr;
  try {
    drain(*segment);
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
}

const RuntimeValue* RunContext::left_value(ValueId value, int space) const {
  const auto found = left_.find({value, space});
  return found != left_.end() ? found->second.value : nullptr;
}

std::vector<Border> RunContext::left() const {
  std::vector<Border> borders;
  for (const auto& [key, value] : left_) borders.push_back({key.first, key.second, -1});
  return borders;
}

SegmentContext& RunContext::context_of(const std::shared_ptr<const Segment>& segment,
                                       std::size_t depth) {
  ++use_count_;
  for (Cached& cached : cached_) {
    if (&cached.context->segment() == segment.get() && cached.depth == depth) {
      cached.used = use_count_;
      return *cached.context;
    }
  }
  if (cached_.size() >= max_contexts_) {
    const auto oldest =
        std::min_element(cached_.begin(), cached_.end(),
                         [](const Cached& a, const Cached& b) { return a.used < b.used; });
    if (oldest->used <= used_before_run_)
      cached_.erase(oldest);  // what this run left in earlier segments stays
  }
  cached_.push_back(
      {depth, use_count_, std::make_unique<SegmentContext>(segment, devices_, program_, threads_)});
  return *cached_.back().context;
}

SegmentContext* RunContext::find_context(const Segment& segment) {
  for (const Cached& cached : cached_) {
    if (&cached.context->segment() == &segment && cached.depth == 0) return cached.context.get();
  }
  return nullptr;
}

void RunContext::forget(const Segment& segment) {
  std::erase_if(cached_,
                [&](const Cached& cached) { return &cached.context->segment() == &segment; });
}

void RunContext::make_streams(const Segment& segment) {
  for (std::size_t i = 0; i < segment.used_streams.size(); ++i) {
    if (!segment.used_streams[i]) continue;
    devices_.at(static_cast<int>(i)).throw_if_lost();
    if (streams_[i] == nullptr) {
      streams_[i] = std::make_unique<Stream>(devices_.devices[i].device);
      raw_streams_[i] = streams_[i]->raw();
      for (const Cached& cached : cached_) cached.context->forget_memory();
    }
    times_[i].record(*streams_[i], controls_.spans != nullptr, program_.context().logger);
  }
}

std::string RunContext::arena_words(const Segment& segment, std::size_t arena) const {
  const Slot* largest = nullptr;
  for (const Slot& slot : segment.slots) {
    if (slot.place != Place::Arena || slot.arena != static_cast<int>(arena)) continue;
    if (largest == nullptr || slot.state->bytes > largest->state->bytes) largest = &slot;
  }
  std::string what = "the memory of a run";
  if (largest != nullptr && largest->value != kNone) {
    const Value& value = program_.graph().value(largest->value);
    what += text(" (its largest value is '", value.name, "' of ", largest->state->bytes, " bytes");
    if (value.producer != kNone)
      what += text(", made by node '", program_.graph().node(value.producer).name, "'");
    what += ")";
  }
  return what;
}

void RunContext::charge_arena(const Segment& segment, std::size_t arena, std::uint64_t bytes,
                              Arena& charged) const {
  const auto& memory = program_.context().memory;
  if (memory == nullptr) return;
  charged.charge = MemoryCharge();
  const int space = arena < devices_.space_count() ? static_cast<int>(arena) : kHostSpace;
  charged.charge = MemoryCharge(memory, MemoryBudget::place_of(devices_, space), bytes,
                                arena_words(segment, arena));
}

void RunContext::make_arenas(const Segment& segment, std::size_t depth) {
  arenas_->reserve(depth + 1, arena_count(devices_));
  // Counts what is there when all are made, and when one cannot be.
  struct Account {
    ArenaPool& pool;
    ArenaSet& set;
    bool moved = false;
    ~Account() {
      if (moved) pool.account(set);
    }
  } account{pool_, *arenas_};
  if (segment.begin == 0) {
    for (std::vector<std::uint64_t>& of_depth : most_bytes_)
      std::fill(of_depth.begin(), of_depth.end(), 0);
    std::fill(arena_bytes_.begin(), arena_bytes_.end(), 0);
  }
  if (most_bytes_.size() <= depth)
    most_bytes_.resize(depth + 1, std::vector<std::uint64_t>(arena_bytes_.size()));
  for (std::size_t arena = 0; arena < segment.arena_bytes.size(); ++arena) {
    const std::uint64_t bytes = segment.arena_bytes[arena];
    std::uint64_t& most = most_bytes_[depth][arena];
    arena_bytes_[arena] += std::max(bytes, most) - most;
    most = std::max(bytes, most);
    if (has_room(arenas_->depths[depth].arenas[arena], segment, arena)) continue;
    account.moved = true;
    grow_arena(segment, depth, arena);
  }
}

void RunContext::grow_arena(const Segment& segment, std::size_t depth, std::size_t arena) {
  arenas_->touch(depth);
  Arena& grown = arenas_->depths[depth].arenas[arena];
  const std::vector<std::uint64_t> least = buffer_sizes(segment, arena);
  // Sizes that grow from run to run shall not move the arena each time.
  std::vector<std::uint64_t> roomy = least;
  roomy.resize(std::max(least.size(), grown.buffers.size()));
  const std::uint64_t most = most_buffer_bytes(devices_, static_cast<int>(arena));
  for (std::size_t i = 0; i < roomy.size(); ++i) {
    const std::uint64_t before = grown.buffer(i).bytes();
    if (roomy[i] > before) roomy[i] = std::max(roomy[i], std::min(before + before / 4, most));
    roomy[i] = std::max(roomy[i], before);
  }
  grown.buffers.clear();
  if (roomy == least || !make_arena(segment, depth, arena, roomy, false))
    make_arena(segment, depth, arena, least, true);
}

/// False where there is no memory and fewer bytes would do.
bool RunContext::make_arena(const Segment& segment, std::size_t depth, std::size_t arena,
                            const std::vector<std::uint64_t>& sizes, bool is_least) {
  const bool pinned = arena >= devices_.space_count();
  const int device = arena == kHostSpace ? devices_.on_host()
                     : pinned            ? static_cast<int>(arena - devices_.space_count())
                                         : static_cast<int>(arena) - 1;
  const bp_memory_kind kind = pinned ? BP_MEMORY_PINNED : BP_MEMORY_DEVICE;
  Arena& made = arenas_->depths[depth].arenas[arena];
  bool is_charged = false;  // what fails then knows nothing of the segment
  try {
    charge_arena(segment, arena, std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}),
                 made);
    is_charged = true;
    // Between devices that cannot reach each other values go over the host, be there a device on it or not.
    for (const std::uint64_t bytes : sizes) {
      made.buffers.push_back(
          device < 0 ? DeviceBuffer(nullptr, BP_MEMORY_HOST, bytes, 64)
                     : DeviceBuffer(devices_.devices[static_cast<std::size_t>(device)].device, kind,
                                    bytes, devices_.at(device).alignment(kind)));
    }
    return true;
  } catch (const Error& error) {
    made.buffers.clear();
    made.charge = MemoryCharge();
    if (error.code() != Code::OutOfMemory) throw;
    if (!is_least) return false;
    if (!is_charged) throw;
    throw error.within(arena_words(segment, arena));
  }
}

SegmentContext& RunContext::ready_context(const std::shared_ptr<const Segment>& segment,
                                          std::size_t depth) {
  make_streams(*segment);
  make_arenas(*segment, depth);
  SegmentContext& context = context_of(segment, depth);
  const ArenaSet::Depth& arenas = arenas_->depths[depth];
  context.bind_memory(arenas.arenas, raw_streams_, arenas.generation);
  return context;
}

void RunContext::prepare(const std::shared_ptr<const Segment>& segment, const RunValues& feeds,
                         const RunValues& fetches, HostViews* views) {
  synchronize();
  controls_ = RunControls();
  controls_.views = views;
  if (views != nullptr) views->begin();
  used_before_run_ = use_count_;
  arenas_ = pool_.take(last_arenas_);
  SegmentContext& context = bound_context(segment, 0, feeds, fetches);
  for (const Step& step : segment->steps) {
    if (step.kind == StepKind::HandOver && views != nullptr) take_view(context, step);
  }
}

SegmentContext& RunContext::bound_context(const std::shared_ptr<const Segment>& segment,
                                          std::size_t depth, const RunValues& feeds,
                                          const RunValues& fetches) {
  SegmentContext& context = ready_context(segment, depth);
  for (std::size_t i = 0; i < segment->incoming.size(); ++i) {
    context.bind_incoming(i, *incoming_value(segment->incoming[i], feeds));
  }
  for (const auto& [fetch, slot] : segment->fetches)
    context.bind_fetch(fetch, *fetches[static_cast<std::size_t>(fetch)]);
  return context;
}

void RunContext::run(const std::shared_ptr<const Segment>& segment, std::size_t depth,
                     const RunValues& feeds, const RunValues& fetches) {
  SegmentContext& context = bound_context(segment, depth, feeds, fetches);
  if (context.has_dynamic()) {
    context.empty_dynamic();
    dynamic_.push_back(&context);
  }
  const bool may_stop = controls_.stop.may_be_raised();
  context.set_stop(may_stop ? &controls_.stop : nullptr);
  const std::uint64_t begin = may_stop ? steady_ns() : 0;
  if (context.captures().empty() || controls_.observer != nullptr || controls_.spans != nullptr) {
    execute(context);
    if (!context.captures().empty()) ++segment->capture->watched.plain;
  } else {
    execute_captured(context, depth, feeds, fetches);
  }
  if (!controls_.synchronize && segment->is_last && segment->dynamic_fetches.empty()) {
    going_on_ = segment;
    return;
  }
  drain(*segment);
  if (may_stop && !segment->steps.empty()) {
    fail_if_stopped(segment->steps.back());
    context.set_took(std::chrono::nanoseconds(steady_ns() - begin));
  }
  take_dynamic(context, feeds, fetches);
  leave(context);
}

/// Notes what the segment leaves for later ones, and empties what none of them needs any more.
void RunContext::leave(SegmentContext& context) {
  const Segment& segment = context.segment();
  for (const Border& border : segment.outgoing) {
    const Slot& slot = segment.slots[static_cast<std::size_t>(border.slot)];
    Left left{&context.value(border.slot), nullptr, kNone};
    if (slot.place == Place::Dynamic) {
      left.owner = &context;
      left.slot = border.slot;
    } else if (slot.place == Place::Incoming) {
      const Border& from = segment.incoming[static_cast<std::size_t>(slot.number)];
      if (from.value == border.value && from.space == border.space) continue;  // it is where it was
      const auto earlier = left_.find({from.value, from.space});
      if (earlier != left_.end()) {
        left.owner = earlier->second.owner;
        left.slot = earlier->second.slot;
      }
    }
    left_[{border.value, border.space}] = left;
  }
  for (const Border& border : segment.spent) forget_left(border);
}

void RunContext::forget_left(const Border& border) {
  const auto found = left_.find({border.value, border.space});
  if (found == left_.end()) return;
  const Left left = found->second;
  left_.erase(found);
  const auto is_in_it = [&](const auto& entry) {  // a view of it, say
    return entry.second.owner == left.owner && entry.second.slot == left.slot;
  };
  if (left.owner != nullptr && std::none_of(left_.begin(), left_.end(), is_in_it))
    left.owner->give_back(left.slot);
}

void RunContext::fail_if_stopped(const Step& step) {
  const Code why = controls_.stop.raised();
  if (why != Code::Ok) fail(step, make_status(why, controls_.stop.error(why).message()));
}

void RunContext::hold_back(int device, const Step& step, std::size_t steps) {
  const auto index = static_cast<std::size_t>(device);
  try {
    in_flight_[index].make_room(*streams_[index], steps);
  } catch (const Error& error) {
    fail(step, make_status(error.code(), "before this: " + error.message()));
  }
}

void RunContext::execute(SegmentContext& context) {
  if (controls_.observer != nullptr)
    return execute_watched(context, 0, context.operations().size());
  std::size_t next = 0;
  for (const auto& group : context.parallel_runs()) {
    const std::vector<int>& steps = group->group().steps;
    execute_range(context, next, static_cast<std::size_t>(steps.front()));
    execute_group(context, *group);
    next = static_cast<std::size_t>(steps.back()) + 1;
  }
  execute_range(context, next, context.operations().size());
}

void RunContext::execute_range(SegmentContext& context, std::size_t begin, std::size_t end) {
  if (controls_.spans != nullptr) return execute_watched(context, begin, end);
  const bool may_stop = controls_.stop.may_be_raised();
  AtWork work;
  for (std::size_t i = begin; i < end; ++i) {
    const Operation& operation = context.operations()[i];
    if (may_stop) {
      const Step& step = context.segment().steps[static_cast<std::size_t>(operation.step)];
      if (step.on_stream) hold_back(step.device, step, 1);
      fail_if_stopped(step);
    }
    work.on(operation);
    if (!operation.plain) {
      execute_special(context, operation);
      forget_spent(context, context.segment().steps[static_cast<std::size_t>(operation.step)]);
    } else if (bp_status* status = operation.call()) {
      fail(context.segment().steps[static_cast<std::size_t>(operation.step)], status);
    }
  }
}

void RunContext::execute_group(SegmentContext& context, ParallelRun& group) {
  struct Call {
    RunContext* self;
    SegmentContext* context;
    std::vector<Span>* spans;  ///< by step of the group; null: nobody wants them
    int first;
  };
  std::vector<Span> spans(controls_.spans != nullptr ? group.group().steps.size() : 0);
  Call call{this, &context, controls_.spans != nullptr ? &spans : nullptr,
            group.group().steps.front()};
  const auto do_step = [](void* argument, int step, unsigned member) -> bp_status* {
    const Call& to = *static_cast<Call*>(argument);
    if (to.spans == nullptr) return to.self->execute_in_group(*to.context, step);
    Span& span = (*to.spans)[static_cast<std::size_t>(step - to.first)];
    span = to.self->span_of(to.context->segment().steps[static_cast<std::size_t>(step)]);
    if (member > 0) span.lane += text(", thread ", member + 1);
    span.begin_ns = steady_ns();
    bp_status* status = to.self->execute_in_group(*to.context, step);
    span.end_ns = steady_ns();
    return status;
  };
  bp_status* status = nullptr;
  bp_threads threads = *threads_;
  if (const unsigned limit = program_.context().inter_op_threads; limit > 0)
    threads.max_threads = std::min(threads.max_threads, limit);
  const int failed = group.run(threads, do_step, &call, status);
  if (failed >= 0) fail(context.segment().steps[static_cast<std::size_t>(failed)], status);
  for (Span& span : spans) controls_.spans->push_back(std::move(span));
}

bp_status* RunContext::execute_in_group(SegmentContext& context, int step) {
  const Operation& operation = context.operations()[static_cast<std::size_t>(step)];
  if (const Code why = controls_.stop.raised(); why != Code::Ok)
    return make_status(why, controls_.stop.error(why).message());
  AtWork work;
  work.on(operation);
  if (operation.plain) return operation.call();
  copy(context, context.segment().steps[static_cast<std::size_t>(step)]);  // from host to host
  return nullptr;
}

void RunContext::execute_special(SegmentContext& context, const Operation& operation) {
  const Step& step = context.segment().steps[static_cast<std::size_t>(operation.step)];
  wait_for(context, step);
  if (step.kind == StepKind::Compute) {
    if (bp_status* status = operation.call()) fail(step, status);
  } else if (step.kind == StepKind::Control) {
    execute_control(context, operation);
  } else if (step.kind == StepKind::HandOver) {
    hand_over(context, step);
  } else if (step.kind == StepKind::HandBack) {
    hand_back(context, step);
  } else {
    copy(context, step);
  }
  if (!step.signals) return;
  try {
    context.marks()[static_cast<std::size_t>(operation.step)] =
        streams_[static_cast<std::size_t>(step.device)]->signal();
  } catch (const Error& error) {
    fail(step, make_status(error.code(), error.message()));
  }
}

void RunContext::execute_control(SegmentContext& context, const Operation& operation) {
  ControlCall call{operation.ctx->inputs, operation.ctx->outputs, controls_};
  call.controls.run = run_id_;
  try {
    context.control(operation.step).run(call);
  } catch (const Error& error) {
    fail(context.segment().steps[static_cast<std::size_t>(operation.step)],
         make_status(error.code(), error.message()));
  }
}

void RunContext::wait_for(SegmentContext& context, const Step& step) {
  for (const Wait& wait : step.waits) {
    try {
      streams_[static_cast<std::size_t>(wait.stream)]->host_wait(
          context.marks()[static_cast<std::size_t>(wait.step)]);
    } catch (const Error& error) {
      const Step& earlier = context.segment().steps[static_cast<std::size_t>(wait.step)];
      fail(earlier, make_status(error.code(), "at or before this: " + error.message()));
    }
  }
}

void RunContext::copy(SegmentContext& context, const Step& step) {
  if (bp_status* status = put_copy(context, step)) fail(step, status);
}

bp_status* RunContext::put_copy(SegmentContext& context, const Step& step) {
  const RuntimeValue& from = context.value(step.inputs[0]);
  const RuntimeValue& to = context.value(step.outputs[0]);
  if (from.description.bytes == 0) return nullptr;
  if (step.kind == StepKind::HostCopy) {
    std::memcpy(to.description.host_ptr, from.description.host_ptr, from.description.bytes);
    return nullptr;
  }
  const auto described = [&](int index) {
    const Slot& slot = context.segment().slots[static_cast<std::size_t>(index)];
    bp_tensor tensor = context.value(index).description;
    if (slot.place == Place::Arena && slot.arena == pinned_arena(devices_, step.device)) {
      const auto* host = static_cast<const std::byte*>(tensor.host_ptr);
      for (const ArenaSet::Depth& depth : arenas_->depths) {
        for (const DeviceBuffer& buffer :
             depth.arenas[static_cast<std::size_t>(slot.arena)].buffers) {
          if (host < buffer.host_ptr() || host >= buffer.host_ptr() + buffer.bytes()) continue;
          tensor.buffer = buffer.raw();
          tensor.offset = static_cast<std::uint64_t>(host - buffer.host_ptr());
          tensor.memory = BP_MEMORY_PINNED;
        }
      }
    }
    return tensor;
  };
  const bp_tensor source = described(step.inputs[0]), target = described(step.outputs[0]);
  Device& device = devices_.at(step.device);
  return device.call(device.api().copy, raw_streams_[static_cast<std::size_t>(step.device)],
                     &source, &target);
}

void RunContext::fail(const Step& step, bp_status* status) {
  Error error = take_error(status);
  // Kernels are told that they are to end, and not why.
  if (error.code() == Code::Cancelled && controls_.stop.raised() == Code::Timeout)
    error = controls_.stop.error(Code::Timeout);
  error = within_run(error.within(step_name(program_, step)));
  if (step.device >= 0) error = error.within(devices_.at(step.device).label());
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->drain();
  }
  for (const auto& view : held_) view->set_broken();
  if (error.code() == Code::DeviceLost && step.device >= 0)
    devices_.at(step.device).mark_lost(error.message());
  throw error;
}

void RunContext::drain(const Segment& segment) {
  std::optional<Error> first;
  int failed = -1;
  for (std::size_t i = 0; i < segment.used_streams.size(); ++i) {
    if (!segment.used_streams[i]) continue;
    std::optional<Error> error = streams_[i]->drain();
    if (!error || first) continue;
    first = std::move(error);
    failed = static_cast<int>(i);
  }
  if (!first) return;
  for (std::size_t i = segment.steps.size(); i-- > 0;) {
    const Step& step = segment.steps[i];
    if (step.device == failed)
      fail(step, make_status(first->code(), "at or before this: " + first->message()));
  }
}

const RuntimeValue* RunContext::incoming_value(const Border& border, const RunValues& feeds) const {
  if (!left_.empty()) {
    if (const RuntimeValue* left = left_value(border.value, border.space)) return left;
  }
  const auto fed = std::find(program_.feeds().begin(), program_.feeds().end(), border.value);
  return feeds[static_cast<std::size_t>(fed - program_.feeds().begin())];
}

void RunContext::take_dynamic(SegmentContext& context, const RunValues& feeds,
                              const RunValues& fetches) {
  // Such a fetch may get other memory; a view of an earlier plan could be over what it had.
  if (!context.segment().dynamic_fetches.empty() && controls_.views != nullptr)
    controls_.views->clear();
  for (const auto& [fetch, index] : context.segment().dynamic_fetches) {
    const Slot& slot = context.segment().slots[static_cast<std::size_t>(index)];
    const bool constant = slot.place == Place::Weight && slot.state->type == DataType::String;
    // What comes from elsewhere is only read: it is not spare.
    RuntimeValue* from =
        constant ? const_cast<RuntimeValue*>(&slot.weight->value) : &context.value(index);
    if (slot.place == Place::Incoming)
      from = const_cast<RuntimeValue*>(
          incoming_value(context.segment().incoming[static_cast<std::size_t>(slot.number)], feeds));
    const ValueId id = program_.fetches()[static_cast<std::size_t>(fetch)];
    const std::string& output = program_.graph().value(id).name;
    RuntimeValue& to = *fetches[static_cast<std::size_t>(fetch)];
    if (to.imported != nullptr) {
      if (!from->is_tensor() || to.element() != from->element() || to.dims != from->dims)
        refuse_given(to, *from, output);
      SpaceCopies(devices_).copy(from->description, to.description, slot.space);
      continue;
    }
    const bool resize =
        controls_.resizable != nullptr && (*controls_.resizable)[static_cast<std::size_t>(fetch)];
    take_contents(*from, to, {output, resize, is_body_, context.is_spare(index)});
  }
}

}  // namespace backplane::core
