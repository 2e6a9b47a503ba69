// Backplane's host interface for C++17: the objects of backplane.h, owned, with exceptions.
//
//   backplane::Environment environment;
//   backplane::Session session(environment, "model.onnx");
//   auto x = backplane::Value::tensor<float>({1, 3});
//   x.data<float>()[0] = 1;
//   std::vector<backplane::Value> y = session.run({{"x", x}});
//
// Header-only; link the library of backplane.h. Every failure is an Error with one of the codes BACKPLANE_*. What
// backplane.h says of threads, ownership and lifetimes holds here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/backplane.h"
#include "backplane/host/explanation.hpp"
#include "backplane/host/run_options.hpp"
#include "backplane/host/value.hpp"

namespace backplane {

/// Options of environments and sessions; the keys stand in backplane.h.
class Options {
 public:
  Options() {
    backplane_options* options = nullptr;
    detail::check(backplane_options_create(&options));
    options_.reset(options);
  }

  Options& set(const std::string& key, const std::string& value) {
    detail::check(backplane_options_set(get(), key.c_str(), value.c_str()));
    return *this;
  }
  Options& read_file(const std::string& path) {
    detail::check(backplane_options_read_file(get(), path.c_str()));
    return *this;
  }
  Options& read_environment() {
    detail::check(backplane_options_read_environment(get()));
    return *this;
  }
  Options& add_placement(const std::string& pattern, const std::string& provider) {
    detail::check(backplane_options_add_placement(get(), pattern.c_str(), provider.c_str()));
    return *this;
  }
  /// What a key is set to, or its default.
  std::string get(const std::string& key) const {
    backplane_string* string = nullptr;
    detail::check(backplane_options_get(get(), key.c_str(), &string));
    const detail::OwnedString owned(string);
    return backplane_string_data(string);
  }
  /// Contents of external data, by location; the bytes must outlive the sessions.
  Options& add_external_data(const std::string& location, const void* data, std::uint64_t bytes) {
    detail::check(backplane_options_add_external_data(get(), location.c_str(), data, bytes));
    return *this;
  }
  // These two have the names that users of ONNX Runtime know.
  /// Appends a provider to the order of preference; "name:1" is its second device.
  Options& AppendExecutionProvider(
      const std::string& name,
      const std::vector<std::pair<std::string, std::string>>& options = {}) {
    std::vector<const char*> keys;
    std::vector<const char*> values;
    for (const auto& [key, value] : options) {
      keys.push_back(key.c_str());
      values.push_back(value.c_str());
    }
    detail::check(backplane_options_append_provider(get(), name.c_str(), keys.data(), values.data(),
                                                    keys.size()));
    return *this;
  }
  /// Adds a library of custom operators.
  Options& RegisterCustomOpsLibrary(const std::string& path) {
    detail::check(backplane_options_register_custom_ops(get(), path.c_str()));
    return *this;
  }

  /// Adds custom operators of this process: a CustomOpDomain of host/custom_op.hpp, or a plugin's description.
  Options& add_custom_ops(const bp_plugin* plugin) {
    detail::check(backplane_options_add_custom_ops(get(), plugin));
    return *this;
  }

  backplane_options* get() const { return options_.get(); }

 private:
  std::unique_ptr<backplane_options, detail::Deleter<backplane_options, backplane_options_destroy>>
      options_;
};

/// What sessions share. Copies are the same environment.
class Environment {
 public:
  /// Receives a line of the log, from any thread: 0 trace .. 4 error. It calls nothing of the library; what it throws is
  /// swallowed.
  using LogSink = std::function<void(int level, const std::string& message)>;

  /// Without a sink, lines go to standard error.
  explicit Environment(const Options& options = Options(), LogSink sink = {})
      : state_(std::make_shared<State>()) {
    state_->sink = std::move(sink);
    const bool has_sink = static_cast<bool>(state_->sink);
    detail::check(backplane_environment_create(options.get(), has_sink ? &State::log : nullptr,
                                               state_.get(), &state_->handle));
  }

  /// trace, debug, info, warning, error or off.
  void set_log_level(const std::string& level) {
    detail::check(backplane_environment_set_log_level(get(), level.c_str()));
  }
  /// Adds a library of custom operators for the sessions made from now on.
  void RegisterCustomOpsLibrary(const std::string& path) {
    detail::check(backplane_environment_register_custom_ops(get(), path.c_str()));
  }
  /// Every plugin file found and what became of it, as JSON.
  std::string providers() const { return detail::text_of(get(), backplane_environment_providers); }
  /// Lets a library of custom operators go; refused while a session that was made with it lives.
  void unload_custom_ops(const std::string& path) const {
    detail::check(backplane_environment_unload_custom_ops(get(), path.c_str()));
  }
  backplane_environment* get() const { return state_->handle; }

 private:
  friend class Session;
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { backplane_environment_destroy(handle); }
    static void log(void* self, std::int32_t level, const char* message) {
      try {
        static_cast<State*>(self)->sink(level, message);
      } catch (...) {  // a log line is not worth a process
      }
    }
    LogSink sink;
    backplane_environment* handle = nullptr;
  };
  std::shared_ptr<State> state_;
};

/// An input, output or overridable initializer of a model.
struct ValueInfo {
  std::string name;
  std::string type;                  ///< "tensor(float)"
  int rank = -1;                     ///< -1: unknown
  std::vector<std::int64_t> dims;    ///< -1: unknown until a run
  std::vector<std::string> symbols;  ///< by axis; "" where a dimension has none
};

/// Feeds by name; the values are borrowed for the call.
using Feeds = std::vector<std::pair<std::string, ValueView>>;
/// Fetches by name (outputs or inner values): a value that is there is written and must fit, an empty one is made.
using Fetches = std::map<std::string, Value>;

class Graph;

/// What a model says of itself.
struct ModelInfo {
  std::string producer_name, producer_version, domain, description, graph_name, graph_description;
  std::int64_t version = 0;
  std::int64_t ir_version = 0;
  std::map<std::string, std::string> metadata;  ///< the custom map
};

/// A loaded model. Any number of threads may run it at a time.
class Session {
 public:
  Session(const Environment& environment, const std::string& path,
          const Options& options = Options())
      : environment_(environment.state_) {
    backplane_session* session = nullptr;
    detail::check(
        backplane_session_create(environment.get(), path.c_str(), options.get(), &session));
    session_.reset(session);
  }
  /// From bytes, which must stay until the session ends.
  Session(const Environment& environment, const void* data, std::uint64_t bytes,
          const Options& options = Options())
      : environment_(environment.state_) {
    backplane_session* session = nullptr;
    detail::check(backplane_session_create_from_memory(environment.get(), data, bytes,
                                                       options.get(), &session));
    session_.reset(session);
  }

  /// Of a graph as it is now: see host/graph.hpp.
  Session(const Environment& environment, Graph& graph, const Options& options = Options());

  std::vector<ValueInfo> inputs() const { return list(BACKPLANE_INPUTS); }
  /// With the initializers that are listed as inputs.
  std::vector<ValueInfo> all_inputs() const { return list(BACKPLANE_ALL_INPUTS); }
  std::vector<ValueInfo> outputs() const { return list(BACKPLANE_OUTPUTS); }
  std::vector<ValueInfo> overridable_initializers() const { return list(BACKPLANE_OVERRIDABLE); }

  ModelInfo model_info() const {
    const auto text = [this](std::int32_t which) {
      return std::string(backplane_session_text(get(), which));
    };
    ModelInfo info{text(BACKPLANE_TEXT_PRODUCER_NAME),
                   text(BACKPLANE_TEXT_PRODUCER_VERSION),
                   text(BACKPLANE_TEXT_DOMAIN),
                   text(BACKPLANE_TEXT_DESCRIPTION),
                   text(BACKPLANE_TEXT_GRAPH_NAME),
                   text(BACKPLANE_TEXT_GRAPH_DESCRIPTION),
                   backplane_session_model_version(get()),
                   backplane_session_ir_version(get()),
                   {}};
    for (std::size_t i = 0; i < backplane_session_metadata_count(get()); ++i) {
      const char* key = backplane_session_metadata_key(get(), i);
      info.metadata[key] = backplane_session_metadata(get(), key);
    }
    return info;
  }
  /// The version of a domain that the model imports; "" is ONNX's own. 0: it imports none.
  std::int64_t opset(const std::string& domain = "") const {
    return backplane_session_opset(get(), domain.c_str());
  }
  /// The tensor that is a parameter ("SCALE_TENSOR") of a value by the model's quantization annotations; "" for none.
  std::string quantization(const std::string& value, const std::string& parameter) const {
    const char* tensor = backplane_session_quantization(get(), value.c_str(), parameter.c_str());
    return tensor == nullptr ? "" : tensor;
  }

  /// Runs the model and gives what `fetches` name (outputs or inner values; none: all outputs), in that order.
  std::vector<Value> run(const Feeds& feeds, const std::vector<std::string>& fetches = {}) const {
    std::vector<Value> results(fetches.size());
    run(feeds, fetches, results);
    return results;
  }
  /// Likewise into `results`, one for each fetch: values that are there are written and must fit, empty ones are made. For
  /// all outputs it may have none yet.
  void run(const Feeds& feeds, const std::vector<std::string>& fetches,
           std::vector<Value>& results) const {
    run_with(nullptr, feeds, fetches, results);
  }
  /// Likewise, with options.
  std::vector<Value> run(const Feeds& feeds, const std::vector<std::string>& fetches,
                         const RunOptions& options) const {
    std::vector<Value> results(fetches.size());
    run(feeds, fetches, results, options);
    return results;
  }
  void run(const Feeds& feeds, const std::vector<std::string>& fetches, std::vector<Value>& results,
           const RunOptions& options) const {
    run_with(options.get(), feeds, fetches, results);
  }
  /// Runs the model into the values of `fetches`, which after a failure are the same ones; an empty map gets all outputs.
  void run(const Feeds& feeds, Fetches& fetches) const { run_with(nullptr, feeds, fetches); }
  void run(const Feeds& feeds, Fetches& fetches, const RunOptions& options) const {
    run_with(options.get(), feeds, fetches);
  }
  /// Waits for what runs with synchronize=false left going on.
  void synchronize() const { detail::check(backplane_session_synchronize(get())); }

  /// Values that are readable after every run, whatever it fetches; see backplane_session_save.
  void save(const std::vector<std::string>& names) {
    std::vector<const char*> words;
    for (const std::string& name : names) words.push_back(name.c_str());
    detail::check(backplane_session_save(get(), words.data(), words.size()));
  }
  /// What the last run saved; an empty value before the first.
  Value saved(const std::string& name) const {
    backplane_value* value = nullptr;
    detail::check(backplane_session_saved(get(), name.c_str(), &value));
    return Value(value);
  }

  /// A tensor over memory of the program's own on a device of the session, by its handle in the device's API (a
  /// CUdeviceptr, a cl_mem): a feed, or a given output, without a copy. See backplane_value_borrow_on.
  template <class Memory>
  Value borrow_on(const std::string& device, ElementType type,
                  const std::vector<std::int64_t>& dims, Memory memory, std::uint64_t offset,
                  std::uint64_t bytes) const {
    std::uint64_t number = 0;
    if constexpr (std::is_pointer_v<Memory>) {
      number = reinterpret_cast<std::uintptr_t>(memory);
    } else {
      number = static_cast<std::uint64_t>(memory);
    }
    backplane_value* value = nullptr;
    detail::check(backplane_value_borrow_on(get(), device.c_str(), static_cast<std::int32_t>(type),
                                            dims.data(), dims.size(), number, offset, bytes,
                                            &value));
    return Value(value);
  }

  /// `run`, by the name that users of ONNX Runtime know.
  std::vector<Value> Run(const Feeds& feeds, const std::vector<std::string>& fetches = {}) const {
    return run(feeds, fetches);
  }

  /// Runs a path of the session: all of its inputs are fed; gives what `fetches` name, or all of its outputs.
  std::vector<Value> run_path(const std::string& path, const Feeds& feeds,
                              const std::vector<std::string>& fetches = {}) const {
    std::vector<const char*> feed_names, fetch_names;
    std::vector<const backplane_value*> feed_values;
    for (const auto& [name, value] : feeds) {
      feed_names.push_back(name.c_str());
      feed_values.push_back(value.get());
    }
    for (const std::string& name : fetches) fetch_names.push_back(name.c_str());
    const std::size_t count =
        fetches.empty() ? backplane_session_path_output_count(get(), path.c_str()) : fetches.size();
    std::vector<backplane_value*> fetched(count, nullptr);
    detail::check(backplane_session_run_path(
        get(), path.c_str(), feed_names.data(), feed_values.data(), feeds.size(),
        fetches.empty() ? nullptr : fetch_names.data(), fetched.data(), count));
    std::vector<Value> results;
    for (backplane_value* value : fetched) results.emplace_back(value);
    return results;
  }
  /// The names of the session's paths.
  std::vector<std::string> paths() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < backplane_session_path_count(get()); ++i)
      names.emplace_back(backplane_session_path_name(get(), i));
    return names;
  }
  /// What an option was set to for this session, or its default.
  std::string option(const std::string& key) const {
    backplane_string* string = nullptr;
    detail::check(backplane_session_option(get(), key.c_str(), &string));
    const detail::OwnedString owned(string);
    return backplane_string_data(string);
  }
  /// Writes the plan to a file that the option "saved_plan" opens the session with.
  void save_plan(const std::string& file) const {
    detail::check(backplane_session_save_plan(get(), file.c_str()));
  }

  /// The model, its placement and every reason, as JSON.
  std::string explain() const { return detail::text_of(get(), backplane_session_explain); }
  /// Where nodes went and why, what is copied, and what memory runs take, of the plan that ran or was made last.
  Explanation explanation() const { return detail::explanation_of(get()); }
  /// Times, arena sizes, allocations, nodes by provider, copies, as JSON.
  std::string statistics() const { return detail::text_of(get(), backplane_session_statistics); }
  /// The spans so far as a Chrome/Perfetto trace; the option "profile" must be on.
  std::string trace() const { return detail::text_of(get(), backplane_session_trace); }

  /// What lies where, as JSON.
  std::string memory() const { return detail::text_of(get(), backplane_session_memory); }

  backplane_session* get() const { return session_.get(); }

 private:
  void run_with(const backplane_run_options* options, const Feeds& feeds,
                const std::vector<std::string>& fetches, std::vector<Value>& results) const {
    std::vector<const char*> feed_names;
    std::vector<const backplane_value*> feed_values;
    for (const auto& [name, value] : feeds) {
      feed_names.push_back(name.c_str());
      feed_values.push_back(value.get());
    }
    std::vector<const char*> fetch_names;
    for (const std::string& name : fetches) fetch_names.push_back(name.c_str());
    const std::size_t count =
        fetches.empty() ? backplane_session_count(get(), BACKPLANE_OUTPUTS) : fetches.size();
    const bool takes_all = fetches.empty() && results.empty();
    if (!takes_all && results.size() != count) {
      throw Error(BACKPLANE_INVALID_ARGUMENT, std::to_string(results.size()) + " results for " +
                                                  std::to_string(count) +
                                                  (fetches.empty() ? " outputs" : " fetches"));
    }
    std::vector<backplane_value*> fetched;
    for (Value& result : results) fetched.push_back(result.get());
    fetched.resize(count, nullptr);
    detail::check(backplane_session_run_with(
        get(), options, feed_names.data(), feed_values.data(), feeds.size(),
        fetches.empty() ? nullptr : fetch_names.data(), fetched.data(), fetched.size()));
    results.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (results[i].get() == nullptr) results[i] = Value(fetched[i]);
    }
  }

  void run_with(const backplane_run_options* options, const Feeds& feeds, Fetches& fetches) const {
    if (fetches.empty()) {
      Fetches outputs;
      for (const ValueInfo& output : this->outputs()) outputs[output.name];
      if (!outputs.empty()) run_with(options, feeds, outputs);
      fetches = std::move(outputs);
      return;
    }
    std::vector<std::string> names;
    std::vector<Value> values;
    for (auto& [name, value] : fetches) {
      names.push_back(name);
      values.push_back(std::move(value));
    }
    const auto put_back = [&] {
      std::size_t i = 0;
      for (auto& [name, value] : fetches) value = std::move(values[i++]);
    };
    try {
      run_with(options, feeds, names, values);
    } catch (...) {
      put_back();
      throw;
    }
    put_back();
  }

  std::vector<ValueInfo> list(std::int32_t which) const {
    std::vector<ValueInfo> infos(backplane_session_count(get(), which));
    for (std::size_t i = 0; i < infos.size(); ++i) {
      ValueInfo& info = infos[i];
      info.name = backplane_session_name(get(), which, i);
      info.type = backplane_session_type(get(), which, i);
      info.rank = backplane_session_rank(get(), which, i);
      const std::int64_t* dims = backplane_session_dims(get(), which, i);
      for (int axis = 0; axis < info.rank; ++axis) {
        const char* symbol = backplane_session_symbol(get(), which, i, axis);
        info.dims.push_back(dims[axis]);
        info.symbols.emplace_back(symbol == nullptr ? "" : symbol);
      }
    }
    return infos;
  }

  std::shared_ptr<Environment::State> environment_;  // the log sink must outlive the session
  std::unique_ptr<backplane_session, detail::Deleter<backplane_session, backplane_session_destroy>>
      session_;
};

/// Feeds and fetches kept between runs: with equal shapes a run allocates nothing. One thread at a time.
///
/// Lifetime: a binding keeps what it needs of its session and of bound values. Memory that a value borrows must outlive
/// it, and of an environment with a log sink so must the Environment or a Session.
class Binding {
 public:
  explicit Binding(const Session& session) {
    backplane_binding* binding = nullptr;
    detail::check(backplane_binding_create(session.get(), &binding));
    binding_.reset(binding);
  }

  void bind_input(const std::string& name, const ValueView& value) {
    detail::check(backplane_binding_bind_input(get(), name.c_str(), value.get()));
  }
  /// The run writes `value`, which must fit.
  void bind_output(const std::string& name, Value& value) {
    detail::check(backplane_binding_bind_output(get(), name.c_str(), value.get()));
  }
  /// The session makes the value, and reuses it while its shape stays.
  void bind_output(const std::string& name) {
    detail::check(backplane_binding_bind_output(get(), name.c_str(), nullptr));
  }
  /// The run makes it in a device's memory and copies nothing back; see backplane_binding_bind_output_to.
  void bind_output_to(const std::string& name, const std::string& device) {
    detail::check(backplane_binding_bind_output_to(get(), name.c_str(), device.c_str()));
  }
  /// What the last run wrote to an output of the binding's own, for good: the next run makes another value.
  Value take_output(const std::string& name) {
    backplane_value* value = nullptr;
    detail::check(backplane_binding_take_output(get(), name.c_str(), &value));
    return Value(value);
  }
  /// Forget what is bound.
  void clear_inputs() { detail::check(backplane_binding_clear_inputs(get())); }
  void clear_outputs() { detail::check(backplane_binding_clear_outputs(get())); }
  /// Makes an input a tensor of the binding's own, of these dims, zeroed.
  void resize(const std::string& name, const std::vector<std::int64_t>& dims) {
    detail::check(backplane_binding_resize(get(), name.c_str(), dims.data(), dims.size()));
  }
  /// Does everything for a run that can be done before it; see backplane_binding_plan.
  void plan() { detail::check(backplane_binding_plan(get())); }
  /// The tensor of an input, to be filled in place; it stays where it is until the next resize.
  MutableView input(const std::string& name) {
    backplane_value* value = nullptr;
    detail::check(backplane_binding_input(get(), name.c_str(), &value));
    return MutableView(value);
  }
  void run() { detail::check(backplane_binding_run(get())); }
  void run(const RunOptions& options) {
    detail::check(backplane_binding_run_with(get(), options.get()));
  }
  /// What the last run saved; see Session::save.
  ValueView saved(const std::string& name) const {
    const backplane_value* value = nullptr;
    detail::check(backplane_binding_saved(get(), name.c_str(), &value));
    return ValueView(value);
  }
  /// What the last run wrote; valid until the next one.
  ValueView output(const std::string& name) const {
    return ValueView(backplane_binding_output(get(), name.c_str()));
  }

  backplane_binding* get() const { return binding_.get(); }

 private:
  std::unique_ptr<backplane_binding, detail::Deleter<backplane_binding, backplane_binding_destroy>>
      binding_;
};

/// The library's version, "major.minor.patch".
inline std::string version() { return backplane_version(); }

/// What a handler of a signal that ends the program has to call: see backplane.h.
inline void remove_unfinished_files() noexcept { backplane_remove_unfinished_files(); }
/// What a handler of a crash may want to say: see backplane.h.
inline void describe_work(char* text, std::size_t size) noexcept {
  backplane_describe_work(text, size);
}

}  // namespace backplane

#include "backplane/host/graph.hpp"
