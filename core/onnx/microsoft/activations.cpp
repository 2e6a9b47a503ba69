// Gelu, FastGelu, BiasGelu, QuickGelu, BiasSplitGelu, BiasAdd, BiasSoftmax:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

void write_gelu(BodyWriter& body) { body.output(0, body.op("Gelu", {body.in(0)})); }

void write_fast_gelu(BodyWriter& body) {
  const auto sum = body.add_if(body.in(0), body.in(1));
  body.output(0, body.op("Gelu", {sum}, {{"approximate", "tanh"}}));
}

void write_bias_gelu(BodyWriter& body) {
  body.output(0, body.op("Gelu", {body.add(body.in(0), body.in(1))}));
}

void write_quick_gelu(BodyWriter& body) {
  const float alpha = body.float_of("alpha");
  const auto x = body.in(0);
  const auto scaled = alpha == 1 ? x : body.mul(x, body.scalar(body.type(0), alpha));
  body.output(0, body.mul(x, body.op("Sigmoid", {scaled})));
}

void write_bias_split_gelu(BodyWriter& body) {
  const auto halves = body.ops("Split", {body.add(body.in(0), body.in(1))}, {true, true},
                               {{"axis", -1}, {"num_outputs", 2}});
  body.output(0, body.mul(halves[0], body.op("Gelu", {halves[1]})));
}

void write_bias_add(BodyWriter& body) {
  body.output(0, body.add(body.add(body.in(0), body.in(1)), body.in(2)));
}

/// Softmax over all axes from `axis` on, as one.
void write_bias_softmax(BodyWriter& body) {
  const std::int64_t rank = body.rank(0);
  const std::int64_t given = body.int_of("axis");
  const std::int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank)
    invalid("axis is ", given, ", but its input has ", rank, " dimensions");
  auto bias = body.in(1);
  const std::int64_t bias_rank = body.rank(1);
  // Of the same rank, dimensions of 1 say over which axes it is repeated.
  if (bias_rank != rank && body.int_of("is_inner_broadcast") != 0)
    body.refuse("is_inner_broadcast is 1 and its bias has ", bias_rank, " dimensions, not ", rank);
  const auto sum = body.add(body.in(0), bias);
  if (axis == rank - 1) {
    body.output(0, body.op("Softmax", {sum}, {{"axis", -1}}));
    return;
  }
  std::vector<std::int64_t> flat(static_cast<std::size_t>(axis), 0);
  flat.push_back(-1);
  const auto soft = body.op("Softmax", {body.reshape(sum, flat)}, {{"axis", -1}});
  body.output(0, body.reshape_to(soft, body.op("Shape", {body.in(0)})));
}

}  // namespace

OperatorList activations_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("Gelu", write_gelu)
                     .input("X")
                     .output("Y")
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("FastGelu", write_fast_gelu)
                     .input("X")
                     .optional_input("bias")
                     .output("Y")
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("BiasGelu", write_bias_gelu)
                     .input("A")
                     .input("B")
                     .output("C")
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("QuickGelu", write_quick_gelu)
                     .input("X")
                     .output("Y")
                     .float_or("alpha", 1.702F)
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("BiasSplitGelu", write_bias_split_gelu)
                     .input("X")
                     .input("bias")
                     .output("Y")
                     .types("T", float_types())
                     .done());
  list.push_back(OperatorDraft("BiasAdd", write_bias_add)
                     .input("X")
                     .input("bias")
                     .input("skip")
                     .output("Y")
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("BiasSoftmax", write_bias_softmax)
                     .input("data")
                     .input("bias")
                     .output("output")
                     .int_or("axis", 1)
                     .required_int("is_inner_broadcast")
                     .types("T", float_types())
                     .keeps_shape()
                     .done());
  return list;
}

}  // namespace backplane::core
