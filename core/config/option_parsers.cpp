#include "core/config/option_parsers.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {

void wrong_value(const std::string& key, const std::string& value, const std::string& expected) {
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

std::uint64_t byte_count(const std::string& key, const std::string& value) {
  const std::size_t digits = value.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : value.substr(digits);
  int shift = 0;
  if (unit == "KiB") shift = 10;
  if (unit == "MiB") shift = 20;
  if (unit == "GiB") shift = 30;
  if (digits == 0 || value.empty() || (shift == 0 && !unit.empty()))
    wrong_value(key, value, "a number of bytes, alone or with KiB, MiB or GiB");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::uint64_t>(number(key, value.substr(0, digits), 0, kMost >> shift))
         << shift;
}

bool truth(const std::string& key, const std::string& value) {
  if (value == "true") return true;
  if (value == "false") return false;
  wrong_value(key, value, "true or false");
}

/// The index of `value` among `known`.
std::size_t choice(const std::string& key, const std::string& value,
                   const std::vector<std::string>& known) {
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
  static const std::set<std::string> kWords = {"fastest", "least_power", "most_memory", "all"};
  bool fits = end > 0;
  if (fits && end < name.size()) {
    const std::string device = name.substr(end + 1);
    const bool is_index = !device.empty() && device.size() <= 4 &&
                          device.find_first_not_of("0123456789") == std::string::npos;
    const bool is_name = device.size() > 5 && device.starts_with("name=");
    fits = name[end] == ':' && (is_index || is_name || kWords.contains(device));
  }
  if (!fits) {
    wrong_value(
        key, name,
        "a provider's name, such as \"name\", \"name:1\", \"name:fastest\" (or "
        "least_power, most_memory, all) or \"name:name=PATTERN\"; in a list a '?' behind the "
        "name makes it optional, \"name?\" or \"name?:1\"");
  }
  return {name, {}};
}

void take_optional_mark(ProviderChoice& choice) {
  const std::size_t mark = choice.name.find_first_of("?:");
  if (mark == std::string::npos || choice.name[mark] != '?') return;
  choice.name.erase(mark, 1);
  choice.optional = true;
}

std::string written(const ProviderChoice& choice) {
  std::string name = choice.name;
  if (choice.optional) name.insert(std::min(name.find(':'), name.size()), "?");
  return name;
}

std::vector<ProviderChoice> provider_choices(const std::string& key,
                                             const std::vector<std::string>& names) {
  std::vector<ProviderChoice> chosen;
  for (const std::string& name : names) {
    if (name == "auto" && names.size() == 1) break;
    ProviderChoice unmarked{name, {}};
    take_optional_mark(unmarked);
    ProviderChoice provider = provider_choice(key, unmarked.name);
    provider.optional = unmarked.optional;
    for (const ProviderChoice& earlier : chosen) {
      if (earlier.name == provider.name)
        invalid("option ", core::quoted(key), " names ", core::quoted(name), " twice");
    }
    chosen.push_back(std::move(provider));
  }
  return chosen;
}

std::vector<std::filesystem::path> paths(const std::string& key,
                                         const std::vector<std::string>& values) {
  std::vector<std::filesystem::path> result;
  for (const std::string& value : values) {
    if (value.empty()) invalid("option ", core::quoted(key), " holds an empty path");
    result.emplace_back(value);
  }
  return result;
}

std::vector<std::string> split(const std::string& value, char separator) {
  std::vector<std::string> parts;
  if (value.empty()) return parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = value.find(separator, begin);
    std::string part = value.substr(begin, end == std::string::npos ? end : end - begin);
    const std::size_t first = part.find_first_not_of(" \t");
    part = first == std::string::npos
               ? ""
               : part.substr(first, part.find_last_not_of(" \t") - first + 1);
    parts.push_back(std::move(part));
    if (end == std::string::npos) break;
  }
  return parts;
}

std::string join(const std::vector<std::string>& values, const char* separator) {
  std::string joined;
  for (const std::string& value : values) joined += (joined.empty() ? "" : separator) + value;
  return joined;
}

}  // namespace backplane::core
