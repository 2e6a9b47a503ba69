// Where a session's nodes went and why, in C++: a part of backplane.hpp, which is the file to include.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backplane/backplane.h"
#include "backplane/host/value.hpp"

namespace backplane {

/// Why a provider did not get a node, or a remark ("note") of the one that did; the codes stand in host/explanation.h.
struct Reason {
  std::string provider, code, text;
};

/// A node of the model as it was read.
struct ExplainedNode {
  std::string name, op_type, domain;
  std::string provider;    ///< "host": the core evaluates it by itself; "": it is gone
  std::string kernel;      ///< or what became of it
  std::string fused_into;  ///< the node that it is computed with; "" for none
  std::vector<Reason> reasons;
};

/// A copy that each run makes between memories: "host", or a device's.
struct ExplainedCopy {
  std::string value, from, to, cause, route;
  std::uint64_t bytes = 0;
};

/// What Session::explain tells, but for what the model says of itself.
struct Explanation {
  std::vector<ExplainedNode> nodes;  ///< in the model's order
  std::vector<ExplainedCopy> copies;
  std::map<std::string, std::uint64_t> arena_bytes;  ///< by memory

  /// How many nodes each provider computes in a run; those that the core evaluates by itself do not count.
  std::map<std::string, std::size_t> nodes_on() const {
    std::map<std::string, std::size_t> counts;
    for (const ExplainedNode& node : nodes) {
      if (!node.provider.empty() && node.provider != "host") ++counts[node.provider];
    }
    return counts;
  }
};

namespace detail {

inline Explanation explanation_of(backplane_session* session) {
  backplane_explanation* made = nullptr;
  check(backplane_session_explanation(session, &made));
  const std::unique_ptr<backplane_explanation,
                        Deleter<backplane_explanation, backplane_explanation_destroy>>
      from(made);
  Explanation to;
  for (std::size_t i = 0; i < backplane_explanation_node_count(made); ++i) {
    const backplane_explained_node& node = *backplane_explanation_node(made, i);
    to.nodes.push_back(
        {node.name, node.op_type, node.domain, node.provider, node.kernel, node.fused_into, {}});
    for (std::uint64_t k = 0; k < node.reason_count; ++k) {
      const backplane_reason& reason = node.reasons[k];
      to.nodes.back().reasons.push_back({reason.provider, reason.code, reason.text});
    }
  }
  for (std::size_t i = 0; i < backplane_explanation_copy_count(made); ++i) {
    const backplane_explained_copy& copy = *backplane_explanation_copy(made, i);
    to.copies.push_back({copy.value, copy.from, copy.to, copy.cause, copy.route, copy.bytes});
  }
  for (std::size_t i = 0; i < backplane_explanation_memory_count(made); ++i) {
    const backplane_explained_memory& arena = *backplane_explanation_memory(made, i);
    to.arena_bytes[arena.memory] = arena.bytes;
  }
  return to;
}

}  // namespace detail
}  // namespace backplane
