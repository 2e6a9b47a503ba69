// Options of providers: what users may say, checked before a provider sees it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/plugin_api.h"

namespace backplane::core {

using OptionList = std::vector<std::pair<std::string, std::string>>;

/// What is wrong with a value for the option, as the rest of a sentence ("'0' is not in 1..64");
/// nullopt when it is right. An option of a type that this host does not know takes every value.
std::optional<std::string> wrong_value(const bp_option& option, std::string_view value);

/// What is wrong with the option's own range, as the rest of a sentence; nullopt when it is right.
std::optional<std::string> wrong_range(const bp_option& option);

/// Every option of the provider in its order, with the value that was given last, or the default.
/// Throws InvalidArgument naming the option: unknown (with the nearest known one), or a wrong value.
OptionList complete_options(const bp_provider& provider, const OptionList& given);

}  // namespace backplane::core
