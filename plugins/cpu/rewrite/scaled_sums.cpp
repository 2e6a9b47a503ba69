#include "plugins/cpu/rewrite/scaled_sums.hpp"

namespace backplane::cpu {

bool is_single(const WorkingGraph& graph, const std::string& value) {
  const sdk::ValueInfo info = graph.info(value);
  if (!info || info.rank() < 0 || info.rank() > 1) return false;
  return info.rank() == 0 || info.dims()[0] == 1;
}

bool ScaledSums::match(const WorkingGraph& graph, const std::string& sums,
                       const IsScale& is_scale) {
  cast = graph.only_consumer(sums);
  if (cast == nullptr || cast->changed || !cast->is("Cast") || !graph.is_float(cast->outputs[0]))
    return false;
  const std::string& floats = cast->outputs[0];
  product = graph.only_consumer(floats);
  if (product == nullptr || product->changed || !product->is("Mul")) return false;
  const std::string& scale = product->input(product->input(0) == floats ? 1 : 0);
  return scale != floats &&
         (match_scales(graph, scale, is_scale) || match_scale(graph, scale, is_scale));
}

void ScaledSums::take(WorkingGraph& graph, WorkNode* node) const {
  const std::string result = product->outputs[0];
  graph.absorb(node, cast);
  graph.absorb(node, product);
  if (scales != nullptr) graph.remove(scales, node);
  graph.set_output(node, 0, result);
}

bool ScaledSums::match_scales(const WorkingGraph& graph, const std::string& scale,
                              const IsScale& is_scale) {
  WorkNode* both = graph.producer(scale);
  if (both == nullptr || both->changed || !both->is("Mul") || graph.only_consumer(scale) != product)
    return false;
  for (std::size_t i = 0; i < 2; ++i) {
    a_scale = both->input(i);
    b_scale = both->input(1 - i);
    if (!is_single(graph, a_scale) || !is_scale(b_scale)) continue;
    scales = both;
    return true;
  }
  return false;
}

bool ScaledSums::match_scale(const WorkingGraph& graph, const std::string& scale,
                             const IsScale& is_scale) {
  const bool single = is_single(graph, scale);
  a_scale = single ? scale : "";
  b_scale = single ? "" : scale;
  return is_scale(scale);
}

}  // namespace backplane::cpu
