#include "plugins/cuda/rewrite/attention.hpp"

#include <vector>

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using device_ops::only_consumer;
using sdk::DataType;

/// An operand, its nodes seen through: where it comes from, and how its axes lie there.
struct SeenOperand {
  sdk::ValueInfo value;
  std::string axes = "bhs";
};

/// The nodes of an attention around its Softmax.
struct FoundAttention {
  sdk::Node softmax, scores, product;
  std::vector<sdk::Node> replaced;
  SeenOperand q, k, v, y;
  sdk::ValueInfo mask;
  float scale = 1;
  Precision precision = Precision::kFp32;
  std::string why;  ///< it is none that could be fused
};

bool has_perm(const sdk::Node& node, const std::vector<std::int64_t>& perm) {
  return node && node.is("Transpose") && node.get_ints("perm") == perm;
}

/// The value of a constant of one element; false where it is none.
bool number_of(const sdk::ValueInfo& value, float& number) {
  if (!value || !value.is_constant() || !value.is_static() || sdk::element_count(value.dims()) != 1)
    return false;
  const sdk::Tensor tensor = value.constant();
  if (tensor.type() != DataType::Float || tensor.data<float>() == nullptr) return false;
  number = *tensor.data<float>();
  return true;
}

/// What makes a value that nobody else reads; empty otherwise.
sdk::Node only_producer(const sdk::ValueInfo& value, const NodeSet& taken) {
  const sdk::Node node = value.producer();
  if (!node || !node.domain().empty() || taken.count(node.raw()) > 0) return sdk::Node();
  return value.is_output() || value.consumer_count() != 1 ? sdk::Node() : node;
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
      found.scores = product;
      found.replaced.insert(found.replaced.end(), {add, product});
      return true;
    }
    return false;
  }
  value = take_scale(value, taken, found);
  found.scores = only_producer(value, taken);
  if (!found.scores || !found.scores.is("MatMul")) return false;
  found.replaced.push_back(found.scores);
  return true;
}

/// [batch, heads, positions, width], seen through a transposition from [batch, positions, heads, width].
SeenOperand seen_rows(const sdk::ValueInfo& value, const NodeSet& taken, FoundAttention& found) {
  const sdk::Node node = only_producer(value, taken);
  if (!has_perm(node, {0, 2, 1, 3})) return {value, "bhs"};
  found.replaced.push_back(node);
  return {node.input(0), "bsh"};
}

void take_operands(const NodeSet& taken, FoundAttention& found) {
  found.q = seen_rows(take_scale(found.scores.input(0), taken, found), taken, found);
  found.v = seen_rows(found.product.input(1), taken, found);
  const sdk::ValueInfo keys = take_scale(found.scores.input(1), taken, found);
  const sdk::Node node = only_producer(keys, taken);
  if (has_perm(node, {0, 2, 3, 1})) {
    found.replaced.push_back(node);
    found.k = {node.input(0), "bsh"};
  } else if (has_perm(node, {0, 1, 3, 2})) {
    found.replaced.push_back(node);
    found.k = seen_rows(take_scale(node.input(0), taken, found), taken, found);
  } else {
    found.why = "its keys are not the transpose of rows that lie together";
  }
}

/// The nodes around a Softmax; empty softmax where they are not those of an attention.
FoundAttention find_attention(const sdk::Node& softmax, const NodeSet& taken) {
  FoundAttention found;
  const int rank = softmax.output(0).rank();
  const std::int64_t axis = softmax.get_int("axis", softmax.since_version() < 13 ? 1 : -1);
  if (rank != 4 || (axis != -1 && axis != rank - 1)) return found;
  found.softmax = softmax;
  found.replaced.push_back(softmax);
  found.product = only_consumer(softmax.output(0), taken);
  if (!found.product || !found.product.is("MatMul") ||
      found.product.input(0) != softmax.output(0) || found.product.input(1) == softmax.output(0) ||
      !take_scores(taken, found))
    return FoundAttention();
  found.replaced.push_back(found.product);
  take_operands(taken, found);
  found.y.value = found.product.output(0);
  if (const sdk::Node next = only_consumer(found.y.value, taken); has_perm(next, {0, 2, 1, 3})) {
    found.y = {next.output(0), "bsh"};
    found.replaced.push_back(next);
  }
  return found;
}

/// Why the library does not compute it; empty where it does.
std::string refusal_of(Device& device, FoundAttention& found) {
  if (!found.why.empty()) return found.why;
  const DataType type = found.q.value.type();
  const Precision precision = found.precision = device.settings().precision.of(found.scores);
  const bool is_half = type == DataType::Float16 || type == DataType::BFloat16;
  if (!is_half &&
      (type != DataType::Float || precision == Precision::kFp32 || precision == Precision::kTf32))
    return sdk::message("it is of ", sdk::type_name(type), " with precision ",
                        precision_name(precision), "; cuDNN's is of fp16 and bf16");
  for (const sdk::ValueInfo& value : {found.q.value, found.k.value, found.v.value}) {
    if (!value.is_static()) return "its dims are not known before a run";
    if (value.rank() != 4 || value.type() != type) return "its operands are of other kinds";
    if (sdk::element_count(value.dims()) == 0) return "it has no elements";
  }
  if (found.mask && (!found.mask.is_static() || found.mask.rank() > 4))
    return "its mask's dims are not known before a run";
  try {
    Attention form = attention_of(attention_operand(found.q.value.dims(), found.q.axes, 0),
                                  attention_operand(found.k.value.dims(), found.k.axes, 0),
                                  attention_operand(found.v.value.dims(), found.v.axes, 0));
    if (form.groups != form.heads) return "its keys are repeated";
    const sdk::Dims y = found.y.axes == "bhs"
                            ? sdk::Dims{form.batch, form.heads, form.rows, form.value_width}
                            : sdk::Dims{form.batch, form.rows, form.heads, form.value_width};
    form.y = attention_operand(y, found.y.axes, 0).steps;
    if (found.mask) set_mask(found.mask.dims(), form);
    form.type = is_half                         ? type
                : precision == Precision::kFp16 ? DataType::Float16
                                                : DataType::BFloat16;
    return device.attentions().refusal(form);
  } catch (const sdk::Error& error) {
    return error.what();
  }
}

void add_node(const FoundAttention& found, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(), "FusedAttention");
  draft.name(std::string(found.softmax.name()));
  draft.input(found.q.value.name()).input(found.k.value.name()).input(found.v.value.name());
  if (found.mask) draft.input(found.mask.name());
  draft.output(found.y.value.name()).attribute("origin", std::string(found.scores.name()));
  draft.attribute("axes", found.q.axes + found.k.axes + found.v.axes + found.y.axes);
  draft.attribute("scale", found.scale);
  draft.attribute("precision", std::string(precision_name(found.precision)));
  for (const sdk::Node& replaced : found.replaced) draft.replaces(replaced);
  draft.add();
}

}  // namespace

void fuse_attention(Device& device, const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!node.is("Softmax") || taken.count(node.raw()) > 0) continue;
    FoundAttention found = find_attention(node, taken);
    if (!found.softmax) continue;
    const std::string why = refusal_of(device, found);
    if (!why.empty()) {
      edit.note(node, "not computed as an attention by cuDNN: " + why);
      continue;
    }
    for (const sdk::Node& each : found.replaced) taken.insert(each.raw());
    add_node(found, edit);
  }
}

}  // namespace backplane::cuda
