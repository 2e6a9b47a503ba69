// Trees of element-wise nodes whose inner values nobody else reads become one node, whose kernel is written
// for it.
#include "plugins/common/device_ops/rewrite/chain.hpp"

namespace backplane::device_ops {
namespace {

void add_node(const Chain& chain, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), "FusedPointwise");
  draft.name(std::string(chain.root().name()));
  chain.add_to(draft, edit);
  draft.output(std::string(chain.root().output(0).name()));
  draft.add();
}

}  // namespace

void fuse_chains(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  // From the end, so that the node that is met first is the root of its tree.
  for (std::size_t i = graph.node_count(); i-- > 0;) {
    const sdk::Node node = graph.node(i);
    if (taken.count(node.raw()) > 0 || !is_elementwise(node)) continue;
    const Chain chain(node, taken);
    if (!chain.is_more_than_root()) continue;
    for (const sdk::Node& each : chain.nodes()) taken.insert(each.raw());
    add_node(chain, edit);
  }
}

}  // namespace backplane::device_ops
