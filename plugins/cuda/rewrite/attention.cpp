#include "plugins/cuda/rewrite/attention.hpp"

#include <array>
#include <vector>

#include "plugins/common/device_ops/rewrite/chain.hpp"

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using device_ops::number_of;
using device_ops::only_consumer;
using device_ops::only_producer;
using sdk::DataType;

/// An operand, its nodes seen through: where it comes from, and how its axes lie there.
struct SeenOperand {
  sdk::ValueInfo value;
  std::string axes = "bhs";
  std::int64_t group = 1;  ///< heads of queries that share one
};

/// The nodes of an attention around its Softmax.
struct FoundAttention {
  sdk::Node softmax, scores, product;
  std::vector<sdk::Node> replaced;
  SeenOperand q, k, v, y;
  sdk::ValueInfo mask;
  float scale = 1;
  bool is_nan_zero = false;  ///< weights that would be NaN are replaced
  Precision precision = Precision::kFp32;
  std::string why;  ///< it is none that could be fused
};

bool has_perm(const sdk::Node& node, const std::vector<std::int64_t>& perm) {
  return node && node.is("Transpose") && node.get_ints("perm") == perm;
}

/// Takes a product with, or a quotient by, one number: the value it is of, or `value`.
sdk::ValueInfo take_scale(const sdk::ValueInfo& value, const NodeSet& taken,
                          FoundAttention& found) {
  const sdk::Node node = only_producer(value, taken);
  if (!node || !(node.is("Mul") || node.is("Div"))) return value;
  float number = 0;
  std::size_t at = 1;
  if (!number_of(node.input(1), number)) {
    at = 0;
    if (node.is("Div") || !number_of(node.input(0), number)) return value;
  }
  // A constant of more axes than the value would add some.
  if (node.input(at).rank() > value.rank() || number == 0) return value;
  found.scale *= node.is("Mul") ? number : 1 / number;
  found.replaced.push_back(node);
  return node.input(1 - at);
}

/// The product of the scores, whose precision is that of all it takes over.
void take_first(const sdk::Node& product, FoundAttention& found) {
  found.scores = product;
  found.replaced.insert(found.replaced.begin(), product);
}

/// Scores are MatMul(q, k'), scaled, with a mask added.
bool take_scores(const NodeSet& taken, FoundAttention& found) {
  sdk::ValueInfo value = found.softmax.input(0);
  if (const sdk::Node add = only_producer(value, taken); add && add.is("Add")) {
    for (const std::size_t i : {0, 1}) {
      FoundAttention tried = found;
      const sdk::ValueInfo scores = take_scale(add.input(i), taken, tried);
      const sdk::Node product = only_producer(scores, taken);
      if (!product || !product.is("MatMul")) continue;
      found = tried;
      found.mask = add.input(1 - i);
      found.replaced.push_back(add);
      take_first(product, found);
      return true;
    }
    return false;
  }
  value = take_scale(value, taken, found);
  found.scores = only_producer(value, taken);
  if (!found.scores || !found.scores.is("MatMul")) return false;
  take_first(found.scores, found);
  return true;
}

/// [batch, heads, positions, width], seen through a transposition from [batch, positions, heads, width].
SeenOperand seen_rows(const sdk::ValueInfo& value, const NodeSet& taken, FoundAttention& found) {
  const sdk::Node node = only_producer(value, taken);
  if (!has_perm(node, {0, 2, 1, 3})) return {value, "bhs"};
  found.replaced.push_back(node);
  return {node.input(0), "bsh"};
}

/// Takes [batch, heads, copies, positions, width], which repeats heads side by side and becomes [batch, heads * copies, ...]: `axes` of
/// `after`, of the operand's own four.
bool take_copies(const sdk::ValueInfo& copies, const sdk::ValueInfo& after,
                 const std::array<int, 4>& axes, const NodeSet& taken, FoundAttention& found,
                 SeenOperand& operand) {
  const sdk::Node expand = only_producer(copies, taken);
  const sdk::Node split =
      expand && expand.is("Expand") ? only_producer(expand.input(0), taken) : sdk::Node();
  if (!split || !(split.is("Unsqueeze") || split.is("Reshape"))) return false;
  const sdk::ValueInfo before = split.input(0), apart = expand.input(0);
  if (before.rank() != 4 || apart.rank() != 5 || copies.rank() != 5 || after.rank() != 4 ||
      apart.dims()[2] != 1 || copies.dims()[2] <= 0 || before.dims()[1] <= 0 ||
      after.dims()[1] != before.dims()[1] * copies.dims()[2])
    return false;
  using device_ops::same_size;
  for (const int axis : {0, 1, 2, 3}) {
    const int spread = axis < 2 ? axis : axis + 1;
    if (!same_size(before, axis, apart, spread) || !same_size(before, axis, copies, spread) ||
        (axis != 1 && !same_size(before, axis, after, axes[static_cast<std::size_t>(axis)])))
      return false;
  }
  found.replaced.insert(found.replaced.end(), {split, expand});
  operand = seen_rows(before, taken, found);
  operand.group = copies.dims()[2];
  return true;
}

/// Rows of heads, seen through what repeats the heads.
SeenOperand seen_heads(const sdk::ValueInfo& value, const NodeSet& taken, FoundAttention& found) {
  const sdk::Node merge = only_producer(value, taken);
  SeenOperand operand;
  if (!merge || !merge.is("Reshape") ||
      !take_copies(merge.input(0), value, {0, 1, 2, 3}, taken, found, operand))
    return seen_rows(value, taken, found);
  found.replaced.push_back(merge);
  return operand;
}

/// Takes keys whose last two axes are changed over by way of three, as PyTorch's exporters write it: heads and batches as one.
bool take_flat_keys(const sdk::ValueInfo& keys, const NodeSet& taken, FoundAttention& found) {
  const sdk::Node last = only_producer(keys, taken);
  if (!last || !last.is("Reshape")) return false;
  const sdk::Node turn = only_producer(last.input(0), taken);
  if (!has_perm(turn, {0, 2, 1})) return false;
  const sdk::Node first = only_producer(turn.input(0), taken);
  if (!first || !first.is("Reshape")) return false;
  const sdk::ValueInfo from = first.input(0), flat = turn.input(0);
  using device_ops::same_size;
  if (flat.rank() != 3 || keys.rank() != 4 || !same_size(flat, 1, keys, 3) ||
      !same_size(flat, 2, keys, 2))
    return false;
  const bool is_transpose = from.rank() == 4 && same_size(keys, 0, from, 0) &&
                            same_size(keys, 1, from, 1) && same_size(keys, 2, from, 3) &&
                            same_size(keys, 3, from, 2);
  if (is_transpose) {
    found.k = seen_heads(take_scale(from, taken, found), taken, found);
  } else if (!take_copies(from, keys, {0, 1, 3, 2}, taken, found, found.k)) {
    return false;
  }
  found.replaced.insert(found.replaced.end(), {first, turn, last});
  return true;
}

void take_operands(const NodeSet& taken, FoundAttention& found) {
  found.q = seen_rows(take_scale(found.scores.input(0), taken, found), taken, found);
  found.v = seen_heads(found.product.input(1), taken, found);
  const sdk::ValueInfo keys = take_scale(found.scores.input(1), taken, found);
  const sdk::Node node = only_producer(keys, taken);
  if (has_perm(node, {0, 2, 3, 1})) {
    found.replaced.push_back(node);
    found.k = {node.input(0), "bsh"};
  } else if (has_perm(node, {0, 1, 3, 2})) {
    found.replaced.push_back(node);
    found.k = seen_heads(take_scale(node.input(0), taken, found), taken, found);
  } else if (!take_flat_keys(keys, taken, found)) {
    found.why = "its keys are not the transpose of rows that lie together";
  }
  if (found.k.group != found.v.group) found.why = "its keys and values are repeated differently";
}

/// The weights of the values: those of the Softmax, or of a Where after it that replaces NaN by 0.
sdk::ValueInfo take_weights(const NodeSet& taken, FoundAttention& found) {
  const sdk::ValueInfo weights = found.softmax.output(0);
  if (weights.is_output() || weights.consumer_count() != 2) return weights;
  for (const std::size_t i : {0, 1}) {
    const sdk::Node test = weights.consumer(i), choice = weights.consumer(1 - i);
    float number = 1;
    if (!test.is("IsNaN") || !choice.is("Where") || taken.count(choice.raw()) > 0 ||
        only_consumer(test.output(0), taken) != choice || choice.input(0) != test.output(0) ||
        choice.input(2) != weights || choice.input(1).rank() > weights.rank() ||
        !number_of(choice.input(1), number) || number != 0)
      continue;
    found.is_nan_zero = true;
    found.replaced.insert(found.replaced.end(), {test, choice});
    return choice.output(0);
  }
  return weights;
}

/// The nodes around a Softmax; empty softmax where they are not those of an attention.
FoundAttention find_attention(const sdk::Node& softmax, const NodeSet& taken) {
  FoundAttention found;
  const int rank = softmax.output(0).rank();
  const std::int64_t axis = softmax.get_int("axis", softmax.since_version() < 13 ? 1 : -1);
  if (rank != 4 || (axis != -1 && axis != rank - 1)) return found;
  found.softmax = softmax;
  const sdk::ValueInfo weights = take_weights(taken, found);
  found.product = only_consumer(weights, taken);
  if (!found.product || !found.product.is("MatMul") || found.product.input(0) != weights ||
      found.product.input(1) == weights || !take_scores(taken, found))
    return FoundAttention();
  found.replaced.insert(found.replaced.end(), {softmax, found.product});
  take_operands(taken, found);
  found.y.value = found.product.output(0);
  if (const sdk::Node next = only_consumer(found.y.value, taken); has_perm(next, {0, 2, 1, 3})) {
    found.y = {next.output(0), "bsh"};
    found.replaced.push_back(next);
  }
  return found;
}

/// Why it stays nodes apart; empty where it does not. Dims may be unknown: what they are is looked at in a run.
std::string refusal_of(const Device& device, FoundAttention& found) {
  if (!found.why.empty()) return found.why;
  const DataType type = found.q.value.type();
  if (type != DataType::Float && type != DataType::Float16 && type != DataType::BFloat16)
    return sdk::message("it is of ", sdk::type_name(type));
  for (const sdk::ValueInfo& value : {found.q.value, found.k.value, found.v.value}) {
    if (value.rank() != 4 || value.type() != type) return "its operands are of other kinds";
  }
  const auto heads_of = [](const SeenOperand& operand) {
    return operand.value.dims()[operand.axes == "bhs" ? 1 : 2];
  };
  if (found.k.group > 1 && heads_of(found.q) != found.k.group * heads_of(found.k))
    return "its heads are not known to be those that are repeated";
  if (found.mask && (found.mask.rank() < 0 || found.mask.rank() > 4 || found.mask.type() != type))
    return "its mask is of another kind";
  found.precision = device.settings().precision.of(found.scores);
  if (device.settings().precision.of(found.product) != found.precision)
    return "its products are of different precisions";
  return "";
}

void add_node(const FoundAttention& found, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(), "FusedAttention");
  draft.name(std::string(found.softmax.name()));
  draft.input(found.q.value.name()).input(found.k.value.name()).input(found.v.value.name());
  if (found.mask) draft.input(found.mask.name());
  draft.output(found.y.value.name()).attribute("origin", std::string(found.scores.name()));
  draft.attribute("axes", found.q.axes + found.k.axes + found.v.axes + found.y.axes);
  draft.attribute("scale", found.scale);
  if (found.k.group > 1) draft.attribute("group", found.k.group);
  if (found.is_nan_zero) draft.attribute("is_nan_zero", std::int64_t{1});
  draft.attribute("precision", std::string(precision_name(found.precision)));
  for (const sdk::Node& replaced : found.replaced) draft.replaces(replaced);
  draft.add();
}

}  // namespace

void fuse_attention(const Device& device, const sdk::Graph& graph, NodeSet& taken,
                    sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!node.is("Softmax") || taken.count(node.raw()) > 0) continue;
    FoundAttention found = find_attention(node, taken);
    if (!found.softmax) continue;
    const std::string why = refusal_of(device, found);
    if (!why.empty()) {
      edit.note(node, "not computed as an attention: " + why);
      continue;
    }
    for (const sdk::Node& each : found.replaced) taken.insert(each.raw());
    add_node(found, edit);
  }
}

}  // namespace backplane::cuda
