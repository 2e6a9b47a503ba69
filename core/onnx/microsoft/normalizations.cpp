// SkipLayerNormalization, SkipSimplifiedLayerNormalization, EmbedLayerNormalization, GroupNorm, SkipGroupNorm:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
// SimplifiedLayerNormalization, and LayerNormalization before opset 17, which ONNX Runtime has in ONNX's own domain.
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

constexpr float kSkipEpsilon = 1e-12F, kEpsilon = 1e-5F;

/// 1 / sqrt(mean of squares + epsilon), in float, as training wants it.
BodyWriter::Name inverse_deviation(BodyWriter& body, const BodyWriter::Name& x, std::int64_t axis,
                                   float epsilon) {
  const auto real = body.cast(x, DataType::Float);
  std::vector<std::int64_t> axes;
  for (std::int64_t i = axis; i < 0; ++i) axes.push_back(i);
  const auto mean = body.op("ReduceMean", {body.mul(real, real), body.ints(axes)});
  const auto sum = body.add(mean, body.scalar(DataType::Float, epsilon));
  return body.op("Reciprocal", {body.op("Sqrt", {sum})});
}

void write_skip_layer_normalization(BodyWriter& body) {
  const auto sum = body.add_if(body.add(body.in(0), body.in(1)), body.in(4));
  const auto made = body.ops("LayerNormalization", {sum, body.in(2), body.in(3)},
                             {body.has_output(0), body.has_output(1), body.has_output(2)},
                             {{"axis", -1}, {"epsilon", body.float_of("epsilon")}});
  for (std::size_t i = 0; i < made.size(); ++i) body.output(i, made[i]);
  body.output(3, sum);
}

void write_skip_simplified(BodyWriter& body) {
  const float epsilon = body.float_of("epsilon");
  if (body.has_output(1)) body.refuse("its output 1 (mean) is read, which this operator never has");
  const auto sum = body.add_if(body.add(body.in(0), body.in(1)), body.in(3));
  body.output(0,
              body.op("RMSNormalization", {sum, body.in(2)}, {{"axis", -1}, {"epsilon", epsilon}}));
  if (body.has_output(2)) body.output(2, inverse_deviation(body, sum, -1, epsilon));
  body.output(3, sum);
}

void write_simplified(BodyWriter& body) {
  body.output(0, body.op("RMSNormalization", {body.in(0), body.in(1)},
                         body.attributes({"axis", "epsilon", "stash_type"})));
  if (!body.has_output(1)) return;
  const std::int64_t axis = body.int_of("axis");
  body.output(1, inverse_deviation(body, body.in(0), axis < 0 ? axis : axis - body.rank(0),
                                   body.float_of("epsilon")));
}

void write_layer_normalization(BodyWriter& body) {
  const auto made = body.ops("LayerNormalization", {body.in(0), body.in(1), body.in(2)},
                             {body.has_output(0), body.has_output(1), body.has_output(2)},
                             body.attributes({"axis", "epsilon", "stash_type"}));
  for (std::size_t i = 0; i < made.size(); ++i) body.output(i, made[i]);
}

void write_embed_layer_normalization(BodyWriter& body) {
  const auto ids = body.in(0), segments = body.in(1), positions = body.in(8);
  auto sum = body.op("Gather", {body.in(2), ids});
  if (positions.empty()) {
    sum = body.add(sum, body.slice(body.in(3), 0, body.ints({0}), body.input_size(0, 1)));
  } else {
    sum = body.add(sum, body.op("Gather", {body.in(3), positions}));
  }
  if (body.has_input(4)) {
    if (segments.empty()) invalid("it has segment embeddings, but no segment ids");
    sum = body.add(sum, body.op("Gather", {body.in(4), segments}));
  }
  body.output(0, body.op("LayerNormalization", {sum, body.in(5), body.in(6)},
                         {{"axis", -1}, {"epsilon", body.float_of("epsilon")}}));
  body.output(2, sum);
  if (!body.has_output(1)) return;
  if (body.has_input(7)) {
    body.output(1, body.op("ReduceSum", {body.in(7), body.ints({1})}, {{"keepdims", 0}}));
  } else {
    const auto zero = body.scalar(DataType::Int32, 0);
    body.output(1, body.op("Expand", {zero, body.input_size(0, 0)}));
  }
}

/// Of images [N, C, H, W] or, channels last, [N, H, W, C].
void write_group_norm_of(BodyWriter& body, const BodyWriter::Name& x) {
  const bool is_last = body.int_of("channels_last") != 0;
  const DataType type = body.type(0);
  const auto images = is_last ? body.transpose(x, {0, 3, 1, 2}) : x;
  const auto as_images = [&](std::size_t index) {
    return body.type(index) == type ? body.in(index) : body.cast(body.in(index), type);
  };
  auto y = body.op("GroupNormalization", {images, as_images(1), as_images(2)},
                   {{"epsilon", body.float_of("epsilon")}, {"num_groups", body.int_of("groups")}});
  const std::int64_t activation = body.int_of("activation");
  if (activation != 0 && activation != 1)
    invalid("activation is ", activation, "; 0 (none) and 1 (SiLU) are known");
  if (activation == 1) y = body.mul(y, body.op("Sigmoid", {y}));
  body.output(0, is_last ? body.transpose(y, {0, 2, 3, 1}) : y);
}

void write_group_norm(BodyWriter& body) { write_group_norm_of(body, body.in(0)); }

void write_skip_group_norm(BodyWriter& body) {
  const bool is_last = body.int_of("channels_last") != 0;
  const auto with_images = [&](const BodyWriter::Name& value, std::int64_t rank) {
    if (rank == 4) return value;
    if (is_last) return rank == 2 ? body.unsqueeze(value, {1, 2}) : value;
    return body.unsqueeze(
        value, rank == 2 ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>{1, 2});
  };
  auto sum = body.add(body.in(0), with_images(body.in(3), body.rank(3)));
  if (body.has_input(4)) sum = body.add(sum, with_images(body.in(4), 1));
  write_group_norm_of(body, sum);
  body.output(1, sum);
}

OperatorDraft& group_norm(OperatorDraft& draft) {
  return draft.float_or("epsilon", kEpsilon)
      .required_int("groups")
      .required_int("activation")
      .int_or("channels_last", 1)
      .types("T", float_types())
      .types("M", float_types())
      .keeps_shape();
}

FunctionOperator skip_layer_normalization() {
  return OperatorDraft("SkipLayerNormalization", write_skip_layer_normalization)
      .input("input")
      .input("skip")
      .input("gamma")
      .optional_input("beta")
      .optional_input("bias")
      .output("output")
      .optional_output("mean", "U")
      .optional_output("inv_std_var", "U")
      .optional_output("input_skip_bias_sum")
      .float_or("epsilon", kSkipEpsilon)
      .types("T", float_types())
      .types("U", {"float"})
      .done();
}

FunctionOperator skip_simplified() {
  return OperatorDraft("SkipSimplifiedLayerNormalization", write_skip_simplified)
      .input("input")
      .input("skip")
      .input("gamma")
      .optional_input("bias")
      .output("output")
      .optional_output("mean", "U")
      .optional_output("inv_std_var", "U")
      .optional_output("input_skip_bias_sum")
      .float_or("epsilon", kSkipEpsilon)
      .types("T", float_types())
      .types("U", {"float"})
      .done();
}

FunctionOperator embed_layer_normalization() {
  return OperatorDraft("EmbedLayerNormalization", write_embed_layer_normalization)
      .input("input_ids", "T1")
      .optional_input("segment_ids", "T1")
      .input("word_embedding")
      .input("position_embedding")
      .optional_input("segment_embedding")
      .input("gamma")
      .input("beta")
      .optional_input("mask", "T1")
      .optional_input("position_ids", "T1")
      .output("output")
      .optional_output("mask_index", "T1")
      .optional_output("embedding_sum")
      .float_or("epsilon", kSkipEpsilon)
      .int_or("mask_index_type", 0)
      .types("T", float_types())
      .types("T1", {"int32"})
      .done();
}

}  // namespace

OperatorList normalizations_operators() {
  OperatorList list;
  list.push_back(skip_layer_normalization());
  list.push_back(skip_simplified());
  list.push_back(embed_layer_normalization());
  list.push_back(OperatorDraft("SimplifiedLayerNormalization", write_simplified, "")
                     .input("X")
                     .input("scale", "V")
                     .output("Y", "V")
                     .optional_output("inv_std_var", "U")
                     .int_or("axis", -1)
                     .float_or("epsilon", kEpsilon)
                     .int_or("stash_type", 1)
                     .types("T", float_types())
                     .types("U", {"float", "double"})
                     .types("V", float_types())
                     .done());
  list.push_back(OperatorDraft("LayerNormalization", write_layer_normalization, "")
                     .input("X")
                     .input("Scale")
                     .optional_input("B")
                     .output("Y")
                     .optional_output("Mean", "U")
                     .optional_output("InvStdDev", "U")
                     .int_or("axis", -1)
                     .float_or("epsilon", kEpsilon)
                     .int_or("stash_type", 1)
                     .types("T", float_types())
                     .types("U", {"float", "bfloat16"})
                     .done());
  OperatorDraft plain("GroupNorm", write_group_norm);
  plain.input("X").input("gamma", "M").input("beta", "M").output("Y");
  list.push_back(group_norm(plain).done());
  OperatorDraft skip("SkipGroupNorm", write_skip_group_norm);
  skip.input("X").input("gamma", "M").input("beta", "M").input("skip").optional_input("bias");
  skip.output("Y").optional_output("S");
  list.push_back(group_norm(skip).done());
  return list;
}

}  // namespace backplane::core
