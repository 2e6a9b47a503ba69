// What a node should compute, by somebody other than the kernel that is checked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/backplane/check/bare_kernel.hpp"

namespace backplane::cli::check {

/// By formulas of the suite's own, in double precision; nothing where it has none.
std::optional<std::vector<Tensor>> compute_in_double(const NodeCase& node);

/// By the CPU provider, in a session of the host library.
class CpuReference {
 public:
  /// What the node's outputs are; nothing where the CPU provider does not take it.
  std::optional<std::vector<Tensor>> compute(const NodeCase& node);

 private:
  std::unique_ptr<Environment> environment_;
};

/// A graph of the host library with this node: inputs in_0, in_1 ..., outputs out_0 ...
void add_to(Graph& graph, const NodeCase& node);
/// Values for its inputs, by name.
std::vector<std::pair<std::string, Value>> feeds_of(const NodeCase& node);
Feeds views_of(const std::vector<std::pair<std::string, Value>>& feeds);

}  // namespace backplane::cli::check
