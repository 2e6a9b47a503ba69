#include "core/runtime/executable.hpp"

#include <algorithm>
#include <exception>

#include "core/runtime/named_values.hpp"

namespace backplane::core {
namespace {

/// Of all runs of the process: devices are shared by sessions.
std::uint64_t next_run_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void collect_segments(const PlanNode& plan, std::vector<std::shared_ptr<const Segment>>& segments) {
  if (plan.segment != nullptr) segments.push_back(plan.segment);
  for (const PlanList::Entry& next : plan.next) collect_segments(*next.node, segments);
}

/// Plans may hold work that a device recorded, and memory there: where one has memory of its own, few are kept.
std::size_t most_plans(const ProgramContext& context) {
  const std::vector<SessionDevice>& devices = context.devices->devices;
  const bool is_host_alone = std::all_of(devices.begin(), devices.end(), [](const auto& entry) {
    return entry.device->on_host_memory();
  });
  return context.max_plans != 0 || is_host_alone ? context.max_plans : kLeastPlans;
}

}  // namespace

Executable::Executable(const ProgramContext& context, Cut cut, ArenaPool* arenas, TraceLog* trace)
    : context_(context),
      cut_(std::move(cut)),
      max_plans_(most_plans(context)),
      own_arenas_(arenas == nullptr ? std::make_unique<ArenaPool>() : nullptr),
      arenas_(arenas == nullptr ? *own_arenas_ : *arenas),
      trace_(trace),
      generation_(std::make_shared<Generation>()) {
  generation_->program = std::make_unique<Program>(context_, cut_, refusals_);
  newest_ = generation_.get();
}

Executable::~Executable() {
  for (std::atomic<Idle*>& idle : idle_) delete idle.load();
}

std::shared_ptr<Generation> Executable::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

Executable::Last Executable::last() const {
  const std::lock_guard lock(mutex_);
  return {last_generation_ != nullptr ? last_generation_ : generation_, last_segment_};
}

PlanRecord Executable::record() const {
  const std::lock_guard lock(mutex_);
  return generation_->program->record(cut_, refusals_);
}

std::vector<std::shared_ptr<const Segment>> Executable::segments() const {
  const std::shared_ptr<Generation> current = generation();
  const std::lock_guard lock(current->planning);
  std::vector<std::shared_ptr<const Segment>> segments;
  collect_segments(current->plans, segments);
  return segments;
}

std::vector<std::uint64_t> Executable::arena_bytes() const {
  const std::lock_guard lock(mutex_);
  return arena_bytes_;
}

Executable::Idle* Executable::acquire(const std::shared_ptr<Generation>& generation) {
  for (std::atomic<Idle*>& place : idle_) {
    Idle* idle =
        place.load(std::memory_order_relaxed) == nullptr ? nullptr : place.exchange(nullptr);
    if (idle == nullptr) continue;
    if (idle->generation == generation) return idle;
    delete idle;
  }
  auto made = std::make_unique<Idle>();
  made->generation = generation;
  made->context = std::make_unique<RunContext>(*generation->program, context_.threads, max_plans_,
                                               context_.body != nullptr, &arenas_);
  return made.release();
}

void Executable::release(Idle* idle) noexcept {
  if (!context_.keep_arenas) {
    delete idle;
    arenas_.shrink();
    return;
  }
  for (std::atomic<Idle*>& place : idle_) {
    Idle* empty = nullptr;
    if (place.compare_exchange_strong(empty, idle)) return;
  }
  delete idle;
}

void Executable::note(const std::shared_ptr<Generation>& generation,
                      const std::shared_ptr<const Segment>& segment,
                      const std::vector<std::uint64_t>& arena_bytes) {
  const std::lock_guard lock(mutex_);
  last_segment_ = segment;
  last_generation_ = generation;
  arena_bytes_ = arena_bytes;  // into the memory of the last ones: runs do not allocate
  last_noted_ = segment.get();
}

void Executable::note_run(const Run& run, const std::shared_ptr<const Segment>& segment,
                          const RunContext& context) {
  if (last_noted_.load(std::memory_order_relaxed) == segment.get()) return;
  note(run.generation, segment, context.arena_bytes());
}

void Executable::run_segments(const Run& run, std::shared_ptr<PlanNode> plan, RunContext& context) {
  const std::shared_ptr<const Segment> first = plan->segment;
  if (first->is_last) {
    provide_fetches(*first, run);
    context.run(first, 0, run.feeds, run.fetches);
    note_run(run, first, context);
    return;
  }
  std::vector<bool> fetched(run.fetches.size());
  while (true) {
    provide_fetches(*plan->segment, run);
    context.run(plan->segment, plan->depth, run.feeds, run.fetches);
    if (plan->segment->is_last) break;
    for (const auto& [fetch, slot] : plan->segment->fetches)
      fetched[static_cast<std::size_t>(fetch)] = true;
    for (const auto& [fetch, slot] : plan->segment->dynamic_fetches)
      fetched[static_cast<std::size_t>(fetch)] = true;
    try {
      plan = next_plan(run, *plan, context, fetched);
    } catch (const Error& error) {
      throw within_run(error);
    }
  }
  note_run(run, first, context);
}

template <class Work>
void Executable::in_context(const Run& run, const Work& work) {
  Idle* idle = acquire(run.generation);
  try {
    work(*idle->context);
  } catch (...) {
    idle->context->finish();
    release(idle);
    throw;
  }
  idle->context->finish();
  release(idle);
}

void Executable::attempt(const Run& run) {
  std::shared_ptr<PlanNode> looked_up;
  in_context(run, [&](RunContext& context) {
    const std::shared_ptr<PlanNode>& plan = find_plan_of(run, context, looked_up);
    RunControls controls = run.settings.controls;
    controls.resizable = run.settings.resizable;
    if (run.settings.memo != nullptr) controls.views = &run.settings.memo->views;
    context.start(next_run_id(), controls);
    run_segments(run, plan, context);
  });
}

void Executable::attempt_preparing(const Run& run) {
  std::shared_ptr<PlanNode> looked_up;
  HostViews* const views = run.settings.memo != nullptr ? &run.settings.memo->views : nullptr;
  in_context(run, [&](RunContext& context) {
    const std::shared_ptr<PlanNode>& plan = find_plan_of(run, context, looked_up);
    provide_fetches(*plan->segment, run);
    context.prepare(plan->segment, run.feeds, run.fetches, views);
  });
}

void Executable::run_or_prepare(const RunValues& feeds, const RunValues& fetches,
                                const RunSettings& settings, void (Executable::*work)(const Run&)) {
  HostViewWishes own_wishes;
  HostViewWishes& wishes = settings.memo != nullptr ? settings.memo->wishes : own_wishes;
  with_generations(settings.memo, [&](const std::shared_ptr<Generation>& generation) {
    (this->*work)({generation, feeds, fetches, settings, wishes});
  });
}

void Executable::run(const RunValues& feeds, const RunValues& fetches,
                     const RunSettings& settings) {
  run_or_prepare(feeds, fetches, settings, &Executable::attempt);
}

void Executable::prepare(const RunValues& feeds, const RunValues& fetches,
                         const RunSettings& settings) {
  run_or_prepare(feeds, fetches, settings, &Executable::attempt_preparing);
}

void Executable::synchronize() {
  std::exception_ptr failed;
  for (std::atomic<Idle*>& place : idle_) {
    Idle* idle = place.exchange(nullptr);
    if (idle == nullptr) continue;
    try {
      idle->context->synchronize();
    } catch (...) {
      if (failed == nullptr) failed = std::current_exception();
    }
    release(idle);
  }
  if (failed != nullptr) std::rethrow_exception(failed);
}

std::shared_ptr<const Segment> Executable::plan(const RunValues& feeds) {
  const RunValues no_fetches;
  const RunSettings settings;
  HostViewWishes wishes;
  return with_generations(nullptr, [&](const std::shared_ptr<Generation>& generation) {
    const Run run{generation, feeds, no_fetches, settings, wishes};
    std::shared_ptr<const Segment> segment = find_first_plan(run, nullptr)->segment;
    note(generation, segment, segment->arena_bytes);
    return segment;
  });
}

}  // namespace backplane::core
