// Matrix products, convolutions, pools, normalizations.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

/// A weight is tried as an initializer, which a kernel may pack, and as a value from outside.
void add_both(std::vector<NodeCase>& cases, const NodeCase& node, std::size_t weight) {
  for (const bool is_constant : {true, false}) {
    cases.push_back(node);
    for (std::size_t i = weight; i < node.inputs.size(); ++i)
      cases.back().inputs[i].is_constant = is_constant;
  }
}

std::vector<NodeCase> matmul(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<std::pair<Dims, Dims>> rows = {
      {{2, 3}, {3, 4}},         {{1, 17}, {17, 33}}, {{33, 17}, {17, 1}},
      {{64, 64}, {64, 64}},     {{3}, {3, 4}},       {{2, 3}, {3}},
      {{2, 3, 4}, {2, 4, 5}},   {{2, 3, 4}, {4, 5}}, {{0, 3}, {3, 4}},
      {{2, 1, 3, 4}, {5, 4, 2}}};
  for (const auto& [a, b] : rows) {
    NodeCase node = draft.node();
    node.inputs = {draft.data(a, -1, 1), draft.weight(b)};
    add_both(cases, node, 1);
  }
  return cases;
}

std::vector<NodeCase> gemm(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t flip_a : {0, 1}) {
    for (const std::int64_t flip_b : {0, 1}) {
      for (const Dims& c : {Dims{5}, Dims{3, 5}, Dims{}}) {
        NodeCase node =
            draft.node({{"transA", flip_a}, {"transB", flip_b}, {"alpha", 0.5f}, {"beta", 2.0f}});
        node.inputs = {draft.data(flip_a != 0 ? Dims{7, 3} : Dims{3, 7}, -1, 1),
                       draft.weight(flip_b != 0 ? Dims{5, 7} : Dims{7, 5}), draft.weight(c)};
        add_both(cases, node, 1);
      }
    }
  }
  NodeCase plain = draft.node();
  plain.inputs = {draft.data({17, 33}, -1, 1), draft.weight({33, 9})};
  if (draft.since() >= 11) add_both(cases, plain, 1);
  return cases;
}

struct ConvRow {
  Dims x, w;
  Attributes attributes;
};

std::vector<NodeCase> convolution(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<ConvRow> rows = {
      {{1, 3, 8, 8}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{1, 3, 9, 7}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{2, 4, 9, 7}, {6, 4, 3, 3}, {{"strides", Ints{2, 2}}}},
      {{1, 8, 5, 5}, {16, 8, 1, 1}, {}},
      {{1, 4, 8, 8}, {4, 1, 3, 3}, {{"group", std::int64_t{4}}, {"pads", Ints{1, 1, 1, 1}}}},
      {{1, 4, 9, 9}, {2, 2, 3, 3}, {{"group", std::int64_t{2}}, {"dilations", Ints{2, 2}}}},
      {{1, 2, 11}, {3, 2, 3}, {{"pads", Ints{1, 0}}}}};
  for (const ConvRow& row : rows) {
    for (const bool has_bias : {false, true}) {
      NodeCase node = draft.node(row.attributes);
      node.inputs = {draft.data(row.x, -1, 1), draft.weight(row.w)};
      if (has_bias) node.inputs.push_back(draft.weight({row.w[0]}));
      add_both(cases, node, 1);
    }
  }
  return cases;
}

std::vector<NodeCase> transposed_convolution(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<ConvRow> rows = {
      {{1, 3, 5, 5}, {3, 4, 3, 3}, {}},
      {{1, 2, 4, 6}, {2, 3, 2, 2}, {{"strides", Ints{2, 2}}}},
      {{2, 4, 5, 5}, {4, 2, 3, 3}, {{"group", std::int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}}}};
  for (const ConvRow& row : rows) {
    NodeCase node = draft.node(row.attributes);
    node.inputs = {draft.data(row.x, -1, 1), draft.weight(row.w)};
    add_both(cases, node, 1);
  }
  return cases;
}

std::vector<NodeCase> pool(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<Attributes> forms = {
      {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
      {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}},
      {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{0, 1, 1, 0}}}};
  for (const Attributes& form : forms) {
    for (const Dims& dims : {Dims{1, 3, 8, 8}, Dims{2, 1, 9, 7}}) {
      NodeCase node = draft.node(form);
      node.inputs = {draft.data(dims)};
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> global_pool(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{1, 3, 7, 7}, Dims{2, 5, 4, 9}, Dims{2, 3, 33}}) {
    NodeCase node = draft.node();
    node.inputs = {draft.data(dims)};
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> batch_normalization(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{1, 3, 5, 5}, Dims{2, 3, 7}, Dims{4, 3}}) {
    NodeCase node = draft.node({{"epsilon", 1e-3f}});
    node.inputs = {draft.data(dims), draft.weight({3}), draft.weight({3}), draft.weight({3}),
                   draft.weight({3}, 0.25, 2)};
    add_both(cases, node, 1);
  }
  return cases;
}

std::vector<NodeCase> instance_normalization(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{1, 3, 5, 5}, Dims{2, 3, 7}}) {
    NodeCase node = draft.node({{"epsilon", 1e-3f}});
    node.inputs = {draft.data(dims), draft.weight({3}), draft.weight({3})};
    add_both(cases, node, 1);
  }
  return cases;
}

std::vector<NodeCase> layer_normalization(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{2, 9}, Dims{3, 4, 9}}) {
    NodeCase node = draft.node({{"axis", std::int64_t{-1}}});
    node.inputs = {draft.data(dims), draft.weight({9})};
    if (draft.op_type() == "LayerNormalization") node.inputs.push_back(draft.weight({9}));
    add_both(cases, node, 1);
  }
  return cases;
}

std::vector<NodeCase> local_response(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{1, 7, 4, 4}, Dims{2, 5, 3, 5}}) {
    NodeCase node = draft.node({{"size", std::int64_t{3}}});
    node.inputs = {draft.data(dims)};
    cases.push_back(node);
  }
  return cases;
}

}  // namespace

void add_dense_recipes(RecipeBook& book) {
  book["MatMul"] = {"T", matmul};
  book["Gemm"] = {"T", gemm};
  book["Conv"] = {"T", convolution};
  book["ConvTranspose"] = {"T", transposed_convolution};
  for (const char* name : {"MaxPool", "AveragePool"}) book[name] = {"T", pool};
  for (const char* name : {"GlobalAveragePool", "GlobalMaxPool"}) book[name] = {"T", global_pool};
  book["BatchNormalization"] = {"T", batch_normalization};
  book["InstanceNormalization"] = {"T", instance_normalization};
  book["LayerNormalization"] = {"T", layer_normalization};
  book["RMSNormalization"] = {"T", layer_normalization};
  book["LRN"] = {"T", local_response};
}

}  // namespace backplane::cli::check
