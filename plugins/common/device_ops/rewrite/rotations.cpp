// Halves of rows that are turned by angles become one node, FusedRotation. So does the Transpose that makes them, where nobody
// else reads that. The node broadcasts its operands in each run anew, which comes to what the nodes' broadcasting
// comes to whatever the dims are: only the last axes have to be known.
#include "plugins/common/device_ops/rewrite/chain.hpp"
#include "plugins/common/patterns/rotation.hpp"

namespace backplane::device_ops {

void fuse_rotations(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    patterns::DecomposedRotation found = patterns::find_rotation(node, taken);
    if (!found.x || !is_chained(node.output(0).type())) continue;
    sdk::NodeDraft draft = edit.node(private_domain(), "FusedRotation");
    if (found.transpose) {
      draft.attribute("perm", found.transpose.get_ints("perm"));
      found.x = found.transpose.input(0);
      found.nodes.insert(found.nodes.begin(), found.transpose);
    }
    draft.name(std::string(node.name()));
    draft.input(found.x.name()).input(found.cos.name()).input(found.sin.name());
    draft.output(node.output(0).name());
    draft.attribute("type", static_cast<std::int64_t>(node.output(0).type()));
    for (const sdk::Node& each : found.nodes) {
      draft.replaces(each);
      taken.insert(each.raw());
    }
    draft.add();
  }
}

}  // namespace backplane::device_ops
