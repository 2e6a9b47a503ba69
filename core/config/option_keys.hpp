// What is known of each key: inside of core/config, and for its tests.
#pragma once

#include <string>
#include <vector>

#include "core/config/options.hpp"

namespace backplane::core {

/// A key with a fixed name. `separator` is 0 for one that takes a single value; then `apply` gets exactly one.
struct KeyRow {
  OptionKey key;
  char separator = 0;
  bool is_path =
      false;  ///< relative ones in a file are taken from its folder; a model may not set it
  void (*apply)(Options& options, const std::string& name, const std::vector<std::string>& values);
  std::vector<std::string> words = {};  ///< that are no path
};

const std::vector<KeyRow>& key_rows();

/// Keys that share a prefix, which ends with '.': "dim.NAME".
struct KeyFamily {
  OptionKey key;
  std::string prefix;
  /// What separates values, 0 for a key that takes a single one; then `apply` gets exactly one.
  char (*separator_of)(const std::string& name);
  void (*apply)(Options& options, const std::string& name, const std::vector<std::string>& values);
};

const std::vector<KeyFamily>& key_families();

/// "PATTERN=PROVIDER"; throws InvalidArgument naming the rule.
PlacementRule parse_placement_rule(const std::string& rule);
/// Throws InvalidArgument for a pattern of no known form, or what cannot be a provider's name.
void check_placement_rule(const PlacementRule& rule);

}  // namespace backplane::core
