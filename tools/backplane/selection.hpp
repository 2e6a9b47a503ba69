// The options that all subcommands share: which providers, and how.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "backplane/backplane.hpp"

namespace backplane::cli {

/// Names that an option gave. A second time is an error: else one of the two would win, and nobody knew which.
class GivenOnce {
 public:
  explicit GivenOnce(const char* option) : option_(option) {}
  void add(const std::string& name);

 private:
  const char* option_;
  std::set<std::string> names_;
};

/// What the command line says of providers; values are checked by the host library.
struct Selection {
  std::optional<std::string> providers, precision, fallback, config, threads;
  std::vector<std::string> settings, plugin_path, custom_ops, placement, dims;

  /// Adds the options that every subcommand has.
  void add_to(CLI::App& command);
  void add_precision_to(CLI::App& command);
  void add_dims_to(CLI::App& command);

  /// Each option that names a provider, and the provider without its device; not those that are optional ("NAME?").
  std::vector<std::pair<std::string, std::string>> named_providers() const;

  /// Default, file, environment, command line: later ones replace earlier ones. `defaults` come first.
  Options options(const std::vector<std::pair<std::string, std::string>>& defaults = {}) const;
};

/// An option that takes one value each time it is given.
void add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                    const std::string& doc);

}  // namespace backplane::cli
