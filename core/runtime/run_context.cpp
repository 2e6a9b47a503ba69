#include "core/runtime/run_context.hpp"

#include <algorithm>
#include <utility>

#include "core/runtime/plan_node.hpp"
#include "core/runtime/segment_run.hpp"

namespace backplane::core {

RunContext::RunContext(const Program& program, bp_threads* threads, std::size_t max_contexts,
                       bool is_body, ArenaPool* pool)
    : state_(program, threads, is_body, pool), max_contexts_(max_contexts) {
  for (const SessionDevice& device : state_.devices.devices) {
    if (is_body) break;
    tells_devices_ = tells_devices_ || BP_HAS_FN(bp_device_api, &device.device->api(), run_begin);
  }
}

RunContext::~RunContext() {
  state_.streams.drain();
  end_run();
}

void RunContext::start(std::uint64_t run_id, const RunControls& controls) {
  try {
    synchronize();
  } catch (const Error& error) {
    throw error.within("an earlier run, which was not synchronized");
  }
  state_.id = controls.run != 0 ? controls.run : run_id;
  state_.controls = controls;
  used_before_run_ = use_count_;
  state_.streams.begin();
  if (state_.controls.views != nullptr) state_.controls.views->begin();
  state_.arenas.take();
  if (!tells_devices_) return;
  for (int i = 0; i < static_cast<int>(state_.devices.devices.size()); ++i) {
    Device& device = state_.devices.at(i);
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
  if (state_.controls.views != nullptr) std::exchange(state_.controls.views, nullptr)->sweep();
  if (going_on_ == nullptr) end_run();
}

void RunContext::end_run() noexcept {
  for (const int i : begun_) {
    Device& device = state_.devices.at(i);
    if (BP_HAS_FN(bp_device_api, &device.api(), run_end))
      device.tell("run_end", device.api().run_end, state_.id);
  }
  begun_.clear();
  state_.held.clear();
  state_.own_views.clear();
  state_.left.clear();
  for (SegmentContext* const context : dynamic_) context->give_dynamic_back();
  dynamic_.clear();
  state_.arenas.give();
}

void RunContext::synchronize() {
  if (going_on_ == nullptr) return;
  const std::shared_ptr<const Segment> segment = std::move(going_on_);
  going_on_ = nullptr;
  try {
    state_.drain(*segment);
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
}

SegmentContext& RunContext::context_of(const std::shared_ptr<const Segment>& segment,
                                       std::size_t depth) {
  ++use_count_;
  for (Cached& cached : cached_) {
    if (cached.segment == segment.get() && cached.depth == depth) {
      cached.used = use_count_;
      return *cached.context;
    }
  }
  if (cached_.size() >= kept_plans(max_contexts_, *segment)) {
    const auto oldest =
        std::min_element(cached_.begin(), cached_.end(),
                         [](const Cached& a, const Cached& b) { return a.used < b.used; });
    if (oldest->used <= used_before_run_)
      cached_.erase(oldest);  // what this run left in earlier segments stays
  }
  cached_.push_back(
      {segment.get(), depth, use_count_,
       std::make_unique<SegmentContext>(segment, state_.devices, state_.program, state_.threads)});
  return *cached_.back().context;
}

SegmentContext* RunContext::find_context(const Segment& segment) {
  for (const Cached& cached : cached_) {
    if (cached.segment == &segment && cached.depth == 0) return cached.context.get();
  }
  return nullptr;
}

void RunContext::forget(const Segment& segment) {
  std::erase_if(cached_, [&](const Cached& cached) { return cached.segment == &segment; });
}

SegmentContext& RunContext::bound_context(const std::shared_ptr<const Segment>& segment,
                                          std::size_t depth, const RunValues& feeds,
                                          const RunValues& fetches) {
  state_.streams.make(*segment, state_.controls.spans != nullptr, state_.program.context().logger);
  if (state_.streams.count() != stream_count_) {
    stream_count_ = state_.streams.count();
    for (const Cached& cached : cached_) cached.context->forget_memory();
  }
  const ArenaSet::Depth& arenas = state_.arenas.make(*segment, depth);
  SegmentContext& context = context_of(segment, depth);
  context.bind_memory(arenas.arenas, state_.streams.raw(), arenas.generation);
  for (std::size_t i = 0; i < segment->incoming.size(); ++i) {
    context.bind_incoming(i, state_.incoming(segment->incoming[i], feeds));
  }
  for (const auto& [fetch, slot] : segment->fetches)
    context.bind_fetch(fetch, *fetches[static_cast<std::size_t>(fetch)]);
  return context;
}

void RunContext::prepare(const std::shared_ptr<const Segment>& segment, const RunValues& feeds,
                         const RunValues& fetches, HostViews* views) {
  synchronize();
  state_.controls = RunControls();
  state_.controls.views = views;
  if (views != nullptr) views->begin();
  used_before_run_ = use_count_;
  state_.arenas.take();
  SegmentContext& context = bound_context(segment, 0, feeds, fetches);
  SegmentRun run(state_, context, feeds, fetches);
  for (const Step& step : segment->steps) {
    if (step.kind == StepKind::HandOver && views != nullptr) run.take_view(step);
  }
}

void RunContext::run(const std::shared_ptr<const Segment>& segment, std::size_t depth,
                     const RunValues& feeds, const RunValues& fetches) {
  SegmentContext& context = bound_context(segment, depth, feeds, fetches);
  if (context.has_dynamic()) {
    context.empty_dynamic();
    dynamic_.push_back(&context);
  }
  const RunControls& controls = state_.controls;
  const bool may_stop = controls.stop.may_be_raised();
  context.set_stop(may_stop ? &controls.stop : nullptr);
  const std::uint64_t begin = may_stop ? steady_ns() : 0;
  SegmentRun run(state_, context, feeds, fetches);
  run.execute(depth);
  if (!controls.synchronize && segment->is_last && segment->dynamic_fetches.empty()) {
    going_on_ = segment;
    return;
  }
  state_.drain(*segment);
  if (may_stop && !segment->steps.empty()) {
    run.fail_if_stopped();
    context.set_took(std::chrono::nanoseconds(steady_ns() - begin));
  }
  run.take_dynamic_fetches();
  state_.left.leave(context);
}

}  // namespace backplane::core
