// Keys that share a prefix: one row a family, with how its members are read.
#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_keys.hpp"
#include "core/config/option_parsers.hpp"

namespace backplane::core {
namespace {

using Values = std::vector<std::string>;
using K = const std::string&;
using V = const Values&;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::string after(const std::string& name, const char* prefix) {
  return name.substr(std::string(prefix).size());
}

char single(const std::string&) { return 0; }

void set_provider_option(SessionOptions& session, const std::string& key,
                         const std::string& value) {
  const std::size_t dot = key.find('.', 9);  // after "provider."
  if (dot == std::string::npos || dot == 9 || dot + 1 == key.size()) {
    invalid("option ", core::quoted(key), " is not of the form provider.NAME.OPTION");
  }
  const std::string option = key.substr(dot + 1);
  auto& options = session.provider_options[key.substr(9, dot - 9)];
  for (auto& [name, old_value] : options) {
    if (name == option) {
      old_value = value;
      return;
    }
  }
  options.emplace_back(option, value);
}

/// A key of a path: "path.NAME.KEY".
struct PathKey {
  const char* key;
  char separator;
  void (*apply)(PathOptions& path, K name, V values);
};

const std::vector<PathKey>& path_keys() {
  static const Values kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
  static const Values kPreferences = {"low", "normal", "high"};
  static const std::vector<PathKey> kKeys = {
      {"inputs", ',', [](PathOptions& p, K, V v) { p.inputs = v; }},
      {"outputs", ',', [](PathOptions& p, K, V v) { p.outputs = v; }},
      {"providers", ',', [](PathOptions& p, K k, V v) { p.providers = provider_choices(k, v); }},
      {"backup", 0,
       [](PathOptions& p, K k, V v) {
         p.backup = v[0] == "auto" ? "" : provider_choice(k, v[0]).name;
       }},
      {"threads", 0,
       [](PathOptions& p, K k, V v) {
         p.threads = static_cast<unsigned>(number(k, v[0], 0, kMaxThreads));
       }},
      {"precision", 0,
       [](PathOptions& p, K k, V v) { p.precision = kPrecisions[choice(k, v[0], kPrecisions)]; }},
      {"power", 0,
       [](PathOptions& p, K k, V v) {
         p.power = static_cast<Preference>(choice(k, v[0], kPreferences));
       }},
      {"memory", 0,
       [](PathOptions& p, K k, V v) {
         p.memory = static_cast<Preference>(choice(k, v[0], kPreferences));
       }},
  };
  return kKeys;
}

/// The parts of "path.NAME.KEY"; NAME may hold dots. Throws for a KEY that paths do not have.
std::pair<std::string, const PathKey*> path_key(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot <= 5) invalid("option ", core::quoted(name), " is not of the form path.NAME.KEY");
  const std::string key = name.substr(dot + 1);
  Values known;
  for (const PathKey& row : path_keys()) {
    if (row.key == key) return {name.substr(5, dot - 5), &row};
    known.emplace_back(row.key);
  }
  invalid("option ", core::quoted(name), ": a path has no ", core::quoted(key),
          did_you_mean(key, known), "; it has ", join(known, ", "));
}

}  // namespace

const std::vector<KeyFamily>& key_families() {
  static const std::vector<KeyFamily> kFamilies = {
      {{"provider.NAME.OPTION", "an option of a provider", "", "as the provider documents it"},
       "provider.",
       single,
       [](Options& o, K k, V v) { set_provider_option(o.session, k, v[0]); }},
      {{"dim.NAME", "the size of a symbolic dimension", "", "0 or more"},
       "dim.",
       single,
       [](Options& o, K k, V v) {
         o.session.dims[after(k, "dim.")] = number(k, v[0], 0, kNoLimit);
       }},
      {{"dim_denotation.NAME", "the size of the dimensions with a denotation", "", "0 or more"},
       "dim_denotation.",
       single,
       [](Options& o, K k, V v) {
         o.session.denotations[after(k, "dim_denotation.")] = number(k, v[0], 0, kNoLimit);
       }},
      {{"memory_limit.NAME", "bytes that the session may take on a device, or of host memory", "",
        "bytes, or with KiB, MiB, GiB; NAME is a provider, a device such as NAME:1, or host"},
       "memory_limit.",
       single,
       [](Options& o, K k, V v) {
         o.session.memory_limits[after(k, "memory_limit.")] = byte_count(k, v[0]);
       }},
      {{"path.NAME.KEY",
        "a path through the model: its inputs, outputs, providers, backup, threads, precision, "
        "power, memory",
        "",
        "as the session's; backup: a provider | none | auto; power, memory: low | normal | high"},
       "path.",
       [](const std::string& name) { return path_key(name).second->separator; },
       [](Options& o, K k, V v) {
         const auto [path, row] = path_key(k);
         row->apply(o.session.paths[path], k, v);
       }},
      {{"entry.KEY", "a string that is kept with the session for whoever asks for it", "",
        "any text"},
       "entry.",
       single,
       [](Options& o, K k, V v) { o.session.entries[after(k, "entry.")] = v[0]; }},
  };
  return kFamilies;
}

}  // namespace backplane::core
