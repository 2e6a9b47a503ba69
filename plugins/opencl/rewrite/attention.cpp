#include "plugins/common/device_ops/fused_attention.hpp"
#include "plugins/opencl/rewrite/passes.hpp"

namespace backplane::opencl {

void fuse_attention(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    const patterns::DecomposedAttention found = patterns::find_attention(node, taken);
    if (!found.softmax) continue;
    const std::string why = device_ops::attention_refusal(found);
    if (!why.empty()) {
      edit.note(node, "not computed as an attention: " + why);
      continue;
    }
    for (const sdk::Node& each : found.nodes) taken.insert(each.raw());
    device_ops::fused_attention(found, edit).add();
  }
}

}  // namespace backplane::opencl
