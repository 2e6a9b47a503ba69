#include "core/config/model_options.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_keys.hpp"

namespace backplane::core {
namespace {

constexpr char kPrefix[] = "backplane.option.";

/// Models come from strangers: they must not make a session read, write or load files.
bool may_be_set(const std::string& key) {
  if (key.rfind("environment.", 0) == 0 || key.rfind("provider.", 0) == 0) return false;
  if (key == "options_from_model") return false;
  const std::vector<KeyRow>& rows = key_rows();
  return std::none_of(rows.begin(), rows.end(),
                      [&](const KeyRow& row) { return row.key.key == key && row.is_path; });
}

}  // namespace

std::map<std::string, std::string> options_in(const std::map<std::string, std::string>& metadata) {
  std::map<std::string, std::string> options;
  for (const auto& [key, value] : metadata) {
    if (key.rfind(kPrefix, 0) == 0) options[key.substr(sizeof(kPrefix) - 1)] = value;
  }
  return options;
}

SessionOptions with_model_options(const SessionOptions& asked,
                                  const std::map<std::string, std::string>& from_model) {
  Options options;
  options.session = asked;
  for (const auto& [key, value] : from_model) {
    if (!may_be_set(key)) {
      invalid("the model's metadata set the option ", quoted(key),
              ", which a model may not; set options_from_model to false");
    }
    if (asked.given.contains(key)) continue;
    try {
      options.set(key, value);
    } catch (const Error& error) {
      throw error.within("the model's metadata");
    }
  }
  return options.session;
}

}  // namespace backplane::core
