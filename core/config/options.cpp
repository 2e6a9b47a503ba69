#include "core/config/options.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_keys.hpp"
#include "core/config/option_parsers.hpp"
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
  bool is_ours = false;  // the first part is, what follows it is not
  if (dot != std::string::npos) {
    std::vector<std::string> first_parts = {"environment"};
    for (const KeyFamily& family : key_families()) {
      first_parts.push_back(family.prefix.substr(0, family.prefix.size() - 1));
      if (name == family.prefix) known = {family.key.key};
    }
    const std::string first = name.substr(0, dot);
    is_ours = std::find(first_parts.begin(), first_parts.end(), first) != first_parts.end();
    if (!is_ours) {
      for (const std::string& part : nearest_names(first, first_parts, 1))
        known.push_back(part + name.substr(dot));
    }
  }
  std::string suggestion = did_you_mean(name, known);
  if (suggestion.empty() && !is_ours && dot != 0 && dot != std::string::npos &&
      dot + 1 < name.size())
    suggestion = text("; an option of a provider '", name.substr(0, dot), "' is set as ",
                      core::quoted("provider." + name));
  if (suggestion.empty()) {
    suggestion = "; known are";
    for (const KeyRow& row : key_rows()) suggestion += " " + row.key.key;
    for (const KeyFamily& family : key_families()) suggestion += " " + family.key.key;
  }
  invalid("option ", core::quoted(name), " is not known", suggestion,
          suggestion.find("entry.") != std::string::npos
              ? ""
              : "; what no option knows is kept under 'entry.'");
}

const KeyFamily* find_family(const std::string& name) {
  for (const KeyFamily& family : key_families()) {
    if (starts_with(name, family.prefix) && name.size() > family.prefix.size()) return &family;
  }
  return nullptr;
}

/// The values as a key takes them, `separator` being 0 for a key of one value.
std::vector<std::string> values_of(const std::string& name, const OptionValue& value,
                                   char separator) {
  if (separator != 0) return value.is_list ? value.values : split(value.values.at(0), separator);
  if (value.is_list) invalid("option ", core::quoted(name), " takes one value, not a list");
  return value.values;
}

void remember(Options& options, const std::string& name, const std::vector<std::string>& values,
              char separator) {
  const char text[] = {separator, '\0'};
  auto& given =
      starts_with(name, "environment.") ? options.environment.given : options.session.given;
  given[name] = join(values, text);
}

}  // namespace

void set_option(Options& options, const std::string& name, const OptionValue& value) {
  if (const KeyRow* row = find_row(name)) {
    std::vector<std::string> values = values_of(name, value, row->separator);
    if (row->is_path && !value.folder.empty()) {
      for (std::string& path : values) {
        const bool is_word =
            std::find(row->words.begin(), row->words.end(), path) != row->words.end();
        if (!path.empty() && !is_word) path = (value.folder / path).lexically_normal().string();
      }
    }
    row->apply(options, name, values);
    remember(options, name, values, row->separator);
    return;
  }
  const KeyFamily* family = find_family(name);
  if (family == nullptr) unknown_key(name);
  const char separator = family->separator_of(name);
  const std::vector<std::string> values = values_of(name, value, separator);
  family->apply(options, name, values);
  remember(options, name, values, separator);
}

void Options::set(const std::string& key, const std::string& value) {
  set_option(*this, key, {{value}, false, {}});
}

std::string Options::get(const std::string& key) const {
  for (const auto* given : {&session.given, &environment.given}) {
    if (const auto found = given->find(key); found != given->end()) return found->second;
  }
  if (const KeyRow* row = find_row(key)) return row->key.default_value;
  if (find_family(key) == nullptr) unknown_key(key);
  throw Error(Code::NotFound, text("option ", core::quoted(key), " is not set"));
}

void Options::append_provider(ProviderChoice choice) {
  std::vector<std::string> names;
  take_optional_mark(choice);
  session.providers.push_back(std::move(choice));
  for (const ProviderChoice& provider : session.providers) names.push_back(written(provider));
  session.given["providers"] = join(names, ",");
}

void Options::add_custom_ops(const std::filesystem::path& file) {
  if (file.empty()) invalid("a library of custom operators needs a path");
  std::vector<std::string> files;
  session.custom_ops.push_back(file);
  for (const std::filesystem::path& path : session.custom_ops) files.push_back(path.string());
  session.given["custom_ops"] = join(files, ":");
}

void Options::add_placement(PlacementRule rule) {
  std::vector<std::string> rules;
  session.placement.push_back(std::move(rule));
  for (const PlacementRule& one : session.placement)
    rules.push_back(one.pattern + "=" + one.provider);
  session.given["place"] = join(rules, ";");
}

const std::vector<OptionKey>& option_keys() {
  static const std::vector<OptionKey> kKeys = [] {
    std::vector<OptionKey> keys;
    for (const KeyRow& row : key_rows()) keys.push_back(row.key);
    for (const KeyFamily& family : key_families()) keys.push_back(family.key);
    return keys;
  }();
  return kKeys;
}

}  // namespace backplane::core
