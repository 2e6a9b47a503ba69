// The table of keys: one row a key, with how its value is read.
#include "core/config/option_keys.hpp"

#include <optional>

#include "core/base/data_type.hpp"
#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_parsers.hpp"

namespace backplane::core {
namespace {

using Values = std::vector<std::string>;

std::set<std::string> passes(const std::string& key, const Values& values) {
  std::vector<std::string> known = pass_names();
  for (const char* step : kProviderPasses) known.emplace_back(step);
  std::set<std::string> result;
  for (const std::string& value : values) result.insert(known[choice(key, value, known)]);
  return result;
}

std::set<std::string> operators(const std::string& key, const Values& values) {
  std::set<std::string> result;
  for (const std::string& value : values) {
    if (value.empty()) invalid("option ", core::quoted(key), " holds an empty name");
    result.insert(value.rfind("ai.onnx::", 0) == 0 ? value.substr(9) : value);
  }
  return result;
}

std::vector<PlacementRule> placement(const Values& values) {
  std::vector<PlacementRule> rules;
  for (const std::string& value : values) rules.push_back(parse_placement_rule(value));
  return rules;
}

const Values& log_levels() {
  static const Values kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  return kLevels;
}

std::vector<CastChoice> cast_choices(const std::string& key, const Values& values) {
  std::vector<CastChoice> casts;
  for (const std::string& value : values) {
    const std::size_t arrow = value.find('>');
    const auto is_type = [](const std::string& word) {
      const std::optional<DataType> type = data_type_named(word);
      return type && *type != DataType::None && *type != DataType::String;
    };
    CastChoice cast;
    if (arrow != std::string::npos) cast = {value.substr(0, arrow), value.substr(arrow + 1)};
    if (!is_type(cast.from) || !is_type(cast.to) || cast.from == cast.to)
      wrong_value(key, value, "two element types, such as float16>float");
    casts.push_back(std::move(cast));
  }
  return casts;
}

using Key = const std::string&;
using Given = const Values&;

/// What all sessions of an environment share.
std::vector<KeyRow> environment_rows() {
  return {
      {.key = {"environment.threads",
               "threads of the pool, the caller's included; 0: as many as processors", "0",
               "0 .. 1024"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.environment.threads =
                 static_cast<unsigned>(number(key, values[0], 0, kMaxThreads));
           }},
      {.key = {"environment.spinning",
               "whether idle threads of the pool look for work for a while before they sleep",
               "true", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.environment.spinning = truth(key, values[0]); }},
      {.key = {"environment.log_level", "least important messages that are logged", "warning",
               "trace | debug | info | warning | error | off"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.environment.log_level = log_levels()[choice(key, values[0], log_levels())];
           }},
      {.key = {"environment.plugin_path",
               "directories to search for plugins before the default one", "",
               "paths, separated by ':'"},
       .separator = ':',
       .is_path = true,
       .apply = [](Options& options, Key key,
                   Given values) { options.environment.plugin_path = paths(key, values); }},
      {.key = {"environment.plugin_exclude", "plugin files that are not loaded", "",
               "paths, separated by ':'"},
       .separator = ':',
       .is_path = true,
       .apply = [](Options& options, Key key,
                   Given values) { options.environment.plugin_exclude = paths(key, values); }},
      {.key = {"environment.custom_ops", "libraries of custom operators of every session", "",
               "paths, separated by ':'"},
       .separator = ':',
       .is_path = true,
       .apply = [](Options& options, Key key,
                   Given values) { options.environment.custom_ops = paths(key, values); }},
  };
}

/// Where a session runs.
std::vector<KeyRow> placement_rows() {
  static const Values kFallbacks = {"allow", "warn", "forbid"};
  static const Values kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
  static const Values kPolicies = {"priority", "cost"};
  static const Values kUnused = {"allow", "warn", "error"};
  return {
      {.key = {"threads", "threads of a session's loops; 0: the pool's", "0", "0 .. 1024"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.threads =
                 static_cast<unsigned>(number(key, values[0], 0, kMaxThreads));
           }},
      {.key = {"providers", "providers in order of preference; auto: all with a device, by score",
               "auto",
               "names, separated by ','; NAME is a provider's best device, NAME:1 its second one, "
               "NAME:all are all; also NAME:fastest, :least_power, :most_memory, :name=PATTERN; "
               "NAME? is left out where it is not there"},
       .separator = ',',
       .apply = [](Options& options, Key key,
                   Given values) { options.session.providers = provider_choices(key, values); }},
      {.key = {"fallback", "what to do with a node that no listed provider takes", "warn",
               "allow | warn | forbid"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.fallback = static_cast<Fallback>(choice(key, values[0], kFallbacks));
           }},
      {.key =
           {"placement",
            "how devices are chosen: by the order of providers, or by what nodes and copies cost",
            "priority", "priority | cost"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.placement_policy =
                 static_cast<PlacementPolicy>(choice(key, values[0], kPolicies));
           }},
      {.key = {"casts",
               "types that nodes may be computed in where a provider has the operator but not its "
               "type",
               "", "FROM>TO, separated by ',', such as float16>float"},
       .separator = ',',
       .apply = [](Options& options, Key key,
                   Given values) { options.session.casts = cast_choices(key, values); }},
      {.key = {"widening",
               "nodes of float16 and bfloat16 are computed in float where a provider's kernels ask "
               "for it",
               "true", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.widening = truth(key, values[0]); }},
      {.key = {"unused_rules",
               "what to do with rules of placement that fit no node, or are never used", "warn",
               "allow | warn | error"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.unused_rules =
                 static_cast<UnusedRules>(choice(key, values[0], kUnused));
           }},
      {.key = {"copy_rates", "file that keeps the copy rates that placement=cost measures", "auto",
               "a path | auto: in the user's cache folder | off: measured by every session"},
       .is_path = true,
       .apply =
           [](Options& options, Key key, Given values) {
             if (values[0].empty()) wrong_value(key, values[0], "a path, auto or off");
             options.session.copy_rates = values[0];
           },
       .words = {"auto", "off"}},
      {.key = {"precision", "arithmetic that providers may use for float tensors", "fp32",
               "fp32 | tf32 | fp16 | bf16"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.precision = kPrecisions[choice(key, values[0], kPrecisions)];
           }},
  };
}

/// What operators it has besides those of providers.
std::vector<KeyRow> operator_rows() {
  return {
      {.key = {"custom_ops", "libraries of custom operators", "", "paths, separated by ':'"},
       .separator = ':',
       .is_path = true,
       .apply = [](Options& options, Key key,
                   Given values) { options.session.custom_ops = paths(key, values); }},
      {.key = {"replace_ops", "operators of ONNX and of providers that custom ones go before", "",
               "names (Relu, DOMAIN::NAME), separated by ','; * for all"},
       .separator = ',',
       .apply = [](Options& options, Key key,
                   Given values) { options.session.replace_ops = operators(key, values); }},
  };
}

/// What is done with its graph, and what else it needs.
std::vector<KeyRow> graph_rows() {
  static const Values kLevels = {"none", "basic", "extended", "all"};
  static const Values kOrders = {"default", "priority"};
  return {
      {.key = {"optimization", "graph passes that are run", "all", "none | basic | extended | all"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.optimization =
                 static_cast<OptimizationLevel>(choice(key, values[0], kLevels));
           }},
      {.key = {"disabled_passes", "graph passes that are left out", "", "names, separated by ','"},
       .separator = ',',
       .apply = [](Options& options, Key key,
                   Given values) { options.session.disabled_passes = passes(key, values); }},
      {.key = {"enabled_passes", "graph passes that are run below their level too", "",
               "names, separated by ','"},
       .separator = ',',
       .apply = [](Options& options, Key key,
                   Given values) { options.session.enabled_passes = passes(key, values); }},
      {.key = {"deterministic", "same results in every run, whatever it costs", "false",
               "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.deterministic = truth(key, values[0]); }},
      {.key = {"execution_mode",
               "whether steps that do not depend on each other run at the same time", "sequential",
               "sequential | parallel"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.parallel = choice(key, values[0], {"sequential", "parallel"}) == 1;
           }},
      {.key = {"inter_op_threads",
               "threads that run such steps in parallel mode; 0: as many as 'threads'", "0",
               "0 .. 1024"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.inter_op_threads =
                 static_cast<unsigned>(number(key, values[0], 0, kMaxThreads));
           }},
      {.key = {"place", "rules that send nodes to providers; the first that fits a node counts", "",
               "PATTERN=PROVIDER, separated by ';'"},
       .separator = ';',
       .apply = [](Options& options, Key,
                   Given values) { options.session.placement = placement(values); }},
      {.key = {"plan_cache",
               "plans kept at most, one for each set of input shapes; 0: 16, and in the host's "
               "memory alone up to 256 of few steps",
               "0", "0 .. 65536"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.plan_cache =
                 static_cast<std::size_t>(number(key, values[0], 0, 65536));
           }},
      {.key = {"external_data",
               "for a model given as bytes: the folder of its external data, or its file", "",
               "a path"},
       .is_path = true,
       .apply = [](Options& options, Key,
                   Given values) { options.session.external_data = values[0]; }},
      {.key = {"execution_order", "which of the orders that the graph allows its nodes run in",
               "default", "default | priority"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.execution_order =
                 static_cast<ExecutionOrder>(choice(key, values[0], kOrders));
           }},
      {.key = {"optimized_model_path", "file to save the model to as it is after optimization", "",
               "a path; empty: not saved"},
       .is_path = true,
       .apply = [](Options& options, Key,
                   Given values) { options.session.optimized_model = values[0]; }},
      {.key = {"profile", "collect a span for every node and copy", "false", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.profile = truth(key, values[0]); }},
      {.key = {"save", "values that are readable after every run, whatever it fetches", "",
               "names, separated by ';'"},
       .separator = ';',
       .apply = [](Options& options, Key, Given values) { options.session.save = values; }},
  };
}

/// How it lives: log, memory, what it is opened from and saved to.
std::vector<KeyRow> life_rows() {
  static const Values kSessionLevels = {"environment", "trace", "debug", "info",
                                        "warning",     "error", "off"};
  return {
      {.key = {"log_level", "least important messages of this session", "environment",
               "environment | trace | debug | info | warning | error | off"},
       .apply =
           [](Options& options, Key key, Given values) {
             const std::size_t level = choice(key, values[0], kSessionLevels);
             options.session.log_level = level == 0 ? "" : kSessionLevels[level];
           }},
      {.key = {"memory_pattern", "values of a run share memory where they are not needed together",
               "true", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.memory_pattern = truth(key, values[0]); }},
      {.key = {"zero_copy",
               "devices that share the host's memory work on inputs and outputs where they lie",
               "true", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.zero_copy = truth(key, values[0]); }},
      {.key = {"denormals_as_zero",
               "whether the host takes numbers below the normal ones as 0 in runs, which is faster "
               "where there are many",
               "false", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.denormals_as_zero = truth(key, values[0]); }},
      {.key = {"arena", "a run's memory is kept for the next run", "true", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.arena = truth(key, values[0]); }},
      {.key = {"capture", "devices that can record the work of a plan once and do it again as one",
               "auto", "auto | off"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.capture = choice(key, values[0], {"auto", "off"}) == 0;
           }},
      {.key = {"memory_limit",
               "bytes that the session may take of all memory together; 0: no limit", "0",
               "bytes, or with KiB, MiB, GiB"},
       .apply =
           [](Options& options, Key key, Given values) {
             options.session.memory_limits[""] = byte_count(key, values[0]);
           }},
      {.key = {"options_from_model", "session options in the model's metadata are honoured",
               "false", "true | false"},
       .apply = [](Options& options, Key key,
                   Given values) { options.session.options_from_model = truth(key, values[0]); }},
      {.key = {"saved_plan", "plan to open the session with instead of placing and packing", "",
               "a path"},
       .is_path = true,
       .apply = [](Options& options, Key,
                   Given values) { options.session.saved_plan = values[0]; }},
      {.key = {"save_plan", "file that the session's plan is written to once it is loaded", "",
               "a path"},
       .is_path = true,
       .apply = [](Options& options, Key, Given values) { options.session.save_plan = values[0]; }},
  };
}

}  // namespace

PlacementRule parse_placement_rule(const std::string& rule) {
  // A provider's name holds no '=', a node's may.
  const std::size_t equals = rule.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == rule.size()) {
    invalid("placement rule ", core::quoted(rule), " is not of the form PATTERN=PROVIDER");
  }
  PlacementRule result{rule.substr(0, equals), rule.substr(equals + 1)};
  check_placement_rule(result);
  return result;
}

void check_placement_rule(const PlacementRule& rule) {
  const std::string& pattern = rule.pattern;
  const auto has_prefix = [&](const char* prefix) { return pattern.rfind(prefix, 0) == 0; };
  if (pattern.empty()) invalid("a placement rule has an empty pattern");
  if (has_prefix("op:") && pattern.size() == 3) {
    invalid("placement pattern ", core::quoted(pattern), " names no operator");
  }
  if (has_prefix("between:")) {
    const std::size_t dots = pattern.find("..", 8);
    if (dots == std::string::npos || dots == 8 || dots + 2 == pattern.size()) {
      invalid("placement pattern ", core::quoted(pattern),
              " is not of the form between:VALUE..VALUE");
    }
  }
  provider_choice("place", rule.provider);
}

const std::vector<KeyRow>& key_rows() {
  static const std::vector<KeyRow> kRows = [] {
    std::vector<KeyRow> rows = environment_rows();
    for (KeyRow& row : placement_rows()) rows.push_back(std::move(row));
    for (KeyRow& row : operator_rows()) rows.push_back(std::move(row));
    for (KeyRow& row : graph_rows()) rows.push_back(std::move(row));
    for (KeyRow& row : life_rows()) rows.push_back(std::move(row));
    return rows;
  }();
  return kRows;
}

}  // namespace backplane::core
