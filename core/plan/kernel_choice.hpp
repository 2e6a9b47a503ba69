// Which kernels of a device take a node, and why the others do not.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"
#include "core/plan/kernel_handle.hpp"
#include "core/plan/session_device.hpp"

namespace backplane::core {

/// Why a provider did not get a node. Codes: "no_such_op", "opset", "type", "refused" (what the provider said),
/// "rule", "claim", "not_preferred".
struct Reason {
  std::string provider;
  std::string code;
  std::string text;
};

/// Looks up schemas once per operator and version.
/// Threads: one at a time.
class SchemaCache {
 public:
  explicit SchemaCache(const SchemaRegistry& registry) : registry_(registry) {}
  /// Null for an operator without a schema (a provider's private domain).
  const SchemaInfo* find(const Node& node);
  const SchemaRegistry& registry() const { return registry_; }

 private:
  const SchemaRegistry& registry_;
  std::map<std::tuple<std::string, std::string, int>, std::optional<SchemaInfo>> found_;
};

/// The kernels of a device that take the node, best first. `view_node` is the node as plugins see it, for `match`.
/// What does not take it is told in `reasons`.
std::vector<RegisteredKernel> matching_kernels(const SessionDevice& device, SchemaCache& schemas,
                                               const Graph& graph, const Node& node,
                                               const bp_node* view_node,
                                               std::vector<Reason>& reasons);

/// Calls `create`. Throws what the kernel returned, Unsupported meaning: try another one.
KernelHandle create_kernel(Device& device, const RegisteredKernel& kernel, const bp_node* node,
                           bp_threads* threads, std::uint64_t flags);

}  // namespace backplane::core
