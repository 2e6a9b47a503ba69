// Operators that are told places: scatters, gathers of slices, one-hot rows, selections.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

std::vector<NodeCase> gather_nd(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{4, 3}, Dims{5, 3}}) {
    for (const Dims& indices : {Dims{2, 1}, Dims{3, 2}, Dims{2, 3, 2}})
      cases.push_back(
          with_inputs(draft.node(), {draft.data(dims), draft.data_of(BP_INT64, indices, -2, 2)}));
  }
  return cases;
}

/// Places that differ, so that there is one answer: the columns of each row, once.
Tensor places(const Dims& dims) {
  Tensor tensor = make_tensor(BP_INT64, dims);
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    tensor.set(i, static_cast<double>((i * 2 + i / dims.back()) % 5));
  return tensor;
}

std::vector<NodeCase> scatter_elements(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{3, 5}, Dims{4, 5}}) {
    for (const std::int64_t width : {1, 2}) {
      cases.push_back(with_inputs(
          draft.node({{"axis", std::int64_t{1}}}),
          {draft.data(dims), {places({3, width}), false, false}, draft.data({3, width})}));
    }
  }
  return cases;
}

std::vector<NodeCase> scatter_nd(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{5, 3}, Dims{6, 3}}) {
    cases.push_back(with_inputs(
        draft.node(), {draft.data(dims), {places({2, 1}), false, false}, draft.data({2, 3})}));
  }
  for (const Dims& dims : {Dims{5, 4, 2}, Dims{6, 4, 2}}) {
    cases.push_back(with_inputs(
        draft.node(), {draft.data(dims), {places({3, 1}), false, false}, draft.data({3, 4, 2})}));
  }
  return cases;
}

std::vector<NodeCase> one_hot(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T1", BP_INT64) || !draft.lists("T2", BP_INT64)) return cases;
  for (const std::int64_t axis : {-1, 0}) {
    for (const Dims& dims : {Dims{4}, Dims{7}, Dims{2, 3}}) {
      NodeCase::Input depth = draft.number(BP_INT64, 6),
                      values = draft.fixed(draft.dtype(), {2}, 0, 2);
      values.tensor.set(0, 0);
      values.tensor.set(1, 1);
      values.is_kept = true;
      cases.push_back(with_inputs(draft.node({{"axis", axis}}),
                                  {draft.data_of(BP_INT64, dims, -6, 5), depth, values}));
    }
  }
  return cases;
}

std::vector<NodeCase> compress(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{4, 3}, Dims{4, 5}})
    cases.push_back(with_inputs(draft.node({{"axis", std::int64_t{0}}}),
                                {draft.data(dims), draft.data_of(BP_BOOL, {4}, 0, 1)}));
  for (const Dims& dims : {Dims{4, 3}, Dims{5, 2}})
    cases.push_back(
        with_inputs(draft.node(), {draft.data(dims), draft.data_of(BP_BOOL, {10}, 0, 1)}));
  return cases;
}

std::vector<NodeCase> reverse_sequence(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t time : {0, 1}) {
    for (const Dims& dims : {Dims{4, 4}, Dims{4, 4, 3}, Dims{4, 4, 7}})
      cases.push_back(with_inputs(draft.node({{"time_axis", time}, {"batch_axis", 1 - time}}),
                                  {draft.data(dims), draft.data_of(BP_INT64, {4}, 1, 4)}));
  }
  return cases;
}

std::vector<NodeCase> tensor_scatter(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t batches : {2, 3})
    cases.push_back(with_inputs(draft.node({{"axis", std::int64_t{-2}}}),
                                {draft.data({batches, 2, 8, 4}), draft.data({batches, 2, 3, 4}),
                                 draft.data_of(BP_INT64, {batches}, 0, 5)}));
  return cases;
}

std::vector<NodeCase> unique(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{12}, Dims{20}, Dims{3, 4}}) {
    cases.push_back(with_inputs(draft.node(), {draft.data(dims, 0, 4)}));
    cases.back().outputs = {draft.dtype(), BP_INT64, BP_INT64, BP_INT64};
  }
  return cases;
}

std::vector<NodeCase> non_max_suppression(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t boxes : {6, 9}) {
    for (const std::int64_t classes : {1, 3}) {
      cases.push_back(with_inputs(
          draft.node(),
          {draft.data({2, boxes, 4}, 0, 9), draft.data({2, classes, boxes}, 0, 1),
           draft.number(BP_INT64, 3), draft.number(BP_FLOAT, 0.5), draft.number(BP_FLOAT, 0.25)}));
      cases.back().outputs = {BP_INT64};
    }
  }
  return cases;
}

std::vector<NodeCase> max_unpool(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t images : {1, 2}) {
    Tensor indices = make_tensor(BP_INT64, {images, 1, 2, 2});
    for (std::int64_t i = 0; i < indices.size(); ++i) {
      const std::int64_t corner = i / 4 * 16 + i % 4 / 2 * 8 + i % 2 * 2;
      indices.set(i, static_cast<double>(corner));
    }
    cases.push_back(with_inputs(draft.node({{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}),
                                {draft.data({images, 1, 2, 2}), {indices, false, false}}));
  }
  return cases;
}

}  // namespace

void add_indexed_recipes(RecipeBook& book) {
  book["GatherND"] = {"T", gather_nd};
  for (const char* name : {"Scatter", "ScatterElements"}) book[name] = {"T", scatter_elements};
  book["ScatterND"] = {"T", scatter_nd};
  book["OneHot"] = {"T3", one_hot};
  book["Compress"] = {"T", compress};
  book["ReverseSequence"] = {"T", reverse_sequence};
  book["TensorScatter"] = {"T", tensor_scatter};
  book["Unique"] = {"T", unique};
  book["NonMaxSuppression"] = {"T", non_max_suppression};
  book["MaxUnpool"] = {"T1", max_unpool};
}

}  // namespace backplane::cli::check
