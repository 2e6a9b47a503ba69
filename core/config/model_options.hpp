// Session options that a model brings in its metadata.
#pragma once

#include <map>
#include <string>

#include "core/config/options.hpp"

namespace backplane::core {

/// The options among a model's metadata: of each entry "backplane.option.KEY" its KEY and value.
std::map<std::string, std::string> options_in(const std::map<std::string, std::string>& metadata);

/// `asked` with the model's options; what was asked for explicitly stays. Throws InvalidArgument for a key or value that
/// nobody knows, and for keys that a model may not set: those that name files, plugins or an option of a provider.
SessionOptions with_model_options(const SessionOptions& asked,
                                  const std::map<std::string, std::string>& from_model);

}  // namespace backplane::core
