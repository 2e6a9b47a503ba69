// The table of keys: one row a key, with how its value is read.
#include "core/config/option_keys.hpp"

#include <charconv>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

using Values = std::vector<std::string>;

[[noreturn]] void wrong_value(const std::string& key, const std::string& value,
                              const std::string& expected) {
  invalid("option ", core::quoted(key), ": ", core::quoted(value), " is not ", expected);
}

std::int64_t number(const std::string& key, const std::string& value, std::int64_t least,
                    std::int64_t most) {
  std::int64_t result = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, result);
  if (error != std::errc() || stop != end || result < least || result > most) {
    const bool open = most == std::numeric_limits<std::int64_t>::max();
    wrong_value(key, value,
                open ? text("an integer from ", least, " on")
                     : text("an integer from ", least, " to ", most));
  }
  return result;
}

bool truth(const std::string& key, const std::string& value) {
  if (value == "true") return true;
  if (value == "false") return false;
  wrong_value(key, value, "true or false");
}

/// The index of `value` among `known`.
std::size_t choice(const std::string& key, const std::string& value, const Values& known) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (value == known[i]) return i;
  }
  std::string expected = "one of";
  for (const std::string& word : known) expected += " " + word;
  wrong_value(key, value, expected + did_you_mean(value, known));
}

ProviderChoice provider_choice(const std::string& key, const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  std::size_t end = 0;
  while (end < name.size() && is_letter(name[end])) ++end;
  bool fits = end > 0;
  if (fits && end < name.size()) {
    fits = name[end] == ':' && end + 1 < name.size() && name.size() - end <= 5 &&
           name.find_first_not_of("0123456789", end + 1) == std::string::npos;
  }
  if (!fits) wrong_value(key, name, "a provider's name, such as \"name\" or \"name:1\"");
  return {name, {}};
}

void set_providers(SessionOptions& session, const std::string& key, const Values& names) {
  std::vector<ProviderChoice> chosen;
  for (const std::string& name : names) {
    if (name == "auto" && names.size() == 1) break;
    ProviderChoice provider = provider_choice(key, name);
    for (const ProviderChoice& earlier : chosen) {
      if (earlier.name == name)
        invalid("option ", core::quoted(key), " names ", core::quoted(name), " twice");
    }
    chosen.push_back(std::move(provider));
  }
  session.providers = std::move(chosen);
}

std::vector<std::filesystem::path> paths(const std::string& key, const Values& values) {
  std::vector<std::filesystem::path> result;
  for (const std::string& value : values) {
    if (value.empty()) invalid("option ", core::quoted(key), " holds an empty path");
    result.emplace_back(value);
  }
  return result;
}

std::set<std::string> passes(const std::string& key, const Values& values) {
  const std::vector<std::string> known = pass_names();
  std::set<std::string> result;
  for (const std::string& value : values) result.insert(known[choice(key, value, known)]);
  return result;
}

std::vector<PlacementRule> placement(const Values& values) {
  std::vector<PlacementRule> rules;
  for (const std::string& value : values) rules.push_back(parse_placement_rule(value));
  return rules;
}

const Values& log_levels() {
  static const Values kLevels = {"trace", "debug", "info", "warning", "error"};
  return kLevels;
}

constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

using K = const std::string&;
using V = const Values&;

/// Where a session runs.
std::vector<KeyRow> placement_rows() {
  static const Values kFallbacks = {"allow", "warn", "forbid"};
  static const Values kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
  return {
      {{"environment.threads",
        "threads of the pool, the caller's included; 0: as many as processors", "0", "0 .. 1024"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.environment.threads = static_cast<unsigned>(number(k, v[0], 0, kMaxThreads));
       }},
      {{"environment.spinning",
        "whether idle threads of the pool look for work for a while before they sleep", "true",
        "true | false"},
       0,
       false,
       [](Options& o, K k, V v) { o.environment.spinning = truth(k, v[0]); }},
      {{"environment.log_level", "least important messages that are logged", "warning",
        "trace | debug | info | warning | error"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.environment.log_level = log_levels()[choice(k, v[0], log_levels())];
       }},
      {{"environment.plugin_path", "directories to search for plugins before the default one", "",
        "paths, separated by ':'"},
       ':',
       true,
       [](Options& o, K k, V v) { o.environment.plugin_path = paths(k, v); }},
      {{"threads", "threads of a session's loops; 0: the pool's", "0", "0 .. 1024"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.threads = static_cast<unsigned>(number(k, v[0], 0, kMaxThreads));
       }},
      {{"providers", "providers in order of preference; auto: all with a device, by score", "auto",
        "names, separated by ','; NAME:1 is a provider's second device"},
       ',',
       false,
       [](Options& o, K k, V v) { set_providers(o.session, k, v); }},
      {{"fallback", "what to do with a node that no listed provider takes", "warn",
        "allow | warn | forbid"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.fallback = static_cast<Fallback>(choice(k, v[0], kFallbacks));
       }},
      {{"precision", "arithmetic that providers may use for float tensors", "fp32",
        "fp32 | tf32 | fp16 | bf16"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.precision = kPrecisions[choice(k, v[0], kPrecisions)];
       }},
  };
}

/// What is done with its graph, and what else it needs.
std::vector<KeyRow> graph_rows() {
  static const Values kLevels = {"none", "basic", "extended", "all"};
  static const Values kOrders = {"default", "priority"};
  return {
      {{"optimization", "graph passes that are run", "all", "none | basic | extended | all"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.optimization = static_cast<OptimizationLevel>(choice(k, v[0], kLevels));
       }},
      {{"disabled_passes", "graph passes that are left out", "", "names, separated by ','"},
       ',',
       false,
       [](Options& o, K k, V v) { o.session.disabled_passes = passes(k, v); }},
      {{"deterministic", "same results in every run, whatever it costs", "false", "true | false"},
       0,
       false,
       [](Options& o, K k, V v) { o.session.deterministic = truth(k, v[0]); }},
      {{"execution_mode", "whether steps that do not depend on each other run at the same time",
        "sequential", "sequential | parallel"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.parallel = choice(k, v[0], {"sequential", "parallel"}) == 1;
       }},
      {{"inter_op_threads", "threads that run such steps in parallel mode; 0: as many as 'threads'",
        "0", "0 .. 1024"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.inter_op_threads = static_cast<unsigned>(number(k, v[0], 0, kMaxThreads));
       }},
      {{"custom_ops", "libraries of custom operators", "", "paths, separated by ':'"},
       ':',
       true,
       [](Options& o, K k, V v) { o.session.custom_ops = paths(k, v); }},
      {{"place", "rules that send nodes to providers; the first that fits a node counts", "",
        "PATTERN=PROVIDER, separated by ';'"},
       ';',
       false,
       [](Options& o, K, V v) { o.session.placement = placement(v); }},
      {{"plan_cache", "plans kept at most, one for each set of input shapes", "16", "1 .. 65536"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.plan_cache = static_cast<std::size_t>(number(k, v[0], 1, 65536));
       }},
      {{"external_data", "folder of external data, for a model given as bytes", "", "a path"},
       0,
       true,
       [](Options& o, K, V v) { o.session.external_data = v[0]; }},
      {{"execution_order", "which of the orders that the graph allows its nodes run in", "default",
        "default | priority"},
       0,
       false,
       [](Options& o, K k, V v) {
         o.session.execution_order = static_cast<ExecutionOrder>(choice(k, v[0], kOrders));
       }},
      {{"optimized_model_path", "file to save the model to as it is after optimization", "",
        "a path; empty: not saved"},
       0,
       true,
       [](Options& o, K, V v) { o.session.optimized_model = v[0]; }},
      {{"profile", "collect a span for every node and copy", "false", "true | false"},
       0,
       false,
       [](Options& o, K k, V v) { o.session.profile = truth(k, v[0]); }},
      {{"save", "values that are readable after every run, whatever it fetches", "",
        "names, separated by ';'"},
       ';',
       false,
       [](Options& o, K, V v) { o.session.save = v; }},
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
    std::vector<KeyRow> rows = placement_rows();
    for (KeyRow& row : graph_rows()) rows.push_back(std::move(row));
    return rows;
  }();
  return kRows;
}

void set_dim(SessionOptions& session, const std::string& name, const std::string& value) {
  session.dims[name] = number("dim." + name, value, 0, kNoLimit);
}

}  // namespace backplane::core
