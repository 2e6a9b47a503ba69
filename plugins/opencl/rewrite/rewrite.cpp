#include "plugins/opencl/rewrite/rewrite.hpp"

#include "plugins/opencl/rewrite/passes.hpp"

namespace backplane::opencl {

void rewrite(const Device& device, const sdk::Graph& graph, sdk::Rewrite& edit) {
  if (!device.settings().fusion) return;
  NodeSet taken;
  fuse_attention(graph, taken, edit);
  fuse_products(graph, taken, edit);
  device_ops::take_parts(graph, taken, edit);
  device_ops::fuse_rotations(graph, taken, edit);
  device_ops::fuse_rows(device, graph, taken, edit);
  device_ops::fuse_chains(graph, taken, edit);
}

}  // namespace backplane::opencl
