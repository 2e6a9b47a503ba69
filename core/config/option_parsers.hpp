// How values are read: inside of core/config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config/options.hpp"

namespace backplane::core {

/// Throws InvalidArgument: "option 'key': 'value' is not <expected>".
[[noreturn]] void wrong_value(const std::string& key, const std::string& value,
                              const std::string& expected);
/// An integer from `least` to `most`.
std::int64_t number(const std::string& key, const std::string& value, std::int64_t least,
                    std::int64_t most);
/// Bytes: a number, alone or with KiB, MiB or GiB behind it.
std::uint64_t byte_count(const std::string& key, const std::string& value);
/// "true" or "false".
bool truth(const std::string& key, const std::string& value);
/// The index of `value` among `known`.
std::size_t choice(const std::string& key, const std::string& value,
                   const std::vector<std::string>& known);
/// "name" or "name:1".
ProviderChoice provider_choice(const std::string& key, const std::string& name);
/// Takes the '?' behind the provider's name out of a choice's: it is optional then.
void take_optional_mark(ProviderChoice& choice);
/// The name as it is written, with the mark.
std::string written(const ProviderChoice& choice);
/// Several of them, each once, with or without that mark; "auto" alone is none.
std::vector<ProviderChoice> provider_choices(const std::string& key,
                                             const std::vector<std::string>& names);
std::vector<std::filesystem::path> paths(const std::string& key,
                                         const std::vector<std::string>& values);
/// Text between separators, without the blanks around it; "" is none.
std::vector<std::string> split(const std::string& value, char separator);
/// The inverse, for showing.
std::string join(const std::vector<std::string>& values, const char* separator);

inline constexpr std::int64_t kMaxThreads = 1024;

}  // namespace backplane::core
