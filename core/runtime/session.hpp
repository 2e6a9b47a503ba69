// A session: a model made ready to run.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/onnx/importer.hpp"
#include "core/runtime/environment.hpp"
#include "core/runtime/executable.hpp"

namespace backplane::core {

/// A feed or fetch by name.
struct NamedValue {
  std::string name;
  RuntimeValue* value;
};

/// Loads a model, places it, plans it where its shapes are fixed; then runs it.
///
/// Lifetime: holds its environment.
/// Threads:  all functions may run concurrently.
class Session {
 public:
  /// From a file, or (path empty) from bytes that outlive the session, or (`built` given) from a graph that was built and
  /// resolved, which is copied. Errors say at which step, and leave nothing.
  Session(std::shared_ptr<Environment> environment, const std::string& path,
          std::span<const std::byte> bytes, const SessionOptions& options,
          const Model* built = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The model after optimization; values keep their names and ids, and those that are gone have no producer.
  const Model& model() const { return model_; }
  /// Its graph before that.
  const Graph& original() const { return original_; }
  const SessionOptions& options() const { return options_; }
  const DeviceSet& devices() const { return devices_; }
  Environment& environment() { return *environment_; }
  /// Names of inputs without initializers, of outputs, of overridable initializers; in the model's order.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<ValueId>& overridable() const { return overridable_; }
  /// Inputs with initializers that are listed as such, in the model's order.
  const std::vector<ValueId>& all_inputs() const { return model_.graph.inputs; }

  /// What runs for these feeds and fetches, and in which order it wants them. Made when first asked for.
  struct Route {
    std::shared_ptr<Executable> executable;
    std::vector<std::size_t> feeds;  ///< the executable's feed k is the caller's feeds[k]
    std::vector<std::size_t> fetches;
  };
  Route route(const std::vector<std::string>& feeds, const std::vector<std::string>& fetches);

  /// Runs by name; see backplane_session_run. An absent fetch is allocated.
  void run(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches);
  /// Runs along a route; values in the caller's order, checked against the model.
  void run(const Route& route, const RunValues& feeds, const RunValues& fetches, PlanMemo* memo,
           bool resize_fetches);
  /// Checks a feed against what the model says of it.
  void check_feed(const std::string& name, const RuntimeValue& value) const;
  /// Checks that a symbol has one size in all inputs; each has been checked by itself.
  void check_symbols(const Route& route, const std::vector<NamedValue>& feeds) const;

  /// See backplane_session_explain, _statistics, _trace.
  std::string explain();
  std::string statistics();
  std::string trace();

 private:
  void register_operators();
  void load(const std::string& path, std::span<const std::byte> bytes, const Model* built);
  void accept_private(const std::map<std::string, std::string>& metadata,
                      const std::vector<PrivateOperator>& operators);
  void optimize(Model& model);
  void save_optimized();
  void list_values();
  void plan_if_fixed();
  void warn_of_fallback();
  Executable& default_executable();
  std::shared_ptr<Executable> executable(const Cut& cut);
  const Model& model_of(const Cut& cut);

  std::shared_ptr<Environment> environment_;
  SessionOptions options_;
  bp_threads threads_;
  DeviceSet devices_;
  SchemaRegistry schemas_;
  std::vector<PluginPtr> libraries_;
  Model model_;
  Graph original_;
  std::map<Cut, std::unique_ptr<Model>> cut_models_;  ///< of cuts at inner values
  std::vector<ValueId> inputs_, outputs_, overridable_;
  double load_ms_ = 0;
  std::mutex mutex_;
  std::map<Cut, std::shared_ptr<Executable>> executables_;
  std::shared_ptr<Executable> default_;
  std::mutex spans_mutex_;
  std::vector<Span> spans_;
};

}  // namespace backplane::core
