#include "core/runtime/session.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <malloc.h>
#include <set>

#include "core/base/nearest_name.hpp"
#include "core/config/model_options.hpp"
#include "core/onnx/model_metadata.hpp"
#include "core/passes/passes.hpp"
#include "core/plan/custom_kernels.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

std::string expected(const Value& value) {
  return value.type.to_string() + (value.type.shape ? " " + to_string(*value.type.shape) : "");
}

/// Nodes on a device that nobody asked for.
struct FallenNodes {
  std::size_t count = 0, all = 0;
  std::string example;
};

/// Counts them in a program and in its bodies.
void count_fallen(const Program& program, FallenNodes& fallen) {
  const DeviceSet& devices = *program.context().devices;
  for (const NodeId id : program.order()) {
    ++fallen.all;
    if (const auto& control = program.node(id).control; control != nullptr) {
      for (const ControlBody& body : control->bodies) {
        const auto inner = static_cast<const Executable&>(*body.body).generation();
        count_fallen(*inner->program, fallen);
      }
    }
    const int device = program.placed().placement[id].device;
    if (device < 0 || program.is_host_node(id) || devices.entry(device).requested) continue;
    const Node& node = program.graph().node(id);
    if (fallen.count++ == 0)
      fallen.example = program.context().scope + node.name + " (" + node.op_type + ")";
  }
}

bool is_inside(std::span<const std::byte> bytes, const std::byte* data) {
  return std::less_equal<>()(bytes.data(), data) &&
         std::less<>()(data, bytes.data() + bytes.size());
}

/// Loading computes large constants that turn out to be shared already, or that are needed in packed form alone. What
/// they leave in the heap is cut up by small objects and would grow with every session.
void give_back_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

/// Errors of a path name it.
template <class Body>
void within_path(const std::string& name, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw error.within(text("path '", name, "'"));
  }
}

/// The dimensions of a feed that have a symbol must have the size that it has in another input.
void check_symbol(const std::string& symbol, const Shape& shape, const NamedValue& feed,
                  const std::string& input, std::int64_t size) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].symbol != symbol) continue;
    const std::int64_t first = feed.value->description.dims[axis];
    if (first == size) continue;
    invalid("the dimension '", symbol, "' is ", first, " in the input '", feed.name, "' and ", size,
            " in the input '", input, "'");
  }
}

}  // namespace

template <class Step>
void Session::at_step(const char* name, const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  try {
    if (options_.profile) {
      trace_.session_step(name, step);
    } else {
      step();
    }
  } catch (const Error& error) {
    throw error.within(name);
  }
  steps_.emplace_back(
      name,
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
}

Session::Session(std::shared_ptr<Environment> environment, const std::string& path,
                 std::span<const std::byte> bytes, const SessionOptions& options,
                 const Model* built)
    : environment_(std::move(environment)), options_(options), bytes_(bytes) {
  const auto start = std::chrono::steady_clock::now();
  at_step("opening the model", [&] { open_file(path); });
  at_step("reading options", [&] { take_options(built); });
  at_step("opening providers", [&] {
    environment_->leave_out_absent(options_);
    devices_ = environment_->open_devices(options_);
    devices_.schemas = &schemas_;
    devices_.weights = &environment_->weights();
    devices_.costs = placement_costs(devices_);
    memory_->add(devices_);
    for (const auto& [name, way] : options_.paths)
      within_path(name, [&, name = name, way = way] { open_path(name, way); });
  });
  at_step("registering operators", [&] { register_operators(); });
  at_step("reading the model", [&] {
    load(path, built);
    note_files();
  });
  if (!options_.save_plan.empty() || !options_.optimized_model.empty())
    at_step("looking at what is written", [&] { check_written(); });
  const auto within_file = [&](const char* name, const auto& step) {
    at_step(name, [&] {
      try {
        step();
      } catch (const Error& error) {
        throw path.empty() ? error : error.within(path);
      }
    });
  };
  if (!options_.saved_plan.empty())
    within_file("reading the saved plan", [&] { open_saved_plan(); });
  within_file("optimizing the graph", [&] {
    original_ = Graph(model_.graph);
    check_placement_rules();
    optimize(model_);
    list_values();
    save(options_.save);
  });
  within_file("placing nodes and creating kernels", [&] {
    default_executable();
    save_optimized();
    warn_of_fallback();
  });
  if (!paths_.empty()) {
    within_file("making paths", [&] {
      for (const auto& [name, way] : paths_)
        within_path(name, [&, made = way.get()] { make_path(*made); });
    });
  }
  at_step("checking memory limits", [&] { memory_->check_names(); });
  within_file("planning and packing weights", [&] {
    plan_if_fixed();
    check_files();  // of what was read before, too
  });
  at_step("telling providers", [&] { tell_devices(); });
  if (!options_.save_plan.empty())
    at_step("saving the plan", [&] { save_plan(options_.save_plan); });
  give_back_free_memory();
  load_ms_ =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Session::~Session() = default;

void Session::open_file(const std::string& path) {
  if (path.empty()) return;
  file_ = MappedFile::open(path);
  bytes_ = file_->bytes();
}

void Session::take_options(const Model* built) {
  model_options_ = options_in(built != nullptr ? built->metadata : read_metadata(bytes_));
  if (options_.options_from_model) options_ = with_model_options(options_, model_options_);
  logger_ = &environment_->logger();
  if (!options_.log_level.empty()) {
    own_logger_ =
        std::make_unique<Logger>(log_level_named(options_.log_level), environment_->sink());
    logger_ = own_logger_.get();
  }
  if (!model_options_.empty()) {
    std::string list;
    for (const auto& [key, value] : model_options_) {
      if (!list.empty()) list += ", ";
      list.append(key).append("=").append(value);
    }
    logger_->info("the model carries session options, which are ",
                  options_.options_from_model ? "used: " : "not used (options_from_model): ", list);
  }
  if (options_.threads > 0) environment_->pool().grow(options_.threads);
  threads_.pool = &environment_->pool();
  threads_.max_threads =
      options_.threads > 0 ? options_.threads : environment_->pool().thread_count();
  memory_ = std::make_shared<MemoryBudget>(options_.memory_limits);
}

std::string Session::option(const std::string& key) const {
  Options all;
  all.session = options_;
  return all.get(key);
}

void Session::register_operators() {
  for (const PluginPtr& library : environment_->custom_ops()) libraries_.push_back(library);
  for (const std::filesystem::path& file : options_.custom_ops) {
    PluginPtr library = environment_->plugins().load(file);
    if (std::find(libraries_.begin(), libraries_.end(), library) == libraries_.end())
      libraries_.push_back(std::move(library));
  }
  libraries_.insert(libraries_.end(), options_.domains.begin(), options_.domains.end());
  std::set<const Plugin*> seen;
  const auto add_schemas = [&](const PluginPtr& plugin) {
    if (!seen.insert(plugin.get()).second) return;
    for (const CustomSchema& schema : plugin->schemas()) schemas_.add(schema);
  };
  for (const PluginPtr& library : libraries_) add_schemas(library);
  for (const SessionDevice& device : devices_.devices) add_schemas(device.device->plugin());
  for (const auto& [name, path] : paths_) {
    for (const SessionDevice& device : path->devices.devices) add_schemas(device.device->plugin());
  }
  register_kernels(devices_);
  check_replaced(devices_, options_.replace_ops);
  for (const auto& [name, path] : paths_) register_kernels(path->devices);
}

void Session::register_kernels(DeviceSet& devices) {
  for (SessionDevice& session_device : devices.devices) {
    struct Sink {
      KernelRegistry* registry;
      const SchemaRegistry* schemas;
      bool is_own;
      RegisteredKernel kernel;
    } sink{
        &session_device.registry, &schemas_, is_own_plugin(*session_device.device->plugin()), {}};
    const auto show = [](void* context, const bp_kernel_def* def) {
      return status_of([&] {
        auto& to = *static_cast<Sink*>(context);
        to.kernel.def = def;
        if (to.is_own) {
          to.registry->add_provisionally(to.kernel);
        } else {
          to.registry->add(to.kernel, *to.schemas, false);
        }
        ++to.kernel.rank;
      });
    };
    Device& device = *session_device.device;
    const auto warn = [logger = logger_, label = device.label()](const std::string& refused) {
      logger->warning(label, ": ", refused);
    };
    session_device.registry.check_later_against(schemas_, warn);
    sink.kernel.plugin = device.plugin();
    const bp_kernel_sink take = show;
    check_status(device.call(device.api().kernels, &sink, take), device.label());
    register_custom_kernels(session_device, libraries_, options_.replace_ops, schemas_, *logger_);
    for (const std::string& refused : session_device.registry.refused()) warn(refused);
  }
}

void Session::load(const std::string& path, const Model* built) {
  ImportOptions wanted;  // "import" is a word of C++20's, and formatters stumble over it
  wanted.dims = options_.dims;
  wanted.denotations = options_.denotations;
  wanted.external_data = options_.external_data;
  wanted.external_bytes = options_.external_bytes;
  wanted.accept_private = [this](const auto& metadata, const auto& operators) {
    accept_private(metadata, operators);
  };
  if (built != nullptr) {
    model_ = import_built(*built, schemas_, wanted);
    is_built_ = true;
    return;
  }
  model_ =
      path.empty() ? import_bytes(bytes_, schemas_, wanted) : import_file(path, schemas_, wanted);
  note_external(model_.graph);
  environment_->constants().share_all(model_.graph, lent_bytes());
}

/// What the caller keeps for the session.
ConstantStore::Lent Session::lent_bytes() const {
  ConstantStore::Lent lent;
  if (file_ == nullptr) lent.push_back(bytes_);
  for (const auto& [location, bytes] : options_.external_bytes) lent.push_back(bytes);
  return lent;
}

/// Keeps the constants whose contents are no part of the model's own bytes: they are part of its identity.
void Session::note_external(const Graph& graph) {
  for (const Value& value : graph.values()) {
    const ConstantPtr& constant = value.constant;
    if (constant == nullptr || constant->stored_bytes().empty()) continue;
    const std::byte* data = constant->stored_bytes().data();
    if (is_inside(bytes_, data)) continue;
    const auto& given = options_.external_bytes;
    const bool is_given = std::any_of(given.begin(), given.end(),
                                      [&](const auto& one) { return is_inside(one.second, data); });
    if (is_given || MappedFile::holds(data)) external_.push_back(constant);
  }
  for (const NodeId id : graph.node_ids())
    for_each_body(graph.node(id), [this](const Graph& body) { note_external(body); });
}

PassOptions Session::pass_options() const {
  PassOptions passes;
  passes.level = options_.optimization;
  passes.disabled = options_.disabled_passes;
  passes.enabled = options_.enabled_passes;
  for (const char* of_providers : kProviderPasses) {
    passes.disabled.erase(of_providers);
    passes.enabled.erase(of_providers);
  }
  const auto schemas = std::make_shared<SchemaCache>(schemas_);
  passes.is_random = [schemas](const Node& node) {
    const SchemaInfo* schema = schemas->find(node);
    return schema != nullptr && !schema->deterministic;
  };
  return passes;
}

void Session::optimize(Model& model) {
  HostEvaluator evaluator(devices_, schemas_, &threads_);
  run_passes(model, pass_options(),
             [&](const Graph& graph, const Node& node) -> std::optional<std::vector<ConstantPtr>> {
               try {
                 return evaluator.fold(graph, node, std::uint64_t{1} << 32);
               } catch (const Error& error) {
                 // It may never run; if it does, the error comes then.
                 logger_->debug("node '", node.name, "' is not folded: ", error.message());
                 return std::nullopt;
               }
             });
  // The contents of a graph that was built are its builder's.
  if (!is_built_) environment_->constants().share_all(model.graph, lent_bytes());
}

void Session::list_values() {
  for (const ValueId id : model_.graph.inputs) {
    const Value& value = model_.graph.value(id);
    if (value.constant == nullptr) inputs_.push_back(id);
    if (value.overridable) overridable_.push_back(id);
  }
  outputs_ = model_.graph.outputs;
}

Executable& Session::default_executable() {
  default_ = executable({names_of(model_.graph, inputs_), names_of(model_.graph, outputs_)});
  return *default_;
}

/// Sets of feeds and fetches whose programs and plans are kept.
constexpr std::size_t kMostExecutables = 64;

std::shared_ptr<Executable> Session::executable(const Cut& cut) {
  const std::lock_guard lock(mutex_);
  const auto known = executables_.find(cut);
  if (known != executables_.end()) {
    known->second.last_use = ++uses_;
    return known->second.executable;
  }
  check_files();
  ProgramContext context = program_context("", devices_, threads_);
  context.model = model_of(cut);
  auto made =
      std::make_shared<Executable>(context, cut, &arenas_, options_.profile ? &trace_ : nullptr);
  if (executables_.size() >= kMostExecutables) drop_oldest_executable();
  executables_[cut] = {made, ++uses_};
  return made;
}

/// Of those that nobody is using; the caller holds mutex_, without which nobody begins to.
void Session::drop_oldest_executable() {
  auto oldest = executables_.end();
  for (auto it = executables_.begin(); it != executables_.end(); ++it) {
    if (it->second.executable.use_count() > 1) continue;
    if (oldest == executables_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
  }
  if (oldest == executables_.end()) return;
  try {
    oldest->second.executable->synchronize();
  } catch (...) {
    if (failed_ == nullptr) failed_ = std::current_exception();
  }
  executables_.erase(oldest);
}

/// Passes remove inner values, and a value that is fed must not be folded past: a run that starts or ends at one has a
/// model of its own, cut first and optimized then.
std::shared_ptr<const Model> Session::model_of(const Cut& cut) {
  const auto is_inner = [this](const std::string& name, bool Value::*border) {
    const ValueId id = original_.find_value(name);
    return id != kNone && !(original_.value(id).*border);
  };
  const bool inner =
      std::any_of(cut.feeds.begin(), cut.feeds.end(),
                  [&](const auto& name) { return is_inner(name, &Value::is_input); }) ||
      std::any_of(cut.fetches.begin(), cut.fetches.end(),
                  [&](const auto& name) { return is_inner(name, &Value::is_output); });
  if (!inner) return {std::shared_ptr<const Model>(), &model_};
  auto own = std::make_shared<Model>(model_);
  own->graph = Graph(original_);
  own->graph = std::move(*cut_graph(*own, cut));
  optimize(*own);
  return own;
}

ProgramContext Session::program_context(const std::string& path, const DeviceSet& devices,
                                        bp_threads& threads) {
  ProgramContext context;
  context.model = {std::shared_ptr<const Model>(), &model_};
  context.devices = &devices;
  context.schemas = &schemas_;
  context.weights = &environment_->weights();
  context.logger = logger_;
  context.threads = &threads;
  set_placement(context);
  context.deterministic = options_.deterministic;
  context.denormals_as_zero = options_.denormals_as_zero;
  context.parallel = options_.parallel;
  context.inter_op_threads = options_.inter_op_threads;
  context.max_plans = options_.plan_cache;
  context.execution_order = options_.execution_order;
  context.make_body = [](const ProgramContext& body, const Cut& body_cut) -> std::shared_ptr<Body> {
    return std::make_shared<Executable>(body, body_cut);
  };
  context.simplify = [this](Graph& graph, const EvaluateConstants& evaluate,
                            const FeedSymbols& known, RemovalLog& removed) {
    PassOptions passes = pass_options();
    // A run that is fed an inner value compares it with no other.
    const bool are_inputs =
        std::all_of(known.feeds.begin(), known.feeds.end(), [this](const auto& name) {
          const ValueId id = original_.find_value(name);
          return id != kNone && original_.value(id).is_input;
        });
    if (are_inputs) passes.feeds = known.feeds;
    passes.unproven_symbols = known.unproven;
    run_passes(graph, passes, evaluate, &removed);
  };
  context.claims = !options_.disabled_passes.contains("provider_claims");
  context.rewrites = !options_.disabled_passes.contains("provider_rewrites");
  context.memory_pattern = options_.memory_pattern;
  context.keep_arenas = options_.arena;
  context.zero_copy = options_.zero_copy;
  context.capture = options_.capture && options_.arena;  // without arenas memory changes every run
  context.constants = &environment_->constants();
  context.memory = memory_;
  context.files = &files_;
  if (saved_plan_ != nullptr) {
    const auto records = saved_plan_->records.find(path);
    if (records != saved_plan_->records.end()) context.saved = &records->second;
  }
  return context;
}

void Session::tell_devices() {
  for (const SessionDevice& device : devices_.devices) events_.tell_ready(device.device);
  for (const auto& [name, path] : paths_) {
    for (const SessionDevice& device : path->devices.devices) events_.tell_ready(device.device);
  }
}

void Session::warn_of_fallback() {
  if (options_.fallback != Fallback::Warn) return;
  FallenNodes fallen;
  count_fallen(*default_->generation()->program, fallen);
  if (fallen.count == 0) return;
  logger_->warning(fallen.count, " of ", fallen.all, " nodes fall back to ",
                   devices_.at(devices_.host_evaluator).label(), ", the first is ", fallen.example,
                   "; `backplane inspect --explain` tells why, fallback=allow silences this");
}

void Session::plan_if_fixed() {
  std::vector<RuntimeValue> values(inputs_.size());
  RunValues feeds;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Type& type = model_.graph.value(inputs_[i]).type;
    if (!type.is_static() || type.element == DataType::String) return;
    std::vector<std::int64_t> dims;
    for (const Dim& dim : *type.shape) dims.push_back(dim.size);
    try {
      values[i].set_tensor(type.element, dims);
    } catch (const Error& error) {
      throw error.within(text("the input '", model_.graph.value(inputs_[i]).name, "'"));
    }
    feeds.push_back(&values[i]);
  }
  if (!default_->generation()->program->keyed_feeds().empty()) return;  // shapes wait for values
  default_->plan(feeds);
}

Session::Route Session::route(const std::vector<std::string>& feeds,
                              const std::vector<std::string>& fetches, bool whole_graph) {
  NamedRoute found = find_route(feeds, fetches, whole_graph);
  if (found.route.executable == nullptr) found.route.executable = executable(found.cut);
  return std::move(found.route);
}

Session::NamedRoute Session::find_route(const std::vector<std::string>& feeds,
                                        const std::vector<std::string>& fetches, bool whole_graph) {
  NamedRoute made{feeds, fetches, whole_graph, save_version(), {}, {}, {}};
  Route& route = made.route;
  std::vector<std::string> wanted = fetches;
  const std::vector<std::string> standard = names_of(model_.graph, inputs_);
  if (wanted.empty()) wanted = names_of(model_.graph, outputs_);
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    if (std::count(feeds.begin(), feeds.end(), feeds[i]) > 1)
      invalid("the input '", feeds[i], "' is fed twice");
  }
  Cut& cut = made.cut;
  for (const std::string& name : standard) {
    const auto found = std::find(feeds.begin(), feeds.end(), name);
    if (found == feeds.end()) continue;
    cut.feeds.push_back(name);
    route.feeds.push_back(static_cast<std::size_t>(found - feeds.begin()));
  }
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    if (std::find(standard.begin(), standard.end(), feeds[i]) != standard.end()) continue;
    if (original_.find_value(feeds[i]) == kNone) {
      std::vector<std::string> known = standard;
      for (const std::string& name : names_of(model_.graph, overridable_)) known.push_back(name);
      invalid("the model has no input '", feeds[i], "'", did_you_mean(feeds[i], known),
              "; its inputs are ", quoted_names(known));
    }
    cut.feeds.push_back(feeds[i]);
    route.feeds.push_back(i);
  }
  check_saved(wanted);
  cut.fetches = wanted;
  for (std::size_t i = 0; i < wanted.size(); ++i) route.fetches.push_back(i);
  for (const std::string& output : names_of(model_.graph, outputs_)) {
    if (!whole_graph || std::find(wanted.begin(), wanted.end(), output) != wanted.end()) continue;
    cut.fetches.push_back(output);
    ++route.hidden;
  }
  for (const std::string& name : saved_names()) {
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) route.saved.push_back(name);
  }
  cut.fetches.insert(cut.fetches.end(), route.saved.begin(), route.saved.end());
  for (const std::string& name : feeds) made.declared.push_back(&declaration(name));
  if (cut == default_->cut()) route.executable = default_;
  return made;
}

const Value& Session::declaration(const std::string& name) const {
  return original_.value(original_.find_value(name));
}

void Session::check_feed(const std::string& name, const RuntimeValue& value) const {
  check_feed(declaration(name), name, value);
}

void Session::check_feed(const Value& declared, const std::string& name,
                         const RuntimeValue& value) const {
  const auto mismatch = [&](const std::string& got) {
    invalid("the input '", name, "' should be ", expected(declared), " but is ", got);
  };
  if (value.kind == BP_VALUE_ABSENT) invalid("the input '", name, "' is given no value");
  if (declared.type.kind == Type::Kind::Unknown) return;
  const bool empty_optional = value.kind == BP_VALUE_OPTIONAL && value.elements.empty();
  const bool empty_sequence = value.kind == BP_VALUE_SEQUENCE && value.elements.empty() &&
                              (value.type.inner == nullptr || value.type.to_string() == "seq()");
  if ((declared.type.kind == Type::Kind::Optional && empty_optional) ||
      (declared.type.kind == Type::Kind::Sequence && empty_sequence))
    return;  // such a value does not know its element's type
  if (!declared.type.is_tensor()) {
    if (value.is_tensor() || value.type.to_string() != declared.type.to_string())
      mismatch(value.is_tensor() ? "a tensor" : value.type.to_string());
    return;
  }
  if (!value.is_tensor()) mismatch(value.type.to_string());
  const std::span<const std::int64_t> dims(value.description.dims,
                                           static_cast<std::size_t>(value.description.rank));
  bool fits = value.element() == declared.type.element || declared.type.element == DataType::None;
  if (declared.type.shape) {
    fits = fits && dims.size() == declared.type.shape->size();
    for (std::size_t axis = 0; fits && axis < dims.size(); ++axis) {
      const Dim& dim = (*declared.type.shape)[axis];
      fits = !dim.known() || dim.size == dims[axis];
    }
  }
  if (fits) return;
  mismatch(text("tensor(", core::name(value.element()), ") ",
                to_string(std::vector<std::int64_t>(dims.begin(), dims.end()))));
}

void Session::check_symbols(const std::vector<NamedValue>& feeds,
                            const std::vector<const Value*>& declared) const {
  // Compared pair by pair, without a table: a binding whose shapes change does not allocate.
  const auto shape_of = [&](std::size_t i) -> const Shape* {
    const Value& value = declared.empty() ? declaration(feeds[i].name) : *declared[i];
    return value.is_input && value.type.is_tensor() && value.type.shape ? &*value.type.shape
                                                                        : nullptr;
  };
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const Shape* shape = shape_of(i);
    for (std::size_t axis = 0; shape != nullptr && axis < shape->size(); ++axis) {
      const std::string& symbol = (*shape)[axis].symbol;
      const std::int64_t size = feeds[i].value->description.dims[axis];
      for (std::size_t k = 0; !symbol.empty() && k <= i; ++k) {
        if (const Shape* other = shape_of(k))
          check_symbol(symbol, *other, feeds[k], feeds[i].name, size);
      }
    }
  }
}

}  // namespace backplane::core
