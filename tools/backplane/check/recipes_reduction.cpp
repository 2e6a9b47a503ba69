// Operators that fold axes: reductions, extremes, sums along an axis, softmax.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

/// Axes became an input with version 13 (ReduceSum) or 18 (the others).
std::vector<NodeCase> reduce(const Draft& draft) {
  std::vector<NodeCase> cases;
  const bool by_input = draft.since() >= (draft.op_type() == "ReduceSum" ? 13 : 18);
  for (const Ints& axes : {Ints{0}, Ints{1}, Ints{-1}, Ints{0, 2}, Ints{}}) {
    for (const std::int64_t keep : {0, 1}) {
      for (const Dims& dims : {Dims{2, 3, 5}, Dims{4, 1, 33}}) {
        NodeCase node = draft.node({{"keepdims", keep}});
        node.inputs = {draft.data(dims, 0.25, 2)};
        if (!axes.empty() && by_input) node.inputs.push_back(Draft::ints(axes));
        if (!axes.empty() && !by_input) node.attributes["axes"] = axes;
        cases.push_back(node);
      }
    }
  }
  return cases;
}

std::vector<NodeCase> extreme(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1, 2}) {
    for (const std::int64_t keep : {0, 1}) {
      for (const Dims& dims : {Dims{2, 3, 5}, Dims{4, 1, 33}}) {
        NodeCase node = draft.node({{"axis", axis}, {"keepdims", keep}});
        node.inputs = {draft.data(dims, -50, 50)};
        node.outputs = {BP_INT64};
        cases.push_back(node);
      }
    }
  }
  return cases;
}

std::vector<NodeCase> cumulative(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1}) {
    for (const Dims& dims : {Dims{4, 5}, Dims{1, 33}}) {
      NodeCase node = draft.node();
      node.inputs = {draft.data(dims), {int64_scalar(axis), true, true}};
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> top(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (draft.since() < 10) return cases;
  for (const Dims& dims : {Dims{3, 8}, Dims{1, 33}}) {
    NodeCase node = draft.node({{"axis", std::int64_t{-1}}});
    node.inputs = {draft.data(dims, -100, 100), Draft::ints({3})};
    // Values that differ, so that there is one answer.
    Tensor& tensor = node.inputs[0].tensor;
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.set(i, static_cast<double>((i * 37) % 101));
    node.outputs = {draft.dtype(), BP_INT64};
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> softmax(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1, -1}) {
    for (const Dims& dims : {Dims{2, 3}, Dims{64, 17}, Dims{2, 3, 33}, Dims{1, 7, 4}}) {
      NodeCase node = draft.node({{"axis", axis}});
      node.inputs = {draft.data(dims, -5, 5)};
      cases.push_back(node);
    }
  }
  return cases;
}

}  // namespace

void add_reduction_recipes(RecipeBook& book) {
  for (const char* name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"})
    book[name] = {"T", reduce};
  for (const char* name : {"ArgMax", "ArgMin"}) book[name] = {"T", extreme};
  for (const char* name : {"CumSum", "CumProd"}) book[name] = {"T", cumulative};
  book["TopK"] = {"T", top};
  for (const char* name : {"Softmax", "LogSoftmax", "Hardmax"}) book[name] = {"T", softmax};
}

}  // namespace backplane::cli::check
