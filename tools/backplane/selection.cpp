#include "tools/backplane/selection.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

/// "KEY=VALUE" at the `at`-th '='.
std::pair<std::string, std::string> split_pair(const std::string& argument, std::size_t equals,
                                               const std::string& option, const std::string& form) {
  if (equals == std::string::npos || equals == 0) {
    wrong_request(option, " '", argument, "' is not of the form ", form);
  }
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

/// Errors of the library about a value, with the option that held it.
template <class Body>
void from_option(const std::string& option, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    throw Failure(exit_code_of_load(error.code()), option + ": " + error.what());
  }
}

std::string joined_folders(const std::vector<std::string>& folders) {
  std::string path;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) {
      wrong_request("--plugin-path: '", folder, "' is not a folder");
    }
    if (folder.find(':') != std::string::npos) {
      wrong_request("--plugin-path: '", folder, "' holds a ':', which separates folders");
    }
    path += (path.empty() ? "" : ":") + folder;
  }
  return path;
}

}  // namespace

void GivenOnce::add(const std::string& name) {
  if (!names_.insert(name).second) wrong_request(option_, ": '", name, "' is given twice");
}

void add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                    const std::string& doc) {
  command.add_option(name, values, doc)->type_size(1)->allow_extra_args(false);
}

void Selection::add_to(CLI::App& command) {
  command.add_option("--config", config, "configuration file (TOML) instead of $BACKPLANE_CONFIG");
  add_repeatable(command, "--set", settings, "KEY=VALUE: any key of the configuration");
  add_repeatable(command, "--plugin-path", plugin_path, "folder to search for plugins first");
  command.add_option(
      "--providers", providers,
      "providers in order of preference, separated by ','; NAME:1, NAME:fastest ...: one of its "
      "devices; NAME?: optional; auto: by score");
  command.add_option("--threads", threads, "threads for computing; 0: as many as processors");
  add_repeatable(command, "--custom-ops", custom_ops, "library of custom operators");
  command.add_option("--fallback", fallback,
                     "allow | warn | forbid: a node that no listed provider takes");
  add_repeatable(
      command, "--place", placement,
      "PATTERN=PROVIDER: node name with '*', op:NAME, domain:NAME, between:VALUE..VALUE");
}

void Selection::add_precision_to(CLI::App& command) {
  command.add_option("--precision", precision, "fp32 | tf32 | fp16 | bf16");
}

void Selection::add_dims_to(CLI::App& command) {
  add_repeatable(command, "--dim", dims, "NAME=N: the size of a symbolic dimension");
}

std::vector<std::pair<std::string, std::string>> Selection::named_providers() const {
  std::vector<std::pair<std::string, std::string>> named;
  std::set<std::string> optional;  // need not be there, and then nor what is said of them
  const auto add = [&](const std::string& option, const std::string& device) {
    const std::string name = device.substr(0, device.find(':'));
    if (!name.empty() && name.back() == '?') {
      optional.insert(name.substr(0, name.size() - 1));
    } else if (!name.empty() && name != "auto" && optional.count(name) == 0) {
      named.emplace_back(option, name);
    }
  };
  std::istringstream list(providers.value_or(""));
  for (std::string device; std::getline(list, device, ',');) {
    device.erase(std::remove(device.begin(), device.end(), ' '), device.end());
    add("--providers", device);
  }
  for (const std::string& rule : placement) add("--place", rule.substr(rule.rfind('=') + 1));
  const std::string prefix = "provider.";
  for (const std::string& setting : settings) {
    if (setting.rfind(prefix, 0) != 0) continue;
    add("--set", setting.substr(prefix.size(), setting.find('.', prefix.size()) - prefix.size()));
  }
  return named;
}

Options Selection::options(const std::vector<std::pair<std::string, std::string>>& defaults) const {
  Options options;
  for (const auto& [key, value] : defaults) options.set(key, value);
  if (config) {
    ::unsetenv("BACKPLANE_CONFIG");  // --config stands in its place
    from_option("--config", [&] { options.read_file(*config); });
  }
  options.read_environment();

  GivenOnce keys("--set");
  for (const std::string& setting : settings) {
    const auto [key, value] = split_pair(setting, setting.find('='), "--set", "KEY=VALUE");
    keys.add(key);
    from_option("--set", [&, key = key, value = value] { options.set(key, value); });
  }
  const auto set = [&](const char* option, const char* key,
                       const std::optional<std::string>& value) {
    if (value) from_option(option, [&] { options.set(key, *value); });
  };
  set("--providers", "providers", providers);
  set("--precision", "precision", precision);
  set("--fallback", "fallback", fallback);
  set("--threads", "environment.threads", threads);
  set("--threads", "threads", threads);
  if (!plugin_path.empty()) {
    from_option("--plugin-path",
                [&] { options.set("environment.plugin_path", joined_folders(plugin_path)); });
  }
  if (!custom_ops.empty()) options.set("custom_ops", "");
  for (const std::string& library : custom_ops) {
    from_option("--custom-ops", [&] { options.RegisterCustomOpsLibrary(library); });
  }
  if (!placement.empty()) options.set("place", "");
  GivenOnce patterns("--place");
  for (const std::string& rule : placement) {
    const auto [pattern, provider] =
        split_pair(rule, rule.rfind('='), "--place", "PATTERN=PROVIDER");
    patterns.add(pattern);
    from_option("--place", [&, pattern = pattern, provider = provider] {
      options.add_placement(pattern, provider);
    });
  }
  GivenOnce symbols("--dim");
  for (const std::string& dim : dims) {
    const auto [name, size] = split_pair(dim, dim.rfind('='), "--dim", "NAME=N");
    symbols.add(name);
    from_option("--dim", [&, name = name, size = size] { options.set("dim." + name, size); });
  }
  return options;
}

}  // namespace backplane::cli
