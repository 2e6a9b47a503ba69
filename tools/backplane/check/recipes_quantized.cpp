// Operators on quantized integers. Types other than the draft's are those that the kernel lists.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

const std::vector<bp_dtype>& bytes() {
  static const std::vector<bp_dtype> kBytes = {BP_UINT8, BP_INT8};
  return kBytes;
}

NodeCase with_output(NodeCase node, std::vector<NodeCase::Input> inputs, bp_dtype output) {
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

std::vector<NodeCase> quantize(const Draft& draft) {
  std::vector<NodeCase> cases;
  const bp_dtype scale = draft.since() < 19 ? BP_FLOAT : draft.dtype();
  if (scale == BP_INT32) return cases;
  for (const bp_dtype to : bytes()) {
    if (!draft.lists(draft.since() < 23 ? "T2" : "T3", to)) continue;
    for (const Dims& dims : {Dims{2, 3}, Dims{7, 33}, Dims{3, 0}})
      cases.push_back(with_output(
          draft.node(), {draft.data(dims, -9, 9), draft.number(scale, 0.25), draft.number(to, 3)},
          to));
    if (draft.since() < 13) continue;
    for (const Dims& dims : {Dims{2, 3, 5}, Dims{4, 3, 1}})
      cases.push_back(with_output(
          draft.node({{"axis", std::int64_t{1}}}),
          {draft.data(dims, -9, 9), draft.fixed(scale, {3}, 0.25, 1), draft.fixed(to, {3}, 0, 9)},
          to));
  }
  return cases;
}

std::vector<NodeCase> dequantize(const Draft& draft) {
  std::vector<NodeCase> cases;
  const bool has_zero = draft.dtype() != BP_INT32;
  for (const Dims& dims : {Dims{2, 3}, Dims{7, 33}, Dims{3, 0}}) {
    cases.push_back(with_output(
        draft.node(), {draft.data(dims, -100, 100), draft.number(BP_FLOAT, 0.25)}, BP_FLOAT));
    if (has_zero) cases.back().inputs.push_back(draft.number(draft.dtype(), 3));
  }
  if (draft.since() < 13) return cases;
  for (const Dims& dims : {Dims{2, 3, 5}, Dims{4, 3, 1}}) {
    cases.push_back(with_output(draft.node({{"axis", std::int64_t{1}}}),
                                {draft.data(dims, -100, 100), draft.fixed(BP_FLOAT, {3}, 0.25, 1)},
                                BP_FLOAT));
    if (has_zero) cases.back().inputs.push_back(draft.fixed(draft.dtype(), {3}, 0, 9));
  }
  return cases;
}

std::vector<NodeCase> dynamic_quantize(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{6}, Dims{3, 4}, Dims{2, 33}}) {
    cases.push_back(with_output(draft.node(), {draft.data(dims, -3, 5)}, BP_UINT8));
    cases.back().outputs = {BP_UINT8, BP_FLOAT, BP_UINT8};
  }
  return cases;
}

struct ProductRow {
  Dims a, b;
};

const std::vector<ProductRow>& products() {
  static const std::vector<ProductRow> kRows = {
      {{2, 3}, {3, 4}}, {{5, 3}, {3, 4}}, {{7, 33}, {33, 9}}, {{2, 5, 8}, {2, 8, 3}}};
  return kRows;
}

std::vector<NodeCase> integer_product(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype other : bytes()) {
    if (!draft.lists("T2", other)) continue;
    for (const auto& [a, b] : products())
      cases.push_back(with_output(draft.node(),
                                  {draft.data(a, -99, 99), draft.fixed(other, b, -99, 99),
                                   draft.number(draft.dtype(), 3), draft.number(other, 2)},
                                  BP_INT32));
  }
  return cases;
}

std::vector<NodeCase> quantized_product(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype other : bytes()) {
    if (!draft.lists("T2", other) || !draft.lists("T3", draft.dtype())) continue;
    for (const auto& [a, b] : products())
      cases.push_back(with_output(
          draft.node(),
          {draft.data(a, -99, 99), draft.number(BP_FLOAT, 0.02), draft.number(draft.dtype(), 3),
           draft.fixed(other, b, -99, 99), draft.number(BP_FLOAT, 0.03), draft.number(other, 2),
           draft.number(BP_FLOAT, 0.7), draft.number(draft.dtype(), 5)},
          draft.dtype()));
  }
  return cases;
}

struct IntegerConvRow {
  Dims x, w;
  Attributes attributes;
};

const std::vector<IntegerConvRow>& convolutions() {
  static const std::vector<IntegerConvRow> kRows = {
      {{1, 3, 8, 8}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{1, 3, 9, 7}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{2, 4, 9, 7}, {6, 2, 3, 3}, {{"strides", Ints{2, 2}}, {"group", std::int64_t{2}}}},
      {{1, 8, 5, 5}, {16, 8, 1, 1}, {}}};
  return kRows;
}

std::vector<NodeCase> integer_convolution(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype other : bytes()) {
    if (!draft.lists("T2", other)) continue;
    for (const IntegerConvRow& row : convolutions())
      cases.push_back(with_output(draft.node(row.attributes),
                                  {draft.data(row.x, -99, 99), draft.fixed(other, row.w, -99, 99),
                                   draft.number(draft.dtype(), 3), draft.number(other, 2)},
                                  BP_INT32));
  }
  return cases;
}

std::vector<NodeCase> quantized_convolution(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype other : bytes()) {
    if (!draft.lists("T2", other) || !draft.lists("T3", draft.dtype())) continue;
    for (const IntegerConvRow& row : convolutions())
      cases.push_back(with_output(
          draft.node(row.attributes),
          {draft.data(row.x, -99, 99), draft.number(BP_FLOAT, 0.02), draft.number(draft.dtype(), 3),
           draft.fixed(other, row.w, -99, 99), draft.number(BP_FLOAT, 0.03), draft.number(other, 0),
           draft.number(BP_FLOAT, 0.7), draft.number(draft.dtype(), 5)},
          draft.dtype()));
  }
  return cases;
}

}  // namespace

void add_quantized_recipes(RecipeBook& book) {
  book["QuantizeLinear"] = {"T1", quantize};
  book["DequantizeLinear"] = {"T1", dequantize};
  book["DynamicQuantizeLinear"] = {"T1", dynamic_quantize};
  book["MatMulInteger"] = {"T1", integer_product};
  book["QLinearMatMul"] = {"T1", quantized_product};
  book["ConvInteger"] = {"T1", integer_convolution};
  book["QLinearConv"] = {"T1", quantized_convolution};
}

}  // namespace backplane::cli::check
