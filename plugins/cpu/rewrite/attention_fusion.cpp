#include "plugins/common/patterns/attention.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

using patterns::HalfCaches;
using sdk::DataType;

/// Whether the kernel computes it: in float, of keys and values of one type, and of masks that have axes.
bool is_computed(const patterns::DecomposedAttention& found) {
  if (!found.softmax || !found.why.empty()) return false;
  for (const sdk::ValueInfo& value : {found.q.value, found.y.value}) {
    if (value.type() != DataType::Float) return false;
  }
  const DataType cache = found.k.value.type();
  if (cache != DataType::Float && cache != DataType::Float16 && cache != DataType::BFloat16)
    return false;
  if (found.v.value.type() != cache) return false;
  return !found.mask || found.mask.rank() > 0;
}

void fuse(WorkingGraph& graph, const patterns::DecomposedAttention& found) {
  std::vector<std::string> inputs{found.q.value.name(), found.k.value.name(), found.v.value.name()};
  if (found.mask) inputs.emplace_back(found.mask.name());
  WorkNode* node = graph.merge(found.nodes, found.nodes.back(), "Attention", std::move(inputs));
  node->attributes["scale"] = found.scale;
  node->attributes["axes"] = found.q.axes + found.k.axes + found.v.axes + found.y.axes;
  node->attributes["softcap"] = found.softcap;
  node->attributes["group"] = found.k.group;
  node->attributes["chosen"] = std::int64_t{found.chosen.value_or(true)};
  node->attributes["otherwise"] = found.otherwise;
  if (found.is_nan_zero) node->attributes["is_nan_zero"] = std::int64_t{1};
}

}  // namespace

void fuse_attention(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    for (const HalfCaches caches : {HalfCaches::AreRead, HalfCaches::AreCast}) {
      const patterns::DecomposedAttention found =
          patterns::find_attention(node->original, graph.taken(), caches);
      if (!is_computed(found)) continue;
      fuse(graph, found);
      break;
    }
  }
}

}  // namespace backplane::cpu
