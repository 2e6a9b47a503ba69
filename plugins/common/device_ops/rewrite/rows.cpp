// What is element-wise in front of rows that are folded or normalised becomes part of their kernel: a scale and a mask
// before Softmax, a residual before LayerNormalization, squares before a mean. So does what is done to each fold. A
// normalisation that stands as nodes of its own becomes one.
#include <optional>

#include "plugins/common/axes.hpp"
#include "plugins/common/device_ops/rewrite/chain.hpp"
#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/patterns/normalization.hpp"

namespace backplane::device_ops {
namespace {

/// Operands of the rows' dims that are worth reading once for each time that a kernel goes over its rows: more than these
/// cost more than a value that is stored between.
constexpr std::size_t kMostReadAgain = 2;

constexpr std::string_view kFolds[] = {"ReduceSum",       "ReduceMean",  "ReduceL1",
                                       "ReduceL2",        "ReduceMax",   "ReduceMin",
                                       "ReduceSumSquare", "ReduceLogSum"};

/// What rows become, all of which are from one axis on: a node, or a normalisation of several.
struct RowNode {
  const char* fused = nullptr;  ///< the operator, with what stands before; null: there are no rows
  int axis = 0;
  bool goes_once = false;  ///< over its elements
  std::string op;
  sdk::ValueInfo x, y;
  std::vector<sdk::ValueInfo> scale_and_bias;  ///< of a normalisation; the bias may be left out
  float epsilon = 0;
  std::vector<sdk::Node> nodes;

  bool has_scale() const { return !scale_and_bias.empty(); }
};

/// Of one node.
RowNode row_node(const sdk::Node& node, const char* fused, std::int64_t axis) {
  RowNode row;
  row.fused = fused;
  row.axis = static_cast<int>(axis);
  row.op = node.op_type();
  row.x = node.input(0);
  row.y = node.output(0);
  row.nodes = {node};
  return row;
}

/// Whether there may be elements: sizes may be known only in a run.
bool has_rows(const sdk::ValueInfo& value) {
  return value && is_chained(value.type()) && value.rank() > 0 &&
         (!value.is_static() || sdk::element_count(value.dims()) > 0);
}

/// The number of elements of the axes from one on; -1 where it is not known.
std::int64_t row_length(DimsView dims, int axis) {
  std::int64_t n = 1;
  for (std::size_t i = static_cast<std::size_t>(axis); i < dims.size(); ++i) {
    if (dims[i] < 0) return -1;
    n *= dims[i];
  }
  return n;
}

bool in_range(std::int64_t axis, int rank) { return axis >= -rank && axis < rank; }

RowNode find_softmax(const sdk::Node& node) {
  const DimsView dims = node.input(0).dims();
  const int rank = static_cast<int>(dims.size());
  const bool to_the_end = node.since_version() < 13;
  const std::int64_t given = node.get_int("axis", to_the_end ? 1 : -1);
  if (!in_range(given, rank)) return RowNode();
  const int axis = common::normalize_axis(given, rank);
  if (!to_the_end && row_length(dims, axis + 1) != 1) return RowNode();
  return row_node(node, "FusedSoftmax", axis);
}

/// Whether each, where it is there, has a number of the rows' type for every element of a row, or one for all.
bool fits_rows(const sdk::Node& node, std::int64_t n) {
  const DataType type = node.input(0).type();
  const sdk::ValueInfo scale = node.input(1),
                       bias = node.input_count() > 2 ? node.input(2) : sdk::ValueInfo();
  if (!scale || scale.type() != type || !scale.is_static()) return false;
  const std::int64_t count = sdk::element_count(scale.dims());
  if (count == 0 || (count != n && count != 1)) return false;
  return !bias ||
         (bias.type() == type && bias.is_static() && sdk::element_count(bias.dims()) == count);
}

RowNode find_normalization(const sdk::Node& node) {
  const DimsView dims = node.input(0).dims();
  const int rank = static_cast<int>(dims.size());
  const std::int64_t given = node.get_int("axis", -1);
  if (!in_range(given, rank) || node.input_count() < 2) return RowNode();
  const int axis = common::normalize_axis(given, rank);
  const std::int64_t n = row_length(dims, axis);
  if (n < 0 || !fits_rows(node, n)) return RowNode();
  RowNode row = row_node(node, "FusedNormalization", axis);
  row.epsilon = node.get_float("epsilon", 1e-5f);
  row.scale_and_bias.push_back(node.input(1));
  if (node.input(2)) row.scale_and_bias.push_back(node.input(2));
  return row;
}

RowNode find_normalization_of_nodes(const sdk::Node& last, const NodeSet& taken) {
  patterns::DecomposedNormalization found = patterns::find_normalization(last, taken);
  if (!found.x || !has_rows(found.x)) return RowNode();
  RowNode row = row_node(last, "FusedNormalization", found.x.rank() - 1);
  row.op = found.has_mean ? "LayerNormalization" : "RMSNormalization";
  row.x = found.x;
  row.epsilon = found.epsilon;
  row.scale_and_bias.push_back(found.scale);
  if (found.bias) row.scale_and_bias.push_back(found.bias);
  row.nodes = std::move(found.nodes);
  return row;
}

RowNode find_fold(const sdk::Node& node) {
  // Squares and sums of 16 bits would be rounded where what is done to them is a node of its own.
  if (node.input(0).type() != DataType::Float) return RowNode();
  const int rank = node.input(0).rank();
  Dims axes;
  if (!read_axes(node, rank, axes)) return RowNode();
  const auto first = rank - static_cast<std::int64_t>(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != first + static_cast<std::int64_t>(i)) return RowNode();
  }
  // Images may lie channels last, as the nodes stand.
  if (first == 2 && axes.size() > 1) return RowNode();
  RowNode row = row_node(node, "FusedReduce", first);
  row.goes_once = true;
  return row;
}

RowNode find_rows(const sdk::Node& node) {
  if (!node.domain().empty() || node.input_count() == 0 || !has_rows(node.input(0)))
    return RowNode();
  for (std::size_t i = 1; i < node.output_count(); ++i) {
    if (node.output(i)) return RowNode();
  }
  const std::string_view op_type = node.op_type();
  if (op_type == "Softmax" || op_type == "LogSoftmax") return find_softmax(node);
  if (op_type == "LayerNormalization" || op_type == "RMSNormalization")
    return find_normalization(node);
  return std::find(std::begin(kFolds), std::end(kFolds), op_type) != std::end(kFolds)
             ? find_fold(node)
             : RowNode();
}

/// Whether rows of n elements are held, however many there are; n is -1 where it is known only in a run.
bool holds_rows(const Device& device, std::int64_t rows, std::int64_t n, DataType type) {
  const auto is_held = [&](std::int64_t count) {
    const RowForm form = choose_rows(
        device,
        {.rows = count, .n = n, .type = type, .is_dense = true, .holds = true, .may_divide = true});
    return form.held > 0 && form.parts == 1;
  };
  constexpr std::int64_t kMany = 1 << 20;
  if (n < 1) return false;
  return rows > 0 ? is_held(rows) : is_held(1) && is_held(kMany);
}

/// Whether the kernel that takes the chain over does less than both did. It evaluates the chain each time that it goes over
/// a row which it does not hold; a processor's stores what it makes where the row's results will be.
bool pays(const Device& device, const RowNode& row, const Chain& chain, bool keeps) {
  if (row.goes_once || !shares_rows(device)) return true;
  const DimsView dims = chain.root().output(0).dims();
  const std::int64_t rows =
      row_length(DimsView(dims.data(), static_cast<std::size_t>(row.axis)), 0);
  if (holds_rows(device, rows, row_length(dims, row.axis), chain.root().output(0).type()))
    return true;
  return !keeps && chain.is_cheap() && chain.whole_operands() <= kMostReadAgain;
}

/// Whether a value that others read too may be a second output of the node: nothing else that it reads depends on it.
bool may_keep(const RowNode& row) {
  return row.has_scale() &&
         std::all_of(row.scale_and_bias.begin(), row.scale_and_bias.end(),
                     [](const sdk::ValueInfo& value) { return value.is_constant(); });
}

/// The last of the element-wise nodes after a fold that have its dims and read nothing but it and numbers, as an epsilon that is
/// added before a root; empty where there is none.
sdk::Node find_tail(const sdk::Node& fold, const NodeSet& taken) {
  sdk::Node tail;
  for (sdk::ValueInfo value = fold.output(0);; value = tail.output(0)) {
    const sdk::Node next = only_consumer(value, taken);
    if (!next || !is_elementwise(next) || !same_dims(next.output(0), value)) return tail;
    const Chain chain(next, taken);
    if (chain.operands().size() != 1 || chain.operands()[0] != fold.output(0).name()) return tail;
    tail = next;
  }
}

/// What the tail does becomes the attributes "after_statements" and "after_result", of the fold as v0, and "after", how many nodes.
void add_tail(const Chain& tail, sdk::NodeDraft& draft) {
  draft.attribute("after_statements", tail.statements()).attribute("after_result", tail.result());
  draft.attribute("after", static_cast<std::int64_t>(tail.nodes().size()));
  draft.output(tail.root().output(0).name());
  for (const sdk::Node& each : tail.nodes()) draft.replaces(each);
}

/// What a normalisation reads besides its rows.
void add_scale(const RowNode& row, sdk::NodeDraft& draft) {
  if (!row.has_scale()) return;
  draft.attribute("epsilon", row.epsilon);
  for (const sdk::ValueInfo& value : row.scale_and_bias) draft.input(value.name());
}

/// A normalisation of several nodes, of rows that are in memory.
void add_normalization(const RowNode& row, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), row.op);
  draft.name(std::string(row.nodes.front().name())).input(row.x.name());
  draft.attribute("axis", std::int64_t{row.axis});
  add_scale(row, draft);
  draft.output(row.y.name());
  for (const sdk::Node& each : row.nodes) draft.replaces(each);
  draft.add();
}

/// `tail` may be empty.
void add_row_node(const RowNode& row, const Chain& chain, bool keeps,
                  const std::optional<Chain>& tail, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), row.fused);
  draft.name(std::string(row.nodes.front().name()));
  chain.add_to(draft, edit);
  draft.attribute("operands", static_cast<std::int64_t>(chain.operands().size()));
  draft.attribute("op", row.op).attribute("axis", std::int64_t{row.axis});
  add_scale(row, draft);
  if (row.goes_once) draft.attribute("keepdims", row.nodes.front().get_int("keepdims", 1));
  for (const sdk::Node& each : row.nodes) draft.replaces(each);
  if (tail) {
    add_tail(*tail, draft);
  } else {
    draft.output(row.y.name());
  }
  if (keeps) draft.output(chain.root().output(0).name());
  draft.add();
}

/// Whether the rows took over the element-wise tree before them.
bool fuse_tree(const Device& device, const RowNode& row, NodeSet& taken, sdk::Rewrite& edit) {
  const sdk::Node root = row.x.producer();
  if (!root || taken.count(root.raw()) > 0 || !is_elementwise(root)) return false;
  const bool keeps = is_read_by_others(row.x, row.nodes);
  if (keeps && !may_keep(row)) return false;
  const Chain chain(root, taken);
  if (!pays(device, row, chain, keeps)) return false;
  for (const sdk::Node& each : chain.nodes()) taken.insert(each.raw());
  const sdk::Node last = row.goes_once ? find_tail(row.nodes.front(), taken) : sdk::Node();
  std::optional<Chain> tail;
  if (last) tail.emplace(last, taken);
  for (const sdk::Node& each : row.nodes) taken.insert(each.raw());
  for (std::size_t k = 0; tail && k < tail->nodes().size(); ++k)
    taken.insert(tail->nodes()[k].raw());
  add_row_node(row, chain, keeps, tail, edit);
  return true;
}

}  // namespace

void fuse_rows(const Device& device, const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = graph.node_count(); i-- > 0;) {
    const sdk::Node node = graph.node(i);
    if (taken.count(node.raw()) > 0) continue;
    RowNode row = find_rows(node);
    if (row.fused == nullptr) row = find_normalization_of_nodes(node, taken);
    if (row.fused == nullptr || fuse_tree(device, row, taken, edit) || row.nodes.size() == 1)
      continue;
    for (const sdk::Node& each : row.nodes) taken.insert(each.raw());
    add_normalization(row, edit);
  }
}

}  // namespace backplane::device_ops
