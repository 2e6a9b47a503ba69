#include "plugins/cpu/rewrite/rewrite.hpp"

#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {

void rewrite_graph(const sdk::Graph& graph, sdk::Rewrite& edit, const CpuDevice& device) {
  WorkingGraph work(graph, edit);
  fuse_quantized(work);
  keep_narrow_weights(work);
  keep_half_weights(work);
  keep_half_caches(work);
  fuse_decomposed(work);
  fuse_dynamic_quantization(work);
  fuse_convolutions(work);
  fuse_attention(work);
  fuse_products(work);
  fuse_gates(work);
  lay_out_channels_last(work);
  hold_weights_in_halves(work, device.isa());
  leave_out_subnormal_weights(work);
  work.emit();
}

}  // namespace backplane::cpu
