#include "core/config/options.hpp"

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_keys.hpp"
#include "core/config/option_values.hpp"

namespace backplane::core {
namespace {

const KeyRow* find_row(const std::string& name) {
  for (const KeyRow& row : key_rows()) {
    if (row.key.key == name) return &row;
  }
  return nullptr;
}

bool starts_with(const std::string& word, const std::string& prefix) {
  return word.compare(0, prefix.size(), prefix) == 0;
}

[[noreturn]] void unknown_key(const std::string& name) {
  std::vector<std::string> known;
  for (const KeyRow& row : key_rows()) known.push_back(row.key.key);
  // "provder.name.option" is far from every key, its first part is not.
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos) {
    for (const std::string& family :
         nearest_names(name.substr(0, dot), {"provider", "dim", "environment"}, 1)) {
      known.push_back(family + name.substr(dot));
    }
  }
  std::string suggestion = did_you_mean(name, known);
  if (suggestion.empty()) {
    suggestion = "; known are";
    for (const KeyRow& row : key_rows()) suggestion += " " + row.key.key;
    suggestion += " provider.NAME.OPTION dim.NAME";
  }
  invalid("option ", core::quoted(name), " is not known", suggestion);
}

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

}  // namespace

void set_option(Options& options, const std::string& name, const OptionValue& value) {
  if (const KeyRow* row = find_row(name)) {
    std::vector<std::string> values;
    if (value.is_list) {
      if (row->separator == 0)
        invalid("option ", core::quoted(name), " takes one value, not a list");
      values = value.values;
    } else {
      values = row->separator == 0 ? value.values : split(value.values.at(0), row->separator);
    }
    if (row->is_path && !value.folder.empty()) {
      for (std::string& path : values) {
        if (!path.empty()) path = (value.folder / path).lexically_normal().string();
      }
    }
    row->apply(options, name, values);
    return;
  }
  const bool is_dim = starts_with(name, "dim.") && name.size() > 4;
  const bool is_provider = starts_with(name, "provider.");
  if (!is_dim && !is_provider) unknown_key(name);
  if (value.is_list) invalid("option ", core::quoted(name), " takes one value, not a list");
  if (is_dim) {
    set_dim(options.session, name.substr(4), value.values.at(0));
  } else {
    set_provider_option(options.session, name, value.values.at(0));
  }
}

void Options::set(const std::string& key, const std::string& value) {
  set_option(*this, key, {{value}, false, {}});
}

const std::vector<OptionKey>& option_keys() {
  static const std::vector<OptionKey> kKeys = [] {
    std::vector<OptionKey> keys;
    for (const KeyRow& row : key_rows()) keys.push_back(row.key);
    keys.push_back(
        {"provider.NAME.OPTION", "an option of a provider", "", "as the provider documents it"});
    keys.push_back({"dim.NAME", "the size of a symbolic dimension", "", "0 or more"});
    return keys;
  }();
  return kKeys;
}

}  // namespace backplane::core
