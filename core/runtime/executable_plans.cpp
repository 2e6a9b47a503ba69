// Plans of an executable: found again, made to fit other shapes, or made.
#include <algorithm>

#include "core/runtime/executable.hpp"
#include "core/runtime/feed_states.hpp"
#include "core/runtime/named_values.hpp"

namespace backplane::core {
namespace {

/// Whether `count` owners are all that there are, and have been done with it before.
template <class T>
bool is_alone(const std::shared_ptr<T>& shared, long count) {
  if (shared.use_count() != count) return false;
  std::shared_ptr<T>(shared).reset();  // an owner that ends comes after all that ended before
  return true;
}

}  // namespace

const HostViewPlaces& Executable::views_of(Generation& generation) const {
  std::call_once(generation.views_found,
                 [&] { generation.views = find_host_views(*generation.program); });
  return generation.views;
}

/// What tells the run's plan from others. Fills in its wishes.
void Executable::make_run_key(const Run& run, PlanKey& key) const {
  make_plan_key(*run.generation->program, run.feeds, run.settings.places, key);
  const HostViewPlaces& views = views_of(*run.generation);
  run.wishes.feeds.clear();
  run.wishes.fetches.clear();
  if (!views.any || copies_all_.load(std::memory_order_relaxed)) return;
  find_wishes(views, run.feeds, run.fetches, run.settings.places, run.wishes);
  key.insert(key.end(), run.wishes.feeds.begin(), run.wishes.feeds.end());
  key.insert(key.end(), run.wishes.fetches.begin(), run.wishes.fetches.end());
}

const std::shared_ptr<PlanNode>& Executable::find_plan_of(const Run& run, RunContext& context,
                                                          std::shared_ptr<PlanNode>& looked_up) {
  PlanMemo* memo = run.settings.memo;
  if (memo == nullptr) return looked_up = find_first_plan(run, &context);
  make_run_key(run, memo->scratch);
  if (memo->plan == nullptr || memo->generation != run.generation || memo->key != memo->scratch) {
    memo->plan = find_first_plan(run, &context);
    memo->generation = run.generation;
    memo->key.swap(memo->scratch);  // nothing up to here throws: key and plan belong together
    memo->scratch.reserve(memo->key.size());  // for the next run, which does not allocate
  }
  return memo->plan;
}

/// `context`: that the run is going to use; null: there is none.
std::shared_ptr<PlanNode> Executable::find_first_plan(const Run& run, RunContext* context) {
  const Program& program = *run.generation->program;
  PlanKey own;
  PlanKey& key = run.settings.memo != nullptr ? run.settings.memo->scratch : own;
  make_run_key(run, key);
  const std::lock_guard lock(run.generation->planning);
  PlanList& plans = run.generation->plans.next;
  if (auto found = plans.find(key)) return found;
  FeedStates feeds = states_of_feeds(
      program, run.feeds, plans.empty() ? nullptr : &plans.front().node->segment->values);
  place_feeds(run.settings.places, feeds);
  if (context != nullptr) {
    if (auto resized = resize_kept(run, key, feeds, *context)) return resized;
  }
  return make_first_plan(*run.generation, key, values_of_feeds(program, feeds), run.settings.places,
                         run.wishes);
}

/// A plan that may become that of `key`; nullopt where one is to be made. The first shapes of a program have plans of their own,
/// and so have, as long as there is room, those that come again. Others take turns at the plans that nobody has asked for
/// since they were made, the last of them first, which are in the caches. Where there is no room, the oldest plan goes for a
/// shape that has come since it was used.
std::optional<PlanList::Place> Executable::plan_to_resize(PlanList& plans, const PlanKey& key,
                                                          RunContext& context) const {
  constexpr int kMostLookedAt = 8;  // runs at the same time have some of them
  const bool is_full = plans.size() >= kept_plans(max_plans_, *plans.front().node->segment);
  const std::uint64_t came = plans.last_use_of_gone(key);
  if (!is_full && (plans.size() < kLeastPlans || came > 0)) return std::nullopt;
  const PlanList::Place oldest = plans.oldest();
  PlanList::Place place = plans.begin();
  if (is_full && came > oldest->used) place = plans.asked_for();
  for (int i = 0; i < kMostLookedAt && place != plans.asked_for(); ++i, ++place) {
    if (may_become(*place, context)) return place;
  }
  return is_full && may_become(*oldest, context) ? std::optional(oldest) : std::nullopt;
}

/// Whether a plan can be resized, and no other run, caller or report has it; what they read of it was before this.
bool Executable::may_become(const PlanList::Entry& plan, RunContext& context) {
  const std::shared_ptr<Segment>& segment = plan.node->segment;
  return is_alone(plan.node, 1) &&
         is_alone(segment, context.find_context(*segment) != nullptr ? 2 : 1) &&
         may_be_resized(*segment);
}

/// A plan that is kept for other sizes, and what `context` has ready for it, made to fit; null where that cannot be. The caller
/// holds Generation::planning.
std::shared_ptr<PlanNode> Executable::resize_kept(const Run& run, const PlanKey& key,
                                                  const FeedStates& feeds, RunContext& context) {
  PlanList& plans = run.generation->plans.next;
  const BodyPlaces* places = run.settings.places;
  if (plans.empty() || (places != nullptr && is_off_host(*places))) return nullptr;
  const std::uint64_t start = steady_ns();
  const std::optional<PlanList::Place> place = plan_to_resize(plans, key, context);
  if (!place) return nullptr;
  PlanList::Entry plan = plans.take(*place);
  SegmentContext* const ready = context.find_context(*plan.node->segment);
  std::optional<SegmentChange> change;
  try {  // nothing is packed, so files are not looked at
    change = resize_segment(*run.generation->program, *plan.node->segment, feeds);
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
std::shared_ptr<PlanNode> Executable::make_first_plan(Generation& generation, PlanKey key,
                                                      ValueStates values, const BodyPlaces* places,
                                                      const HostViewWishes& wishes) {
  const Program& program = *generation.program;
  return make_plan(generation, generation.plans, std::move(key), 0, std::move(values),
                   live_feeds(program, places), std::vector<bool>(program.fetches().size()), places,
                   wishes);
}

std::shared_ptr<PlanNode> Executable::next_plan(const Run& run, PlanNode& from,
                                                const RunContext& context,
                                                const std::vector<bool>& fetched) {
  const Program& program = *run.generation->program;
  ValueStates values = from.segment->values;
  const std::vector<LiveValue> left = context.left().all();
  std::vector<LiveValue> available = left;
  for (const LiveValue& feed : live_feeds(program, run.settings.places)) available.push_back(feed);
  PlanKey key;
  for (const LiveValue& live : left) {
    SharedState& known = values[live.value];
    if (known->kind != ValueState::Kind::Pending) continue;
    const RuntimeValue& value = *context.left().find(live.value, live.space);
    ValueState state = state_of(value);
    state.space = live.space;
    known = std::move(state);
    append_shape(key, value);
  }
  for (const ValueId id : from.segment->wants_value) {
    const RuntimeValue* value = context.left().find(id, kHostSpace);
    for (std::size_t i = 0; value == nullptr && i < run.feeds.size(); ++i) {
      if (program.feeds()[i] == id) value = run.feeds[i];
    }
    if (value == nullptr)
      throw Error(Code::Internal,
                  text("the value '", program.graph().value(id).name, "' is not on the host"));
    append_contents(key, *value);
    values[id] = known_state(lasting_copy(*value));
  }
  const std::lock_guard lock(run.generation->planning);
  if (auto found = from.next.find(key)) return found;
  return make_plan(*run.generation, from, std::move(key), from.segment->end, std::move(values),
                   available, fetched, run.settings.places, run.wishes);
}

std::shared_ptr<PlanNode> Executable::make_plan(Generation& generation, PlanNode& from, PlanKey key,
                                                std::size_t begin, ValueStates values,
                                                const std::vector<LiveValue>& available,
                                                const std::vector<bool>& fetched,
                                                const BodyPlaces* places,
                                                const HostViewWishes& wishes) {
  const std::uint64_t start = steady_ns();
  auto node = std::make_shared<PlanNode>();
  check_files();
  const ValueStates* const before =
      from.next.empty() ? nullptr : &from.next.front().node->segment->values;
  node->segment =
      plan_segment(*generation.program, begin, std::move(values), available, fetched,
                   places != nullptr ? places->fetches : std::vector<int>(), wishes, before);
  choose_arenas(*node, from);
  check_files();  // what was packed meanwhile
  check_room(generation, *node->segment);
  while (from.next.size() >= kept_plans(max_plans_, *node->segment))
    from.next.take(from.next.oldest());
  keep_plan(generation, from, {std::move(key), node}, start);
  return node;
}

/// The caller holds Generation::planning.
void Executable::keep_plan(Generation& generation, PlanNode& from, PlanList::Entry plan,
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

}  // namespace backplane::core
