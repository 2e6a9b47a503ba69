// ONNX's own operator schemas, each made when it is first asked for: a model needs a few dozen of over 600.
#pragma once

#include <limits>
#include <onnx/defs/schema.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace backplane::core {

/// As a version: the newest that there is.
inline constexpr int kNewestVersion = std::numeric_limits<int>::max();

/// The newest schema up to `version` of an operator; null where there is none. `domain` is "" for ONNX's own. It stays
/// until the process ends.
/// Threads: any.
const ::onnx::OpSchema* standard_schema(const std::string& domain, const std::string& op_type,
                                        int version);
/// All versions of an operator, oldest first.
std::vector<const ::onnx::OpSchema*> standard_versions(const std::string& domain,
                                                       const std::string& op_type);

/// Domain and name of every operator.
std::set<std::pair<std::string, std::string>> standard_operators();

}  // namespace backplane::core
