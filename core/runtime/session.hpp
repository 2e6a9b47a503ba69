// A session: a model made ready to run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/mapped_file.hpp"
#include "core/onnx/importer.hpp"
#include "core/runtime/environment.hpp"
#include "core/runtime/executable.hpp"
#include "core/runtime/named_values.hpp"
#include "core/runtime/saved_plan.hpp"
#include "core/runtime/session_events.hpp"
#include "core/runtime/session_path.hpp"

namespace backplane::core {

/// A file that a session reads or writes.
struct SessionFile {
  const char* what;    ///< words for messages
  std::string option;  ///< that names it, where it is named for one use alone
  std::filesystem::path path;
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
  /// Of inputs that the session makes, in bytes: as devices need it that work on them where they lie.
  std::uint64_t feed_alignment() const;
  const DeviceSet& devices() const { return devices_; }
  Environment& environment() { return *environment_; }
  const std::shared_ptr<Environment>& shared_environment() const { return environment_; }
  const Logger& logger() const { return *logger_; }
  /// What an option was set to for this session, also "entry.KEY", by the caller or by the model; or its default.
  std::string option(const std::string& key) const;
  /// Options that the model carries, used or not.
  const std::map<std::string, std::string>& model_options() const { return model_options_; }
  /// Milliseconds of the steps of loading, in their order.
  const std::vector<std::pair<std::string, double>>& steps() const { return steps_; }
  MemoryBudget& budget() { return *memory_; }
  /// Whether it follows a saved plan.
  bool is_reopened() const { return saved_plan_ != nullptr; }
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
    std::size_t hidden = 0;  ///< fetches after the caller's: nobody asked for them
    std::vector<std::string>
        saved;  ///< fetches after those: values that every run saves, the caller's apart
  };
  /// With `whole_graph`, all outputs are computed, whatever is fetched.
  Route route(const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
              bool whole_graph = false);

  /// Runs by name; see backplane_session_run_with. An absent fetch is allocated, on the host.
  void run(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches,
           const RunOptions* options = nullptr);
  /// Runs along a route; values in the executable's order, checked against the model. `places`: where they lie, where
  /// not all are on the host; outputs on devices are made there. `resizable`: see RunSettings.
  void run(const Route& route, const RunValues& feeds, const RunValues& fetches, PlanMemo* memo,
           const std::vector<bool>* resizable, const RunOptions* options = nullptr,
           const BodyPlaces* places = nullptr);
  /// Does what can be done before such a run; see Executable::prepare.
  void prepare(const Route& route, const RunValues& feeds, const RunValues& fetches, PlanMemo* memo,
               const std::vector<bool>* resizable, const BodyPlaces* places = nullptr);
  /// Runs one of the session's paths: all of its inputs are fed, any of its outputs are fetched.
  void run_path(const std::string& name, const std::vector<NamedValue>& feeds,
                const std::vector<NamedValue>& fetches);
  /// Throws NotFound, naming the paths that there are.
  const SessionPath& path(const std::string& name) const;
  const std::map<std::string, std::unique_ptr<SessionPath>>& paths() const { return paths_; }

  /// Writes what was decided, and the weights that were packed so far, to a file from which the same session can be
  /// opened again (option "saved_plan"). The file is replaced as a whole or not at all.
  void save_plan(const std::string& path);

  /// All that it reads, plugins included, and all that its options have it write.
  std::vector<SessionFile> files() const;

  /// Checks a feed against what the model says of it.
  void check_feed(const std::string& name, const RuntimeValue& value) const;
  /// Checks that symbols have one size each across the feeds. `declared`: what the model says of each; none: it is looked up.
  void check_symbols(const std::vector<NamedValue>& feeds,
                     const std::vector<const Value*>& declared = {}) const;
  /// Waits for what runs that were not synchronized left going on; throws what it failed with.
  void synchronize();

  /// These values become readable after every run, whatever it fetches; none: none any more.
  void save(const std::vector<std::string>& names);
  /// What the last run by name saved under the name; null before the first. Throws for a name that is not saved.
  PlacedValue saved(const std::string& name);
  bool is_saved(const std::string& name);
  /// Raised by save(): routes made before it lack the values.
  std::uint64_t save_version() const { return save_version_.load(std::memory_order_acquire); }

  /// See backplane_session_explain, _statistics, _trace, _memory.
  std::string explain();
  std::string statistics();
  std::string trace();
  std::string memory();

 private:
  /// Runs a step of loading; errors say which it was.
  template <class Step>
  void at_step(const char* name, const Step& step);
  /// Where the values of a run go, as far as names alone say it: kept for the next run with the same names.
  struct NamedRoute {
    std::vector<std::string> feeds, fetches;
    bool whole_graph = false;
    std::uint64_t save_version = 0;
    Cut cut;
    Route route;  ///< its executable is null where another one than the default runs
    std::vector<const Value*> declared;  ///< what the model says of each feed
  };
  NamedRoute find_route(const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches, bool whole_graph);
  std::shared_ptr<const NamedRoute> known_route(const std::vector<NamedValue>& feeds,
                                                const std::vector<NamedValue>& fetches,
                                                bool whole_graph);
  const Value& declaration(const std::string& name) const;
  void check_feed(const Value& declared, const std::string& name, const RuntimeValue& value) const;
  void run_on(Executable& executable, const RunValues& feeds, const RunValues& fetches,
              RunSettings& settings, const RunOptions* options);
  void open_file(const std::string& path);
  void take_options(const Model* built);
  std::filesystem::path copy_rate_file() const;
  void note_files();
  void check_written() const;
  void check_written(const std::string& option, const std::filesystem::path& path) const;
  /// Throws where the contents of the model are no longer those that were read.
  void check_files() const { check_unchanged(files_); }
  void check_placement_rules() const;
  void set_placement(ProgramContext& context) const;
  std::vector<std::string> remarks_on_devices() const;
  std::shared_ptr<const CostModel> placement_costs(const DeviceSet& devices) const;
  void register_operators();
  void register_kernels(DeviceSet& devices);
  void load(const std::string& path, const Model* built);
  void note_external(const Graph& graph);
  ConstantStore::Lent lent_bytes() const;
  void open_saved_plan();
  PlanOrigin plan_origin() const;
  void accept_private(const std::map<std::string, std::string>& metadata,
                      const std::vector<PrivateOperator>& operators);
  PassOptions pass_options() const;
  void optimize(Model& model);
  void save_optimized();
  void list_values();
  void open_path(const std::string& name, const PathOptions& options);
  void make_path(SessionPath& path);
  void plan_if_fixed();
  void tell_devices();
  ProgramContext program_context(const std::string& path, const DeviceSet& devices,
                                 bp_threads& threads);
  void warn_of_fallback();
  Executable& default_executable();
  std::shared_ptr<Executable> executable(const Cut& cut);
  std::shared_ptr<const Model> model_of(const Cut& cut);
  void drop_oldest_executable();
  std::vector<std::string> saved_names();
  void check_saved(const std::vector<std::string>& names) const;
  void publish_saved(const std::vector<NamedValue>& fetches, const Route& route,
                     const std::vector<RuntimeValuePtr>& hidden_and_saved);
  std::vector<std::shared_ptr<Executable>> executables();

  std::shared_ptr<Environment> environment_;
  std::unique_ptr<Logger> own_logger_;  ///< of a session with a level of its own
  const Logger* logger_ = nullptr;
  SessionOptions options_;
  std::map<std::string, std::string> model_options_;
  std::shared_ptr<const MappedFile> file_;  ///< the model's; null for one given as bytes
  std::span<const std::byte> bytes_;        ///< the model
  std::vector<ConstantPtr> external_;       ///< constants of the model that lie elsewhere
  MappedFiles files_;                       ///< where contents are read while the session lives
  std::shared_ptr<MemoryBudget> memory_;
  std::shared_ptr<const SavedPlan> saved_plan_;
  std::vector<std::pair<std::string, double>> steps_;
  bp_threads threads_;
  DeviceSet devices_;
  SessionEvents events_;  ///< ends after everything that was made on devices
  SchemaRegistry schemas_;
  std::vector<PluginPtr> libraries_;
  Model model_;
  bool is_built_ = false;  ///< from a graph, and neither from a file nor from bytes
  Graph original_;
  std::vector<ValueId> inputs_, outputs_, overridable_;
  double load_ms_ = 0;
  ArenaPool arenas_;  ///< declared before whoever borrows from it
  TraceLog trace_;
  std::mutex mutex_;
  struct Kept {
    std::shared_ptr<Executable> executable;
    std::uint64_t last_use = 0;
  };
  std::map<Cut, Kept> executables_;  ///< bounded; the default one and those in use stay
  std::uint64_t uses_ = 0;
  std::exception_ptr failed_;  ///< what an executable that was dropped had to say
  std::shared_ptr<Executable> default_;
  std::mutex routes_mutex_;
  std::vector<std::shared_ptr<const NamedRoute>> routes_;  ///< the latest first, bounded
  std::mutex saved_mutex_;
  std::vector<std::string> saved_names_;
  std::map<std::string, PlacedValue> saved_;
  std::atomic<std::uint64_t> save_version_{0};
  std::map<std::string, std::unique_ptr<SessionPath>> paths_;
};

}  // namespace backplane::core
