// Values on their way to an option: inside of core/config.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/config/options.hpp"

namespace backplane::core {

/// A value as it was written: one text (lists in it are still to be split), or a list of a file.
struct OptionValue {
  std::vector<std::string> values;
  bool is_list = false;
  std::filesystem::path folder;  ///< where relative paths start; empty: they stay as they are
};

/// Options::set with all that a file can say.
void set_option(Options& options, const std::string& name, const OptionValue& value);

}  // namespace backplane::core
