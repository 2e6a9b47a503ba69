// What sessions say of themselves, read: explanations and reports of memory, which are JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/host.hpp"

namespace backplane::ops_test {

struct Explained {
  std::string text;  ///< the explanation
  /// Nodes whose work another one does, in the model's order, by that one's name.
  std::map<std::string, std::vector<std::string>> fused;
  std::map<std::string, std::string> said;  ///< by node: reasons and notes, a line each
  std::vector<std::string> remarks;         ///< edits that were refused
  std::size_t steps = 0;  ///< of the plan that ran last: nodes that compute, which views do not
  std::int64_t device_weight_bytes =
      0;  ///< of constants that are not used where the model has them
};

Explained explained(const Session& session);

}  // namespace backplane::ops_test
