// Memory of what an executable's runs fetch.
#include <algorithm>

#include "core/runtime/executable.hpp"
#include "core/runtime/named_values.hpp"
#include "core/runtime/value_memory.hpp"

namespace backplane::core {

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
      const Slot& over = segment.slot(pair.second);
      const Slot& to = segment.slot(pair.first);
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
      const NodeId producer = graph.value(segment.slot(slot).value).producer;
      const std::string made =
          producer == kNone ? "" : ", made by " + run.generation->program->describe(producer);
      throw error.within(
          text("output '", cut_.fetches[static_cast<std::size_t>(fetch)], "'", made));
    }
  }
}

void Executable::provide_fetch(const Segment& segment, const Run& run, const AddressFilter& fed,
                               int fetch, int slot) const {
  RuntimeValue& value = *run.fetches[static_cast<std::size_t>(fetch)];
  const ValueState& state = *segment.slot(slot).state;
  const int space = segment.slot(slot).space;
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

}  // namespace backplane::core
