#include "core/runtime/session_path.hpp"

#include <algorithm>

#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {

unsigned threads_of_path(const PathOptions& path, unsigned session_threads) {
  const unsigned threads = path.threads > 0 ? path.threads : session_threads;
  return path.power == Preference::Low ? std::max(1u, threads / 2) : threads;
}

void Session::open_path(const std::string& name, const PathOptions& options) {
  auto path = std::make_unique<SessionPath>();
  path->name = name;
  path->options = options;
  const unsigned threads = threads_of_path(options, threads_.max_threads);
  environment_->pool().grow(threads);
  path->threads.pool = threads_.pool;
  path->threads.max_threads = threads;
  path->devices = environment_->open_devices(options_, options);
  path->devices.schemas = &schemas_;
  path->devices.weights = &environment_->weights();
  path->devices.costs = placement_costs(path->devices);
  memory_->add(path->devices);
  paths_[name] = std::move(path);
}

void Session::make_path(SessionPath& path) {
  const PathOptions& options = path.options;
  path.inputs = !options.inputs.empty() ? options.inputs : names_of(model_.graph, inputs_);
  path.outputs = !options.outputs.empty() ? options.outputs : names_of(model_.graph, outputs_);
  ProgramContext context = program_context(path.name, path.devices, path.threads);
  context.keep_arenas = context.keep_arenas && options.memory != Preference::Low;
  if (options.memory == Preference::Low) context.max_plans = 1;
  const Cut cut{path.inputs, path.outputs};
  context.model = model_of(cut);
  path.executable = std::make_shared<Executable>(context, cut, &path.arenas,
                                                 options_.profile ? &trace_ : nullptr);
}

const SessionPath& Session::path(const std::string& name) const {
  const auto found = paths_.find(name);
  if (found != paths_.end()) return *found->second;
  std::vector<std::string> known;
  for (const auto& [other, path] : paths_) known.push_back(other);
  throw Error(Code::NotFound,
              text("the session has no path ", quoted(name), did_you_mean(name, known),
                   "; its paths are ", quoted_names(known)));
}

void Session::run_path(const std::string& name, const std::vector<NamedValue>& feeds,
                       const std::vector<NamedValue>& fetches) {
  const SessionPath& path = this->path(name);
  Route way;
  way.executable = path.executable;
  RunValues run_feeds, run_fetches;
  BodyPlaces places;
  for (const std::string& input : path.inputs) {
    const auto found = std::find_if(feeds.begin(), feeds.end(),
                                    [&](const NamedValue& feed) { return feed.name == input; });
    if (found == feeds.end())
      invalid("the path ", quoted(name), " needs its input ", quoted(input));
    check_feed(input, *found->value);
    way.feeds.push_back(static_cast<std::size_t>(found - feeds.begin()));
    run_feeds.push_back(found->value);
    places.feeds.push_back(space_of(path.devices, input, found->device));
  }
  if (feeds.size() != path.inputs.size())
    invalid("the path ", quoted(name), " takes ", path.inputs.size(),
            " feeds: ", quoted_names(path.inputs), "; ", feeds.size(), " are given");
  check_symbols(feeds);
  check_values(feeds, fetches);
  std::vector<std::unique_ptr<RuntimeValue>> unwanted;
  for (const NamedValue& fetch : fetches) {
    if (std::find(path.outputs.begin(), path.outputs.end(), fetch.name) == path.outputs.end())
      invalid("the path ", quoted(name), " has no output ", quoted(fetch.name),
              did_you_mean(fetch.name, path.outputs), "; it has ", quoted_names(path.outputs));
  }
  for (const std::string& output : path.outputs) {
    const auto found = std::find_if(fetches.begin(), fetches.end(),
                                    [&](const NamedValue& fetch) { return fetch.name == output; });
    const bool is_wanted = found != fetches.end();
    if (!is_wanted) unwanted.push_back(std::make_unique<RuntimeValue>());
    run_fetches.push_back(is_wanted ? found->value : unwanted.back().get());
    places.fetches.push_back(is_wanted ? space_of(path.devices, output, found->device)
                                       : kHostSpace);
  }
  try {
    run(way, run_feeds, run_fetches, nullptr, nullptr, nullptr,
        is_off_host(places) ? &places : nullptr);
  } catch (const Error& error) {
    throw error.within("path " + quoted(name));
  }
}

}  // namespace backplane::core
