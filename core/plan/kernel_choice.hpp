// Which kernels of a device take a node, and why the others do not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"
#include "core/plan/kernel_handle.hpp"
#include "core/plan/session_device.hpp"

namespace backplane::core {

/// Why a provider did not get a node. Codes: "no_such_op", "opset", "type", "refused" (what the provider said), "failed" (its match did),
/// "rule", "claim", "cheaper_elsewhere", "not_preferred", "memory" (its limit leaves no room), "cast" (it has the node, and
/// computes it in another type).
struct Reason {
  std::string provider;
  std::string code;
  std::string text;
};

/// The code of nodes whose `match` failed with what is no refusal: a mistake of the provider's.
inline constexpr char kFailedReason[] = "failed";

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
/// What does not take it is told in `reasons`; what the best one says that it costs goes to `best_cost`.
std::vector<RegisteredKernel> matching_kernels(const SessionDevice& device, SchemaCache& schemas,
                                               const Graph& graph, const Node& node,
                                               const bp_node* view_node,
                                               std::vector<Reason>& reasons,
                                               bp_cost* best_cost = nullptr);

/// Why a kernel does not implement the node's version or types, without asking it; nullopt when it does.
std::optional<std::string> broken_registration(const bp_kernel_def& def, SchemaCache& schemas,
                                               const Graph& graph, const Node& node);

/// What a kernel's `create` gets, with what the host needs to make operators for it.
struct CreateContext : bp_create_ctx {
  const DeviceSet* devices;
  int device_index;
  int depth;  ///< 0 for a node's kernel, one more for that of an operator which a kernel makes
};

/// A context for kernels of a device; a guest's lacks the device's handle.
CreateContext make_create_context(const DeviceSet& devices, int device, bool guest,
                                  bp_threads* threads, std::uint64_t flags);

/// Calls `create`. Throws what the kernel returned, Unsupported meaning: try another one.
KernelHandle create_kernel(const DeviceSet& devices, int device, const RegisteredKernel& kernel,
                           const bp_node* node, bp_threads* threads, std::uint64_t flags,
                           int depth = 0);

}  // namespace backplane::core
