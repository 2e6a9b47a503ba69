// Options of environments and sessions: typed, strict, from code, files, environment variables and command lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/priority_order.hpp"
#include "core/passes/passes.hpp"

namespace backplane::core {

enum class Fallback { Allow, Warn, Forbid };

/// A provider in the order of preference. `name` may carry a device index: "fakegpu:1".
struct ProviderChoice {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  bool operator==(const ProviderChoice&) const = default;
};

/// A placement rule: see backplane_options_add_placement.
struct PlacementRule {
  std::string pattern;
  std::string provider;
};

struct EnvironmentOptions {
  unsigned threads = 0;  ///< 0: as many as processors
  bool spinning = true;  ///< idle threads of the pool look for work for a while before they sleep
  std::string log_level = "warning";
  std::vector<std::filesystem::path> plugin_path;
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
  bool parallel = false;  ///< steps that do not depend on each other may run at the same time
  unsigned inter_op_threads = 0;  ///< that run such steps; 0: as many as `threads`
  std::vector<std::filesystem::path> custom_ops;
  std::vector<PlacementRule> placement;
  std::map<std::string, std::int64_t> dims;
  std::size_t plan_cache = 16;
  std::string external_data;
  ExecutionOrder execution_order = ExecutionOrder::Default;
  std::filesystem::path
      optimized_model;  ///< where the model is saved after optimization; empty: nowhere
  bool profile = false;
  std::vector<std::string> save;  ///< values that are readable after every run
};

/// Options of both kinds as they are gathered; a key set later replaces one set before.
class Options {
 public:
  /// Sets a dotted key. Throws InvalidArgument naming the key, the nearest known one, or what values it takes.
  void set(const std::string& key, const std::string& value);
  /// Reads a TOML file; errors name file, line and key. Relative paths in it are taken from its folder.
  void read_file(const std::filesystem::path& path);
  /// BACKPLANE_CONFIG, BACKPLANE_PROVIDERS, BACKPLANE_PLUGIN_PATH (ignored in set-uid programs).
  void read_environment();

  EnvironmentOptions environment;
  SessionOptions session;
};

/// All keys with their documentation, default and values, for help texts.
struct OptionKey {
  std::string key, doc, default_value, values;
};
const std::vector<OptionKey>& option_keys();

}  // namespace backplane::core
