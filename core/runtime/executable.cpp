#include "core/runtime/executable.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/plan/spill.hpp"
#include "core/runtime/named_values.hpp"
#include "core/runtime/value_memory.hpp"

namespace backplane::core {
namespace {

void append_shape(PlanKey& key, const RuntimeValue& value) {
  key.push_back(value.kind);
  key.push_back(value.description.dtype);
  key.push_back(value.description.rank);
  for (std::int32_t axis = 0; axis < value.description.rank; ++axis)
    key.push_back(value.description.dims[axis]);
}

void append_contents(PlanKey& key, const RuntimeValue& value) {
  const auto* bytes = static_cast<const char*>(value.description.host_ptr);
  for (std::uint64_t done = 0; done < value.description.bytes; done += sizeof(std::int64_t)) {
    std::int64_t word = 0;
    std::memcpy(&word, bytes + done,
                std::min<std::uint64_t>(sizeof(word), value.description.bytes - done));
    key.push_back(word);
  }
}

bool is_keyed(const RuntimeValue& value) {
  return value.is_tensor() && value.element() != DataType::String &&
         value.description.bytes <= kMaxKeyedFeedBytes && value.description.host_ptr != nullptr;
}

void append_places(const BodyPlaces* places, PlanKey& key) {
  if (places == nullptr) return;
  key.insert(key.end(), places->feeds.begin(), places->feeds.end());
  key.insert(key.end(), places->fetches.begin(), places->fetches.end());
}

void make_key(const Program& program, const RunValues& feeds, const BodyPlaces* places,
              PlanKey& key) {
  key.clear();
  append_places(places, key);
  for (const RuntimeValue* feed : feeds) append_shape(key, *feed);
  for (const std::size_t index : program.keyed_feeds()) {
    if (is_keyed(*feeds[index])) append_contents(key, *feeds[index]);
  }
}

/// Of all runs of the process: devices are shared by sessions.
std::uint64_t next_run_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// A copy of a host value that stays as it is.
RuntimeValuePtr copy_of(const RuntimeValue& value) {
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

std::vector<SharedState> states_of_feeds(const Program& program, const RunValues& feeds) {
  std::vector<SharedState> states(program.graph().value_count());
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    ValueState state = state_of(*feeds[i]);
    // An empty optional does not know what it could hold; the model does.
    const Type& declared = program.graph().value(program.feeds()[i]).type;
    if (state.kind == ValueState::Kind::Object && declared.kind != Type::Kind::Unknown)
      state.object_type = declared.to_string();
    states[static_cast<std::size_t>(program.feeds()[i])] = std::move(state);
  }
  for (const std::size_t i : program.keyed_feeds()) {
    if (is_keyed(*feeds[i]))
      states[static_cast<std::size_t>(program.feeds()[i])] = known_state(copy_of(*feeds[i]));
  }
  return states;
}

}  // namespace

Executable::Executable(const ProgramContext& context, Cut cut, ArenaPool* arenas, TraceLog* trace)
    : context_(context),
      cut_(std::move(cut)),
      max_plans_(std::max<std::size_t>(context.max_plans, 1)),
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

namespace {

void collect_segments(const PlanNode& plan, std::vector<std::shared_ptr<const Segment>>& segments) {
  if (plan.segment != nullptr) segments.push_back(plan.segment);
  for (const PlanNode::Next& next : plan.next) collect_segments(*next.node, segments);
}

}  // namespace

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

std::shared_ptr<PlanNode> Executable::make_plan(Generation& generation, PlanNode& from, PlanKey key,
                                                std::size_t begin, std::vector<SharedState> values,
                                                const std::vector<Border>& available,
                                                const std::vector<bool>& fetched,
                                                const BodyPlaces* places,
                                                const HostViewWishes& wishes) {
  const std::uint64_t start = steady_ns();
  auto node = std::make_shared<PlanNode>();
  check_files();
  const std::vector<SharedState>* const before =
      from.next.empty() ? nullptr : &from.next.front().node->segment->values;
  node->segment =
      plan_segment(*generation.program, begin, std::move(values), available, fetched,
                   places != nullptr ? places->fetches : std::vector<int>(), wishes, before);
  choose_arenas(*node, from);
  check_files();  // what was packed meanwhile
  check_room(generation, *node->segment);
  if (from.next.size() >= max_plans_) from.next.pop_back();
  keep_plan(generation, from, {std::move(key), node}, start);
  return node;
}

/// The caller holds Generation::planning.
void Executable::keep_plan(Generation& generation, PlanNode& from, PlanNode::Next plan,
                           std::uint64_t start) {
  const Segment& segment = *plan.node->segment;
  from.next.push_front(std::move(plan));
  ++generation.plan_count;
  const std::uint64_t end = steady_ns();
  const double elapsed = static_cast<double>(end - start) / 1e6;
  if (trace_ != nullptr)
    trace_->add({segment.begin == 0 ? "plan" : "plan the next segment",
                 "session",
                 "session",
                 start,
                 end,
                 {{"steps", text(segment.steps.size())}},
                 0});
  plan_ms_ = segment.begin == 0 ? elapsed : plan_ms_ + elapsed;
}

namespace {

/// Where feeds lie.
std::vector<Border> borders_of_feeds(const Program& program, const BodyPlaces* places) {
  std::vector<Border> borders;
  for (std::size_t i = 0; i < program.feeds().size(); ++i)
    borders.push_back({program.feeds()[i], places != nullptr ? places->feeds[i] : kHostSpace, -1});
  return borders;
}

void place_feeds(const Program& program, const BodyPlaces* places,
                 std::vector<SharedState>& values) {
  for (const Border& feed : borders_of_feeds(program, places)) {
    SharedState& shared = values[static_cast<std::size_t>(feed.value)];
    if (shared->space == feed.space) continue;
    ValueState state = *shared;
    state.space = feed.space;
    shared = std::move(state);
  }
}

/// Whether `count` owners are all that there are, and have been done with it before.
template <class T>
bool is_alone(const std::shared_ptr<T>& shared, long count) {
  if (shared.use_count() != count) return false;
  std::shared_ptr<T>(shared).reset();  // an owner that ends comes after all that ended before
  return true;
}

/// The plan under a key, moved to the front; null when there is none.
std::shared_ptr<PlanNode> find_plan(PlanNode& from, const PlanKey& key) {
  for (auto place = from.next.begin(); place != from.next.end(); ++place) {
    if (place->key != key) continue;
    from.next.splice(from.next.begin(), from.next, place);
    return from.next.front().node;
  }
  return nullptr;
}

}  // namespace

const HostViewPlaces& Executable::views_of(Generation& generation) const {
  std::call_once(generation.views_found,
                 [&] { generation.views = find_host_views(*generation.program); });
  return generation.views;
}

/// What tells the run's plan from others. Fills in its wishes.
void Executable::make_run_key(const Run& run, PlanKey& key) const {
  make_key(*run.generation->program, run.feeds, run.settings.places, key);
  const HostViewPlaces& views = views_of(*run.generation);
  run.wishes.feeds.clear();
  run.wishes.fetches.clear();
  if (!views.any || copies_all_.load(std::memory_order_relaxed)) return;
  find_wishes(views, run.feeds, run.fetches, run.settings.places, run.wishes);
  key.insert(key.end(), run.wishes.feeds.begin(), run.wishes.feeds.end());
  key.insert(key.end(), run.wishes.fetches.begin(), run.wishes.fetches.end());
}

/// `context`: that the run is going to use; null: there is none.
std::shared_ptr<PlanNode> Executable::first_plan(const Run& run, RunContext* context) {
  const Program& program = *run.generation->program;
  PlanKey own;
  PlanKey& key = run.settings.memo != nullptr ? run.settings.memo->scratch : own;
  make_run_key(run, key);
  const std::lock_guard lock(run.generation->planning);
  if (auto found = find_plan(run.generation->plans, key)) return found;
  std::vector<SharedState> values = states_of_feeds(program, run.feeds);
  if (context != nullptr) {
    if (auto resized = resize_oldest(run, key, values, *context)) return resized;
  }
  return first_plan(*run.generation, key, std::move(values), run.settings.places, run.wishes);
}

/// The plan that is to go, and what `context` has ready for it, made to fit; null where that cannot be. The caller holds
/// Generation::planning.
std::shared_ptr<PlanNode> Executable::resize_oldest(const Run& run, const PlanKey& key,
                                                    const std::vector<SharedState>& values,
                                                    RunContext& context) {
  std::list<PlanNode::Next>& plans = run.generation->plans.next;
  if (plans.size() < max_plans_ || run.settings.places != nullptr) return nullptr;
  const std::uint64_t start = steady_ns();
  PlanNode::Next& oldest = plans.back();
  const std::shared_ptr<Segment>& segment = oldest.node->segment;
  if (!may_be_resized(*segment)) return nullptr;
  SegmentContext* const ready = context.find_context(*segment);
  // No other run, caller or report may have it; what they read of it was before this.
  if (!is_alone(oldest.node, 1) || !is_alone(segment, ready != nullptr ? 2 : 1)) return nullptr;
  PlanNode::Next plan = std::move(oldest);
  plans.pop_back();
  std::optional<SegmentChange> change;
  try {
    check_files();
    change = resize_segment(*run.generation->program, *plan.node->segment, values);
    check_files();
  } catch (...) {
    context.forget(*plan.node->segment);
    throw;
  }
  if (!change) {
    context.forget(*plan.node->segment);
    return nullptr;
  }
  if (ready != nullptr) ready->resize(*change);
  plan.key = key;
  std::shared_ptr<PlanNode> node = plan.node;
  keep_plan(*run.generation, run.generation->plans, std::move(plan), start);
  return node;
}

/// Makes it; the caller holds Generation::planning.
std::shared_ptr<PlanNode> Executable::first_plan(Generation& generation, PlanKey key,
                                                 std::vector<SharedState> values,
                                                 const BodyPlaces* places,
                                                 const HostViewWishes& wishes) {
  const Program& program = *generation.program;
  place_feeds(program, places, values);
  return make_plan(generation, generation.plans, std::move(key), 0, std::move(values),
                   borders_of_feeds(program, places), std::vector<bool>(program.fetches().size()),
                   places, wishes);
}

std::shared_ptr<PlanNode> Executable::next_plan(const Run& run, PlanNode& from,
                                                const RunContext& context,
                                                const std::vector<bool>& fetched) {
  const Program& program = *run.generation->program;
  std::vector<SharedState> values = from.segment->values;
  std::vector<Border> available = context.left();
  for (const Border& feed : borders_of_feeds(program, run.settings.places))
    available.push_back(feed);
  PlanKey key;
  for (const Border& border : context.left()) {
    SharedState& known = values[static_cast<std::size_t>(border.value)];
    if (known->kind != ValueState::Kind::Pending) continue;
    const RuntimeValue& value = *context.left_value(border.value, border.space);
    ValueState state = state_of(value);
    state.space = border.space;
    known = std::move(state);
    append_shape(key, value);
  }
  for (const ValueId id : from.segment->wants_value) {
    const RuntimeValue* value = context.left_value(id, kHostSpace);
    for (std::size_t i = 0; value == nullptr && i < run.feeds.size(); ++i) {
      if (program.feeds()[i] == id) value = run.feeds[i];
    }
    if (value == nullptr)
      throw Error(Code::Internal,
                  text("the value '", program.graph().value(id).name, "' is not on the host"));
    append_contents(key, *value);
    values[static_cast<std::size_t>(id)] = known_state(copy_of(*value));
  }
  const std::lock_guard lock(run.generation->planning);
  if (auto found = find_plan(from, key)) return found;
  return make_plan(*run.generation, from, std::move(key), from.segment->end, std::move(values),
                   available, fetched, run.settings.places, run.wishes);
}

/// Gives a fetch memory of its own, aligned for a device that may view it.
void Executable::own_fetch(const Run& run, std::size_t fetch, const ValueState& state) const {
  if (run.settings.memo != nullptr) run.settings.memo->views.clear();  // of what may go now
  const std::vector<std::uint64_t>& alignments = views_of(*run.generation).fetches;
  const std::uint64_t least = fetch < alignments.size() ? alignments[fetch] : 0;
  run.fetches[fetch]->set_owned_tensor(state.type, state.dims, std::max(least, kHostAlignment));
}

/// Refuses a fetch in the memory of a feed, but for one whose kernel works in place on the feed, which nothing else reads:
/// a cache of keys and values that is past and present at once. `fed`: where feeds are; models with many caches have as many
/// of both, so that comparing each with each would be what such a run does most.
void Executable::check_apart(const Segment& segment, const Run& run, const AddressFilter& fed,
                             std::size_t fetch, int slot) const {
  const void* begin = run.fetches[fetch]->description.host_ptr;
  if (!run.fetches[fetch]->is_tensor() || begin == nullptr || !fed.may_hold(begin)) return;
  const std::vector<ValueId>& values = run.generation->program->feeds();
  for (std::size_t i = 0; i < run.feeds.size(); ++i) {
    if (run.feeds[i] == nullptr || !run.feeds[i]->is_tensor() ||
        run.feeds[i]->description.host_ptr != begin || run.feeds[i]->description.bytes == 0)
      continue;
    const auto is_allowed = [&](const std::pair<int, int>& pair) {
      const Slot& over = segment.slots[static_cast<std::size_t>(pair.second)];
      const Slot& to = segment.slots[static_cast<std::size_t>(pair.first)];
      return pair.first == slot && over.value == values[i] && over.state->bytes == to.state->bytes;
    };
    if (std::none_of(segment.over_feeds.begin(), segment.over_feeds.end(), is_allowed))
      refuse_shared_memory(cut_.fetches[fetch], "input", cut_.feeds[i]);
  }
}

void Executable::provide_fetches(const Segment& segment, const Run& run) const {
  AddressFilter fed;
  for (const RuntimeValue* feed : run.feeds) {
    if (feed != nullptr) fed.add(feed->description.host_ptr);
  }
  for (const auto& [fetch, slot] : segment.dynamic_fetches)
    check_apart(segment, run, fed, static_cast<std::size_t>(fetch), slot);
  for (const auto& [fetch, slot] : segment.fetches) {
    try {
      provide_fetch(segment, run, fed, fetch, slot);
    } catch (const Error& error) {
      if (error.code() != Code::OutOfMemory) throw;
      const Graph& graph = run.generation->program->graph();
      const NodeId producer =
          graph.value(segment.slots[static_cast<std::size_t>(slot)].value).producer;
      const std::string made =
          producer == kNone ? "" : ", made by " + run.generation->program->words(producer);
      throw error.within(
          text("output '", cut_.fetches[static_cast<std::size_t>(fetch)], "'", made));
    }
  }
}

void Executable::provide_fetch(const Segment& segment, const Run& run, const AddressFilter& fed,
                               int fetch, int slot) const {
  RuntimeValue& value = *run.fetches[static_cast<std::size_t>(fetch)];
  const ValueState& state = *segment.slots[static_cast<std::size_t>(slot)].state;
  const int space = segment.slots[static_cast<std::size_t>(slot)].space;
  if (run.settings.own_fetches != nullptr && space != kHostSpace && value.imported == nullptr) {
    own_tensor(value, state.type, state.dims, space, *run.settings.own_fetches);
    return;
  }
  if (run.settings.fetch_memory != nullptr) {
    run.settings.fetch_memory->provide(static_cast<std::size_t>(fetch), state, space, value);
    return;
  }
  if (value.kind == BP_VALUE_ABSENT) {
    own_fetch(run, static_cast<std::size_t>(fetch), state);
    return;
  }
  const bool fits = value.is_tensor() && value.element() == state.type &&
                    value.description.rank == static_cast<std::int32_t>(state.dims.size()) &&
                    std::equal(state.dims.begin(), state.dims.end(), value.description.dims);
  const std::vector<bool>* resizable = run.settings.resizable;
  if (!fits && resizable != nullptr && (*resizable)[static_cast<std::size_t>(fetch)] &&
      value.memory != nullptr) {
    const auto fed_as = std::find(run.feeds.begin(), run.feeds.end(), &value);
    if (fed_as != run.feeds.end())
      refuse_shared_memory(cut_.fetches[static_cast<std::size_t>(fetch)], "input",
                           cut_.feeds[static_cast<std::size_t>(fed_as - run.feeds.begin())]);
    own_fetch(run, static_cast<std::size_t>(fetch), state);
  } else if (!fits) {
    const std::vector<std::int64_t> dims(value.description.dims,
                                         value.description.dims + value.description.rank);
    invalid("the value given for output '", cut_.fetches[static_cast<std::size_t>(fetch)],
            "' is tensor(", name(value.element()), ") ", to_string(dims), "; the run makes tensor(",
            name(state.type), ") ", to_string(state.dims));
  } else {
    check_apart(segment, run, fed, static_cast<std::size_t>(fetch), slot);
  }
}

void Executable::note(const std::shared_ptr<Generation>& generation,
                      const std::shared_ptr<const Segment>& segment,
                      std::vector<std::uint64_t> arena_bytes) {
  const std::lock_guard lock(mutex_);
  last_segment_ = segment;
  last_generation_ = generation;
  arena_bytes_ = std::move(arena_bytes);
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

const std::shared_ptr<PlanNode>& Executable::find_plan_of(const Run& run, RunContext& context,
                                                          std::shared_ptr<PlanNode>& looked_up) {
  PlanMemo* memo = run.settings.memo;
  if (memo == nullptr) return looked_up = first_plan(run, &context);
  make_run_key(run, memo->scratch);
  if (memo->plan == nullptr || memo->generation != run.generation || memo->key != memo->scratch) {
    memo->plan = first_plan(run, &context);
    memo->generation = run.generation;
    memo->key.swap(memo->scratch);  // nothing here throws: key and plan belong together
  }
  return memo->plan;
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

/// The newest. That of the caller's last run costs no lock.
std::shared_ptr<Generation> Executable::newest(const PlanMemo* memo) const {
  if (memo != nullptr && memo->generation != nullptr &&
      memo->generation.get() == newest_.load(std::memory_order_acquire))
    return memo->generation;
  return generation();
}

template <class Attempt>
auto Executable::with_generations(const PlanMemo* memo, const Attempt& attempt) {
  while (true) {
    const std::shared_ptr<Generation> current = newest(memo);
    try {
      return attempt(current);
    } catch (const KernelRefused& refused) {
      replace_generation(current, refused);
    } catch (const DeviceFull& full) {
      make_room(current, full);
    } catch (const ViewRefused& refused) {
      if (!copies_all_.exchange(true))
        context_.logger->info("inputs and outputs are copied: ", refused.text);
    }
  }
}

void Executable::run_or_prepare(const RunValues& feeds, const RunValues& fetches,
                                const RunSettings& settings,
                                void (Executable::*attempt)(const Run&)) {
  HostViewWishes own_wishes;
  HostViewWishes& wishes = settings.memo != nullptr ? settings.memo->wishes : own_wishes;
  with_generations(settings.memo, [&](const std::shared_ptr<Generation>& generation) {
    (this->*attempt)({generation, feeds, fetches, settings, wishes});
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
    std::shared_ptr<const Segment> segment = first_plan(run, nullptr)->segment;
    note(generation, segment, segment->arena_bytes);
    return segment;
  });
}

void Executable::replace_generation(const std::shared_ptr<Generation>& old,
                                    const KernelRefused& refused) {
  const std::lock_guard lock(mutex_);
  if (generation_ != old) return;  // another run did it already
  old->program->record_refusal(refused, refusals_);
  build_next();
}

/// The caller holds mutex_.
void Executable::build_next() {
  check_files();
  auto next = std::make_shared<Generation>();
  next->program = std::make_unique<Program>(context_, cut_, refusals_);
  generation_ = std::move(next);
  newest_.store(generation_.get(), std::memory_order_release);
}

/// Throws DeviceFull where a plan's arenas and the weights are too large for a device's limit. What runs take besides
/// each other is theirs to find out.
void Executable::check_room(Generation& generation, const Segment& segment) {
  const DeviceSet& devices = *context_.devices;
  if (context_.spill == Spill::Forbidden || context_.memory == nullptr) return;
  for (int space = kHostSpace + 1; space < static_cast<int>(devices.space_count()); ++space) {
    if (static_cast<std::size_t>(space) >= segment.arena_bytes.size()) break;
    const std::uint64_t bytes = segment.arena_bytes[static_cast<std::size_t>(space)];
    const std::string place = MemoryBudget::place_of(devices, space);
    const auto overrun = context_.memory->overrun(place, bytes);
    if (bytes == 0 || !overrun) continue;
    throw DeviceFull{
        DeviceSet::device_of_space(space), overrun->missing, overrun->limit,
        Error(Code::OutOfMemory, text("a run needs ", bytes, " bytes of memory on '", place,
                                      "', which is with the weights there ", overrun->missing,
                                      " over the option memory_limit.", place, " (", overrun->limit,
                                      "); raise the limit"))};
  }
  if (context_.spill == Spill::Warned)
    std::call_once(generation.moved_told, [&] { warn_of_moved(*generation.program); });
}

/// Says once how many nodes had to leave their devices.
void Executable::warn_of_moved(const Program& program) {
  std::map<std::string, std::size_t> moved;
  for (const auto& [name, placement] : program.first_placement()) {
    for (const Reason& reason : placement.reasons) {
      if (reason.code == kMemoryReason) ++moved[reason.provider];
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [label, count] : moved) {
    std::size_t& said = moved_[label];
    if (said == count) continue;
    said = count;
    context_.logger->warning(
        count, " of ", program.first_placement().size(), " nodes leave ", label,
        ", whose memory_limit is too small for them; `backplane inspect --explain` tells which, "
        "fallback=allow silences this, and fallback=forbid makes it an error");
  }
}

/// Moves nodes from a device. A body that has none there leaves it to the graph around it.
void Executable::make_room(const std::shared_ptr<Generation>& old, const DeviceFull& full) {
  const std::lock_guard lock(mutex_);
  if (generation_ != old) return;  // another run did it already
  const std::vector<std::string> leaving = nodes_to_move(*old->program, cut_, refusals_, full);
  if (leaving.empty() && context_.body != nullptr) throw full;
  if (leaving.empty()) throw full.error;
  refuse_for_memory(leaving, full, refusals_);
  context_.logger->info(leaving.size(), " nodes leave ", context_.devices->at(full.device).label(),
                        ": ", full.error.message());
  build_next();
}

// As a body

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

namespace {

/// The key that a run with such feeds will look for; false when elements are missing that it would hold.
bool make_key(const Program& program, const std::vector<ValueState>& feeds,
              const BodyPlaces& places, PlanKey& key) {
  append_places(&places, key);
  for (const ValueState& feed : feeds) {
    if (feed.kind != ValueState::Kind::Tensor && feed.kind != ValueState::Kind::Object)
      return false;
    RuntimeValue value;
    if (feed.kind == ValueState::Kind::Object) {
      value.set_type(Type::parse(feed.object_type));
    } else {
      value.set_tensor(feed.type, feed.dims);
    }
    append_shape(key, value);
  }
  for (const std::size_t index : program.keyed_feeds()) {
    const ValueState& feed = feeds[index];
    if (feed.known == nullptr && has_memory(feed) && feed.bytes <= kMaxKeyedFeedBytes) return false;
    if (feed.known != nullptr && is_keyed(*feed.known)) append_contents(key, *feed.known);
  }
  return true;
}

/// What feeds are to the shape walk: elements only of those that are part of the key.
std::vector<SharedState> states_of_body(const Program& program,
                                        const std::vector<ValueState>& feeds) {
  std::vector<SharedState> states(program.graph().value_count());
  const std::vector<std::size_t>& keyed = program.keyed_feeds();
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    ValueState state = feeds[i];
    const bool counts = std::find(keyed.begin(), keyed.end(), i) != keyed.end() &&
                        state.known != nullptr && is_keyed(*state.known);
    state.known = counts ? copy_of(*feeds[i].known) : nullptr;
    states[static_cast<std::size_t>(program.feeds()[i])] = std::move(state);
  }
  return states;
}

}  // namespace

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
  std::vector<SharedState> values = states_of_body(program, feeds);
  PlanKey key;
  if (make_key(program, feeds, places, key)) {
    std::shared_ptr<PlanNode> plan = find_plan(generation->plans, key);
    if (plan == nullptr)
      plan = first_plan(*generation, std::move(key), std::move(values), &places, HostViewWishes());
    values = plan->segment->values;
    const std::lock_guard last(mutex_);
    if (last_segment_ == nullptr) {
      last_segment_ = plan->segment;
      last_generation_ = generation;
    }
  } else {
    place_feeds(program, &places, values);
    values = walk_shapes(program, 0, std::move(values)).values;
  }
  std::vector<ValueState> states;
  for (const ValueId fetch : program.fetches()) {
    const SharedState& state = values[static_cast<std::size_t>(fetch)];
    const bool is_constant =
        state->kind == ValueState::Kind::Unset && program.placed().is_constant(fetch);
    states.push_back(is_constant ? *state_of_constant(program, fetch) : *state);
  }
  return states;
}

}  // namespace backplane::core
