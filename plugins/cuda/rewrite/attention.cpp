#include "plugins/cuda/rewrite/attention.hpp"

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/common/patterns/attention.hpp"

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using patterns::DecomposedAttention;
using patterns::SeenHeads;
using sdk::DataType;

/// Why it stays nodes apart; empty where it does not. Dims may be unknown: what they are is looked at in a run.
std::string refusal_of(const Device& device, const DecomposedAttention& found) {
  if (!found.why.empty()) return found.why;
  const DataType type = found.q.value.type();
  if (type != DataType::Float && type != DataType::Float16 && type != DataType::BFloat16)
    return sdk::message("it is of ", sdk::type_name(type));
  for (const sdk::ValueInfo& value : {found.k.value, found.v.value}) {
    if (value.type() != type) return "its operands are of other kinds";
  }
  if (found.softmax.output(0).rank() != 4) return "it is of three axes";
  if (found.chosen) return "its scores are chosen by a mask of bools";
  if (found.softcap != 0) return "its scores have a softcap";
  const auto heads_of = [](const SeenHeads& operand) {
    return operand.value.dims()[operand.axes == "bhs" ? 1 : 2];
  };
  if (found.k.group > 1 && heads_of(found.q) != found.k.group * heads_of(found.k))
    return "its heads are not known to be those that are repeated";
  if (found.mask && found.mask.type() != type) return "its mask is of another kind";
  const PrecisionRules& precision = device.settings().precision;
  return precision.of(found.product) == precision.of(found.scores)
             ? ""
             : "its products are of different precisions";
}

void add_node(const Device& device, const DecomposedAttention& found, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(), "FusedAttention");
  draft.name(std::string(found.softmax.name()));
  draft.input(found.q.value.name()).input(found.k.value.name()).input(found.v.value.name());
  if (found.mask) draft.input(found.mask.name());
  draft.output(found.y.value.name()).attribute("origin", std::string(found.scores.name()));
  draft.attribute("axes", found.q.axes + found.k.axes + found.v.axes + found.y.axes);
  draft.attribute("scale", found.scale);
  if (found.k.group > 1) draft.attribute("group", found.k.group);
  if (found.is_nan_zero) draft.attribute("is_nan_zero", std::int64_t{1});
  const Precision precision = device.settings().precision.of(found.scores);
  draft.attribute("precision", std::string(precision_name(precision)));
  // First the product whose precision is that of all.
  draft.replaces(found.scores);
  for (const sdk::Node& each : found.nodes) {
    if (each != found.scores) draft.replaces(each);
  }
  draft.add();
}

}  // namespace

void fuse_attention(const Device& device, const sdk::Graph& graph, NodeSet& taken,
                    sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    const DecomposedAttention found = patterns::find_attention(node, taken);
    if (!found.softmax) continue;
    const std::string why = refusal_of(device, found);
    if (!why.empty()) {
      edit.note(node, "not computed as an attention: " + why);
      continue;
    }
    for (const sdk::Node& each : found.nodes) taken.insert(each.raw());
    add_node(device, found, edit);
  }
}

}  // namespace backplane::cuda
