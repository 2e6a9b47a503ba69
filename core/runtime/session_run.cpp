// Runs of a session: by name and along routes, with options, with saved values.
#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/nearest_name.hpp"
#include "core/plugin_host/spare_memory.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {
namespace {

/// The time that a run may take begins now.
StopSignal stop_signal_of(const RunOptions& options) {
  StopSignal stop;
  if (options.cancel != nullptr) stop.cancelled = &options.cancel->requested;
  if (options.timeout) {
    stop.limit = *options.timeout;
    stop.deadline = StopSignal::Clock::now() + stop.limit;
  }
  return stop;
}

/// Adds a run's spans to the trace, also when it fails.
class TracedRun {
 public:
  TracedRun(TraceLog& log, const RunOptions* options) : log_(log), options_(options) {}
  TracedRun(const TracedRun&) = delete;
  TracedRun& operator=(const TracedRun&) = delete;
  ~TracedRun() {
    try {
      Span run{options_ != nullptr && !options_->tag.empty() ? options_->tag : "run",
               "run",
               "run",
               begin_ns_,
               steady_ns(),
               {},
               spans.empty() ? 0 : spans.front().run};
      if (options_ != nullptr) {
        for (const auto& [key, value] : options_->entries) run.details.emplace_back(key, value);
      }
      spans.insert(spans.begin(), std::move(run));
      log_.add(std::move(spans));
    } catch (...) {  // a trace is not worth a run
    }
  }

  std::vector<Span> spans;

 private:
  TraceLog& log_;
  const RunOptions* options_;
  std::uint64_t begin_ns_ = steady_ns();
};

}  // namespace

void Session::run(const Route& route, const RunValues& feeds, const RunValues& fetches,
                  PlanMemo* memo, const std::vector<bool>* resizable, const RunOptions* options,
                  const BodyPlaces* places) {
  RunSettings settings;
  settings.places = places;
  settings.own_fetches = places != nullptr ? &devices_ : nullptr;
  settings.memo = memo;
  settings.resizable = resizable;
  run_on(*route.executable, feeds, fetches, settings, options);
}

void Session::run_on(Executable& executable, const RunValues& feeds, const RunValues& fetches,
                     RunSettings& settings, const RunOptions* options) {
  if (options != nullptr) {
    settings.controls.stop = stop_signal_of(*options);
    if (options->observer) settings.controls.observer = &options->observer;
    settings.controls.synchronize = options->synchronize;
    if (options->cancel != nullptr && options->cancel->requested)
      throw Error(Code::Cancelled, "the run was cancelled before it began");
  }
  // Gives memory back whether or not the run succeeds.
  struct Shrink {
    ArenaPool* pool;
    ~Shrink() {
      if (pool == nullptr) return;
      pool->shrink();
      SpareMemory::instance().clear();
    }
  } const shrink{options != nullptr && options->shrink_arenas ? &arenas_ : nullptr};
  if (!options_.profile) {
    executable.run(feeds, fetches, settings);
    return;
  }
  TracedRun traced(trace_, options);
  settings.controls.spans = &traced.spans;
  executable.run(feeds, fetches, settings);
}

void Session::prepare(const Route& route, const RunValues& feeds, const RunValues& fetches,
                      PlanMemo* memo, const std::vector<bool>* resizable,
                      const BodyPlaces* places) {
  RunSettings settings;
  settings.places = places;
  settings.own_fetches = places != nullptr ? &devices_ : nullptr;
  settings.memo = memo;
  settings.resizable = resizable;
  route.executable->prepare(feeds, fetches, settings);
}

namespace {

constexpr std::size_t kMostRoutes = 8;

bool have_names(const std::vector<NamedValue>& values, const std::vector<std::string>& names) {
  return std::equal(
      values.begin(), values.end(), names.begin(), names.end(),
      [](const NamedValue& value, const std::string& name) { return value.name == name; });
}

std::vector<std::string> names_of(const std::vector<NamedValue>& values) {
  std::vector<std::string> names;
  for (const NamedValue& value : values) names.push_back(value.name);
  return names;
}

bool lies_on_device(const NamedValue& value) { return value.device != nullptr; }

}  // namespace

std::shared_ptr<const Session::NamedRoute> Session::known_route(
    const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches,
    bool whole_graph) {
  const auto fits = [&](const std::shared_ptr<const NamedRoute>& route) {
    return route->whole_graph == whole_graph && route->save_version == save_version() &&
           have_names(feeds, route->feeds) && have_names(fetches, route->fetches);
  };
  {
    const std::lock_guard lock(routes_mutex_);
    const auto found = std::find_if(routes_.begin(), routes_.end(), fits);
    if (found != routes_.end()) {
      std::rotate(routes_.begin(), found, found + 1);
      return routes_.front();
    }
  }
  auto made = std::make_shared<const NamedRoute>(
      find_route(names_of(feeds), names_of(fetches), whole_graph));
  const std::lock_guard lock(routes_mutex_);
  routes_.insert(routes_.begin(), made);
  if (routes_.size() > kMostRoutes) routes_.pop_back();
  return made;
}

void Session::run(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches,
                  const RunOptions* options) {
  if (fetches.empty() && !outputs_.empty()) invalid("the run fetches nothing; name an output");
  const bool whole_graph = options != nullptr && !options->only_path_to_fetches;
  const std::shared_ptr<const NamedRoute> known = known_route(feeds, fetches, whole_graph);
  const Route& way = known->route;
  const std::size_t extra_count = way.hidden + way.saved.size();
  RunValues run_feeds, run_fetches;
  run_feeds.reserve(feeds.size());
  run_fetches.reserve(fetches.size() + extra_count);
  for (const std::size_t i : way.feeds) {
    check_feed(*known->declared[i], feeds[i].name, *feeds[i].value);
    run_feeds.push_back(feeds[i].value);
  }
  check_symbols(feeds, known->declared);
  for (const std::size_t i : way.fetches) run_fetches.push_back(fetches[i].value);
  check_values(feeds, fetches);
  std::vector<RuntimeValuePtr> extra;
  for (std::size_t i = 0; i < extra_count; ++i) {
    extra.push_back(std::make_shared<RuntimeValue>());
    run_fetches.push_back(extra.back().get());
  }
  RunSettings settings;
  BodyPlaces places;
  if (std::any_of(feeds.begin(), feeds.end(), lies_on_device) ||
      std::any_of(fetches.begin(), fetches.end(), lies_on_device)) {
    for (const std::size_t i : way.feeds)
      places.feeds.push_back(space_of(devices_, feeds[i].name, feeds[i].device));
    for (const std::size_t i : way.fetches)
      places.fetches.push_back(space_of(devices_, fetches[i].name, fetches[i].device));
    places.fetches.resize(run_fetches.size(), kHostSpace);
    if (is_off_host(places)) {
      settings.places = &places;
      settings.own_fetches = &devices_;
    }
  }
  const std::shared_ptr<Executable> executable =
      way.executable != nullptr ? way.executable : this->executable(known->cut);
  run_on(*executable, run_feeds, run_fetches, settings, options);
  publish_saved(fetches, way, extra);
}

std::uint64_t Session::feed_alignment() const {
  std::uint64_t alignment = kHostAlignment;
  if (!options_.zero_copy) return alignment;
  for (const SessionDevice& device : devices_.devices) {
    if (const HostMemory* memory = device.device->host_memory())
      alignment = std::max(alignment, memory->alignment);
  }
  return alignment;
}

void Session::synchronize() {
  std::exception_ptr failed;
  {
    const std::lock_guard lock(mutex_);
    failed = std::exchange(failed_, nullptr);
  }
  for (const std::shared_ptr<Executable>& executable : executables()) {
    try {
      executable->synchronize();
    } catch (...) {
      if (failed == nullptr) failed = std::current_exception();
    }
  }
  if (failed != nullptr) std::rethrow_exception(failed);
}

std::vector<std::shared_ptr<Executable>> Session::executables() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Executable>> all;
  for (const auto& [cut, kept] : executables_) all.push_back(kept.executable);
  return all;
}

void Session::check_saved(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (original_.find_value(name) != kNone) continue;
    std::vector<std::string> known;
    for (const Value& value : original_.values()) known.push_back(value.name);
    const std::string nearest = did_you_mean(name, known);
    invalid("the model has no value '", name, "'", nearest,
            nearest.empty() ? "; its outputs are " + quoted_names(names_of(model_.graph, outputs_))
                            : "");
  }
}

void Session::save(const std::vector<std::string>& names) {
  check_saved(names);
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1)
      invalid("the value '", name, "' is to be saved twice");
  }
  const std::lock_guard lock(saved_mutex_);
  saved_names_ = names;
  saved_.clear();
  save_version_.fetch_add(1, std::memory_order_release);
}

std::vector<std::string> Session::saved_names() {
  const std::lock_guard lock(saved_mutex_);
  return saved_names_;
}

bool Session::is_saved(const std::string& name) {
  const std::lock_guard lock(saved_mutex_);
  return std::find(saved_names_.begin(), saved_names_.end(), name) != saved_names_.end();
}

namespace {

/// The value; of one in memory that is lent for the run alone, which nobody shares, a copy.
RuntimeValuePtr shared(RuntimeValue& value) {
  if (RuntimeValuePtr found = value.weak_from_this().lock()) return found;
  auto copy = std::make_shared<RuntimeValue>();
  copy->set_owned_tensor(value.element(), value.dims);
  copy_dense(value.description, static_cast<std::byte*>(copy->description.host_ptr));
  return copy;
}

}  // namespace

void Session::publish_saved(const std::vector<NamedValue>& fetches, const Route& route,
                            const std::vector<RuntimeValuePtr>& hidden_and_saved) {
  const std::lock_guard lock(saved_mutex_);
  const auto is_wanted = [this](const std::string& name) {
    return std::find(saved_names_.begin(), saved_names_.end(), name) != saved_names_.end();
  };
  for (const NamedValue& fetch : fetches) {
    if (is_wanted(fetch.name)) saved_[fetch.name] = {shared(*fetch.value), fetch.device};
  }
  for (std::size_t i = 0; i < route.saved.size(); ++i) {
    if (is_wanted(route.saved[i]))
      saved_[route.saved[i]] = {hidden_and_saved[route.hidden + i], nullptr};
  }
}

PlacedValue Session::saved(const std::string& name) {
  const std::lock_guard lock(saved_mutex_);
  if (std::find(saved_names_.begin(), saved_names_.end(), name) == saved_names_.end())
    invalid("the value '", name, "' is not saved", did_you_mean(name, saved_names_));
  const auto found = saved_.find(name);
  return found != saved_.end() ? found->second : PlacedValue();
}

}  // namespace backplane::core
