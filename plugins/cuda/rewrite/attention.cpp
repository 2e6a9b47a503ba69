#include "plugins/cuda/rewrite/attention.hpp"

#include "plugins/common/device_ops/fused_attention.hpp"

namespace backplane::cuda {

void fuse_attention(const Device& device, const sdk::Graph& graph, device_ops::NodeSet& taken,
                    sdk::Rewrite& edit) {
  const PrecisionRules& precision = device.settings().precision;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    const patterns::DecomposedAttention found = patterns::find_attention(node, taken);
    if (!found.softmax) continue;
    std::string why = device_ops::attention_refusal(found);
    if (why.empty() && precision.of(found.product) != precision.of(found.scores))
      why = "its products are of different precisions";
    if (!why.empty()) {
      edit.note(node, "not computed as an attention: " + why);
      continue;
    }
    for (const sdk::Node& each : found.nodes) taken.insert(each.raw());
    device_ops::fused_attention(found, edit)
        .attribute("origin", std::string(found.scores.name()))
        .attribute("precision", std::string(precision_name(precision.of(found.scores))))
        .add();
  }
}

}  // namespace backplane::cuda
