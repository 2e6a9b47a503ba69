// Options of environments and sessions: typed, strict, from code, files, environment variables and command lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/priority_order.hpp"
#include "core/passes/passes.hpp"

namespace backplane::core {

class Plugin;

enum class Fallback { Allow, Warn, Forbid };

/// How devices are chosen for nodes.
enum class PlacementPolicy {
  Priority,  ///< the first provider of the list that takes the node
  Cost,      ///< where nodes and the copies between them cost least together
};

/// What rules of placement that do nothing are.
enum class UnusedRules { Allow, Warn, Error };

/// Nodes of type `from` may be computed in type `to`; ONNX's words.
struct CastChoice {
  std::string from, to;
};

/// A provider in the order of preference. `name` may carry a device index: "fakegpu:1".
struct ProviderChoice {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  bool optional = false;      ///< written "NAME?" or "NAME?:1": left out where it is not there
  std::string left_out = {};  ///< why it is; "": it is not, or nobody has looked yet
  bool operator==(const ProviderChoice&) const = default;
};

/// A placement rule: see backplane_options_add_placement.
struct PlacementRule {
  std::string pattern;
  std::string provider;
};

/// What a path through a model prefers where there is a choice.
enum class Preference { Low, Normal, High };

/// One of several ways through the model of a session, with a schedule of its own: "path.NAME.KEY".
struct PathOptions {
  std::vector<std::string> inputs, outputs;  ///< empty: the model's
  std::vector<ProviderChoice> providers;     ///< empty: the session's
  std::string
      backup;  ///< takes what these do not; "": as the session's fallback says; "none": nobody
  unsigned threads = 0;                    ///< 0: the session's
  std::string precision;                   ///< "": the session's
  Preference power = Preference::Normal;   ///< low: half of the threads; told to providers
  Preference memory = Preference::Normal;  ///< low: a run's memory is given back after it
};

struct EnvironmentOptions {
  unsigned threads = 0;  ///< 0: as many as processors
  bool spinning = true;  ///< idle threads of the pool look for work for a while before they sleep
  std::string log_level = "warning";
  std::vector<std::filesystem::path> plugin_path, plugin_exclude;
  std::vector<std::filesystem::path> custom_ops;  ///< of every session
  std::map<std::string, std::string> given;       ///< keys that were set, with their text
};

struct SessionOptions {
  unsigned threads = 0;                   ///< 0: the pool's
  std::vector<ProviderChoice> providers;  ///< empty: all with a device, by score
  std::map<std::string, std::vector<std::pair<std::string, std::string>>>
      provider_options;  ///< "provider.NAME.OPTION"
  Fallback fallback = Fallback::Warn;
  std::string precision = "fp32";
  OptimizationLevel optimization = OptimizationLevel::All;
  std::set<std::string> disabled_passes;
  bool deterministic = false;
  bool denormals_as_zero = false;  ///< where the host computes
  bool parallel = false;  ///< steps that do not depend on each other may run at the same time
  unsigned inter_op_threads = 0;  ///< that run such steps; 0: as many as `threads`
  std::vector<std::filesystem::path> custom_ops;
  std::vector<std::shared_ptr<const Plugin>> domains;  ///< custom operators of this process
  /// Operators of ONNX and of providers that custom ones may replace: "Relu", "com.domain::Foo", "*" for all.
  std::set<std::string> replace_ops;
  std::vector<PlacementRule> placement;
  UnusedRules unused_rules = UnusedRules::Warn;
  std::vector<CastChoice> casts;
  bool widening = true;
  PlacementPolicy placement_policy = PlacementPolicy::Priority;
  std::string copy_rates = "auto";  ///< file of measured copy rates; "off": none
  std::map<std::string, std::int64_t> dims;
  std::size_t plan_cache = 0;  ///< 0: 16, and more of small models in the host's memory
  std::string external_data;
  ExecutionOrder execution_order = ExecutionOrder::Default;
  std::filesystem::path
      optimized_model;  ///< where the model is saved after optimization; empty: nowhere
  bool profile = false;
  std::vector<std::string> save;         ///< values that are readable after every run
  std::set<std::string> enabled_passes;  ///< run below their level too
  std::string log_level;                 ///< "": the environment's
  bool memory_pattern = true;            ///< values share memory by their lifetimes
  bool arena = true;                     ///< a run's memory is kept for the next one
  bool zero_copy =
      true;  ///< devices that share the host's memory work on feeds and fetches where they lie
  bool capture = true;  ///< devices record work that they can do again
  /// Bytes at most, by device or provider, "host" for host memory, "" for all together; 0: no limit.
  std::map<std::string, std::uint64_t> memory_limits;
  std::map<std::string, std::int64_t> denotations;  ///< as dims, by denotation
  bool options_from_model = false;
  std::string saved_plan, save_plan;
  std::map<std::string, std::string> entries;  ///< "entry.KEY": kept for whoever asks
  std::map<std::string, std::span<const std::byte>> external_bytes;  ///< borrowed, by location
  std::map<std::string, PathOptions> paths;
  std::vector<std::filesystem::path> files;  ///< that options were read from
  std::map<std::string, std::string> given;  ///< keys that were set, with their text
};

/// What providers do to a graph, by the names that `disabled_passes` knows it by.
inline constexpr const char* kProviderPasses[] = {"provider_rewrites", "provider_claims"};

/// Options of both kinds as they are gathered; a key set later replaces one set before.
class Options {
 public:
  /// Sets a dotted key. Throws InvalidArgument naming the key, the nearest known one, or what values it takes.
  void set(const std::string& key, const std::string& value);
  /// Reads a TOML file; errors name file, line and key. Relative paths in it are taken from its folder.
  void read_file(const std::filesystem::path& path);
  /// BACKPLANE_CONFIG, BACKPLANE_PROVIDERS, BACKPLANE_PLUGIN_PATH (ignored in set-uid programs).
  void read_environment();
  /// What a key was set to, or its default, as text. Throws InvalidArgument for an unknown key, NotFound for one of a
  /// family ("dim.NAME") that is not set.
  std::string get(const std::string& key) const;
  /// Its name may be written with a '?', see ProviderChoice.
  void append_provider(ProviderChoice choice);
  void add_custom_ops(const std::filesystem::path& file);
  void add_placement(PlacementRule rule);

  EnvironmentOptions environment;
  SessionOptions session;
};

/// All keys with their documentation, default and values, for help texts.
struct OptionKey {
  std::string key, doc, default_value, values;
};
const std::vector<OptionKey>& option_keys();

}  // namespace backplane::core
