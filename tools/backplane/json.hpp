// JSON as commands print it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace backplane::cli {

using Json = nlohmann::ordered_json;

/// One value and a line break. Names come from strangers: bytes that are no UTF-8 are replaced; numbers that are not
/// finite are null.
inline std::string dump(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace backplane::cli
