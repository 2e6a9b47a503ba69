// The versions of the operators' schemas: `since_version` of each, as onnx.defs lists them (ONNX 1.23).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace backplane::cli::check {

extern const std::map<std::string, std::vector<int>> kSchemaVersions;

}  // namespace backplane::cli::check
