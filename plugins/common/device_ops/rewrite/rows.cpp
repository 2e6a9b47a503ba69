// What is element-wise in front of rows that are folded or normalised becomes part of their kernel: a scale and a mask
// before Softmax, a residual before LayerNormalization, squares before a mean. So does what is done to each fold.
#include <optional>

#include "plugins/common/axes.hpp"
#include "plugins/common/device_ops/rewrite/chain.hpp"
#include "plugins/common/device_ops/row_form.hpp"

namespace backplane::device_ops {
namespace {

/// Operands of the rows' dims that are worth reading once for each time that a kernel goes over its rows: more than these
/// cost more than a value that is stored between.
constexpr std::size_t kMostReadAgain = 2;

constexpr std::string_view kFolds[] = {"ReduceSum",       "ReduceMean",  "ReduceL1",
                                       "ReduceL2",        "ReduceMax",   "ReduceMin",
                                       "ReduceSumSquare", "ReduceLogSum"};

/// A node whose rows are all from one axis on.
struct RowNode {
  const char* fused = nullptr;  ///< the operator that it becomes part of; null: it is no such node
  int axis = 0;
  bool has_scale = false;  ///< as second input, and perhaps a bias as third
  bool goes_once = false;  ///< over its elements
};

bool is_whole_float(const sdk::ValueInfo& value) {
  return value && value.type() == DataType::Float && value.is_static() && value.rank() > 0 &&
         sdk::element_count(value.dims()) > 0;
}

/// Sizes may be known only in a run, where there may be no elements.
bool has_rows(const sdk::ValueInfo& value) {
  return is_whole_float(value) ||
         (value && value.type() == DataType::Float && value.rank() > 0 && !value.is_static());
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
  if (!in_range(given, rank)) return {};
  const int axis = common::normalize_axis(given, rank);
  if (!to_the_end && row_length(dims, axis + 1) != 1) return {};
  return {"FusedSoftmax", axis, false, false};
}

/// Whether each, where it is there, has a number for every element of a row, or one for all.
bool fits_rows(const sdk::ValueInfo& scale, const sdk::ValueInfo& bias, std::int64_t n) {
  if (!is_whole_float(scale) && !(scale && scale.type() == DataType::Float && scale.rank() == 0))
    return false;
  const std::int64_t count = sdk::element_count(scale.dims());
  if (count != n && count != 1) return false;
  return !bias || (bias.type() == DataType::Float && bias.is_static() &&
                   sdk::element_count(bias.dims()) == count);
}

RowNode find_normalization(const sdk::Node& node) {
  const DimsView dims = node.input(0).dims();
  const int rank = static_cast<int>(dims.size());
  const std::int64_t given = node.get_int("axis", -1);
  if (!in_range(given, rank) || node.input_count() < 2) return {};
  const int axis = common::normalize_axis(given, rank);
  const sdk::ValueInfo bias = node.input_count() > 2 ? node.input(2) : sdk::ValueInfo();
  const std::int64_t n = row_length(dims, axis);
  if (n < 0 || !fits_rows(node.input(1), bias, n)) return {};
  return {"FusedNormalization", axis, true, false};
}

/// The axes of a reduction: the constant, the attribute, or all of them. False where they are not known.
bool read_axes(const sdk::Node& node, int rank, Dims& axes) {
  axes = node.get_ints("axes");
  if (node.input_count() > 1 && node.input(1)) {
    if (!node.input(1).is_constant()) return false;
    const sdk::Tensor tensor = node.input(1).constant();
    if (tensor.size() > 0 && tensor.bytes_data() == nullptr) return false;
    axes = tensor.to_ints();
  }
  for (std::int64_t& axis : axes) {
    if (!in_range(axis, rank)) return false;
    axis += axis < 0 ? rank : 0;
  }
  std::sort(axes.begin(), axes.end());
  if (!axes.empty()) return true;
  for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return node.get_int("noop_with_empty_axes", 0) == 0;
}

RowNode find_fold(const sdk::Node& node) {
  const int rank = node.input(0).rank();
  Dims axes;
  if (!read_axes(node, rank, axes)) return {};
  const auto first = rank - static_cast<std::int64_t>(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != first + static_cast<std::int64_t>(i)) return {};
  }
  // Images may lie channels last, as the nodes stand.
  if (first == 2 && axes.size() > 1) return {};
  return {"FusedReduce", static_cast<int>(first), false, true};
}

RowNode find_rows(const sdk::Node& node) {
  if (!node.domain().empty() || node.input_count() == 0 || !has_rows(node.input(0))) return {};
  for (std::size_t i = 1; i < node.output_count(); ++i) {
    if (node.output(i)) return {};
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
bool holds_rows(const Device& device, std::int64_t rows, std::int64_t n) {
  const auto is_held = [&](std::int64_t count) {
    const RowForm form = choose_rows(
        device, {.rows = count, .n = n, .is_dense = true, .holds = true, .may_divide = true});
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
  if (holds_rows(device, rows, row_length(dims, row.axis))) return true;
  return !keeps && chain.is_cheap() && chain.whole_operands() <= kMostReadAgain;
}

/// Whether a value that others read too may be a second output of the node: nothing else that it reads depends on it.
bool may_keep(const sdk::Node& node, const RowNode& row) {
  if (!row.has_scale || !node.input(1).is_constant()) return false;
  return node.input_count() < 3 || !node.input(2) || node.input(2).is_constant();
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

/// `tail` may be empty.
void add_row_node(const sdk::Node& node, const RowNode& row, const Chain& chain, bool keeps,
                  const std::optional<Chain>& tail, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), row.fused);
  draft.name(std::string(node.name()));
  chain.add_to(draft, edit);
  draft.attribute("operands", static_cast<std::int64_t>(chain.operands().size()));
  draft.attribute("op", std::string(node.op_type()));
  draft.attribute("axis", std::int64_t{row.axis});
  if (row.has_scale) {
    draft.attribute("epsilon", node.get_float("epsilon", 1e-5f));
    for (std::size_t i = 1; i < node.input_count(); ++i) {
      if (node.input(i)) draft.input(node.input(i).name());
    }
  }
  if (row.goes_once) draft.attribute("keepdims", node.get_int("keepdims", 1));
  draft.replaces(node);
  if (tail) {
    add_tail(*tail, draft);
  } else {
    draft.output(node.output(0).name());
  }
  if (keeps) draft.output(chain.root().output(0).name());
  draft.add();
}

}  // namespace

void fuse_rows(const Device& device, const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = graph.node_count(); i-- > 0;) {
    const sdk::Node node = graph.node(i);
    if (taken.count(node.raw()) > 0) continue;
    const RowNode row = find_rows(node);
    if (row.fused == nullptr) continue;
    const sdk::ValueInfo x = node.input(0);
    const sdk::Node root = x.producer();
    if (!root || taken.count(root.raw()) > 0 || !is_elementwise(root)) continue;
    const bool keeps = !only_consumer(x, taken);
    if (keeps && !may_keep(node, row)) continue;
    const Chain chain(root, taken);
    if (!pays(device, row, chain, keeps)) continue;
    for (const sdk::Node& each : chain.nodes()) taken.insert(each.raw());
    const sdk::Node last = row.goes_once ? find_tail(node, taken) : sdk::Node();
    std::optional<Chain> tail;
    if (last) tail.emplace(last, taken);
    taken.insert(node.raw());
    for (std::size_t k = 0; tail && k < tail->nodes().size(); ++k)
      taken.insert(tail->nodes()[k].raw());
    add_row_node(node, row, chain, keeps, tail, edit);
  }
}

}  // namespace backplane::device_ops
