// QGemm, QLinearConv, DynamicQuantizeMatMul, MatMulIntegerToFloat, QAttention, DynamicQuantizeLSTM,
// QEmbedLayerNormalization: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"
#include "core/onnx/projected_attention.hpp"
#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

void write_qgemm(BodyWriter& body) {
  const bool is_turned = body.int_of("transB") != 0;
  const bool is_by_column = body.known_rank(4) != 0 && !body.is_scalar(4);
  Name b;
  if (is_by_column) {
    b = body.op("DequantizeLinear", {body.in(3), body.in(4), body.in(5)},
                {{"axis", is_turned ? 0 : 1}});
  } else {
    b = real_of(body, 3, 4, 5);
  }
  const float alpha = body.float_of("alpha");
  Name c;
  if (body.has_input(6)) {  // integers of the products' scale
    const Name scale =
        body.mul(one_number(body, 1), is_by_column ? body.in(4) : one_number(body, 4));
    c = body.mul(body.cast(body.in(6), DataType::Float), scale);
    if (alpha != 1) c = body.mul(c, body.scalar(DataType::Float, alpha));
  }
  const Name y = body.op("Gemm", {real_of(body, 0, 1, 2), b, c},
                         body.attributes({"alpha", "transA", "transB"}));
  if (!body.has_input(7)) {
    body.output(0, y);
    return;
  }
  const DataType type = body.has_input(8) ? body.type(8) : DataType::UInt8;
  body.output(0, bytes_of(body, y, 7, 8, type));
}

void write_qlinear_conv(BodyWriter& body) {
  const bool is_last = body.int_of("channels_last") != 0;
  const std::int64_t rank = is_last ? body.rank(0) : 0;
  BodyWriter::Names inputs;
  for (std::size_t i = 0; i < 9; ++i) inputs.push_back(body.in(i));
  if (is_last) inputs[0] = body.transpose(inputs[0], channels_second(rank));
  const Name y = body.op(
      "QLinearConv", inputs,
      body.attributes({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  body.output(0, is_last ? body.transpose(y, channels_last(rank)) : y);
}

/// As quantize_dynamic writes it: the product of integers, as floats, times both scales at once.
Name scaled_product(BodyWriter& body, const BodyWriter::Names& operands, const Name& a_scale,
                    const Name& b_scale, DataType type) {
  const Name sums = body.cast(body.op("MatMulInteger", operands), type);
  return body.mul(sums, body.mul(a_scale, b_scale));
}

void write_dynamic_quantize_matmul(BodyWriter& body) {
  const auto a = body.ops("DynamicQuantizeLinear", {body.in(0)}, {true, true, true});
  const Name product =
      scaled_product(body, {a[0], body.in(1), a[2], body.in(3)}, a[1], body.in(2), DataType::Float);
  body.output(0, body.add_if(product, body.in(4)));
}

void write_matmul_integer_to_float(BodyWriter& body) {
  const Name product = scaled_product(body, {body.in(0), body.in(1), body.in(4), body.in(5)},
                                      body.in(2), body.in(3), body.type(2));
  body.output(0, body.add_if(product, body.in(6)));
}

void write_qattention(BodyWriter& body) {
  ProjectedAttention attention;
  attention.mask_input = 5;
  attention.past_input = 8;
  attention.projected_width = projected_width(body);
  attention.type = body.type(2);
  const Name product = scaled_product(body, {body.in(0), body.in(1), body.in(6), body.in(7)},
                                      body.in(3), body.in(4), attention.type);
  write_projected_attention(body, body.add(product, body.in(2)), attention);
}

/// Weights of an LSTM, which lie the other way round here: (W - zero) * scale, with one scale or one a column.
Name lstm_weights(BodyWriter& body, std::size_t index, std::size_t scale, std::size_t zero) {
  const auto columns = [&](const Name& value, std::size_t from) {
    const bool is_one = body.rank(from) == 1;
    return body.unsqueeze(value,
                          is_one ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1});
  };
  const Name zeros = columns(body.cast(body.in(zero), DataType::Float), zero);
  const Name numbers = body.op("Sub", {body.cast(body.in(index), DataType::Float), zeros});
  return body.transpose(body.mul(numbers, columns(body.in(scale), scale)), {0, 2, 1});
}

/// With the weights' real values; the rounding of X and the states, which its name is from, is left out.
void write_dynamic_quantize_lstm(BodyWriter& body) {
  const auto outputs =
      body.ops("LSTM",
               {body.in(0), lstm_weights(body, 1, 8, 9), lstm_weights(body, 2, 10, 11), body.in(3),
                body.in(4), body.in(5), body.in(6), body.in(7)},
               {body.has_output(0), body.has_output(1), body.has_output(2)},
               body.attributes({"activation_alpha", "activation_beta", "activations", "clip",
                                "direction", "hidden_size", "input_forget"}));
  for (std::size_t i = 0; i < outputs.size(); ++i) body.output(i, outputs[i]);
}

void write_qembed_layer_normalization(BodyWriter& body) {
  const auto rows = [&](std::size_t table, std::size_t scale, std::size_t zero, const Name& ids) {
    const Name bytes = ids.empty()
                           ? body.slice(body.in(table), 0, body.ints({0}), body.input_size(0, 1))
                           : body.op("Gather", {body.in(table), ids});
    return body.op("DequantizeLinear", {bytes, one_number(body, scale), one_number(body, zero)});
  };
  Name sum = body.add(rows(2, 8, 13, body.in(0)), rows(3, 9, 14, ""));
  if (body.has_input(4)) {
    if (!body.has_input(1)) invalid("it has segment embeddings, but no segment ids");
    sum = body.add(sum, rows(4, 10, 15, body.in(1)));
  }
  body.output(
      0, body.op("LayerNormalization", {sum, real_of(body, 5, 11, 16), real_of(body, 6, 12, 17)},
                 {{"axis", -1}, {"epsilon", body.float_of("epsilon")}}));
  if (!body.has_output(1)) return;
  if (body.has_input(7)) {
    body.output(1, body.op("ReduceSum", {body.in(7), body.ints({1})}, {{"keepdims", 0}}));
  } else {
    const Name zero = body.scalar(DataType::Int32, 0);
    body.output(1, body.op("Expand", {zero, body.input_size(0, 0)}));
  }
}

FunctionOperator qgemm() {
  return OperatorDraft("QGemm", write_qgemm)
      .input("A", "TA")
      .input("a_scale")
      .input("a_zero_point", "TA")
      .input("B", "TB")
      .input("b_scale")
      .input("b_zero_point", "TB")
      .optional_input("C", "TC")
      .optional_input("y_scale")
      .optional_input("y_zero_point", "TYZ")
      .output("Y", "TY")
      .float_or("alpha", 1)
      .int_or("transA", 0)
      .int_or("transB", 0)
      .types("T", {"float"})
      .types("TA", byte_types())
      .types("TB", byte_types())
      .types("TC", {"int32"})
      .types("TYZ", byte_types())
      .types("TY", {"float", "int8", "uint8"})
      .done();
}

FunctionOperator qlinear_conv() {
  return OperatorDraft("QLinearConv", write_qlinear_conv)
      .input("x", "T1")
      .input("x_scale", "float")
      .input("x_zero_point", "T1")
      .input("w", "T2")
      .input("w_scale", "float")
      .input("w_zero_point", "T2")
      .input("y_scale", "float")
      .input("y_zero_point", "T3")
      .optional_input("B", "T4")
      .output("y", "T3")
      .string_or("auto_pad", "NOTSET")
      .ints("kernel_shape")
      .ints("dilations")
      .ints("strides")
      .ints("pads")
      .int_or("group", 1)
      .int_or("channels_last", 0)
      .types("T1", byte_types())
      .types("T2", byte_types())
      .types("T3", byte_types())
      .types("T4", {"int32"})
      .done();
}

FunctionOperator qattention() {
  return OperatorDraft("QAttention", write_qattention)
      .input("input", "T1")
      .input("weight", "T2")
      .input("bias", "T3")
      .input("input_scale", "T3")
      .input("weight_scale", "T3")
      .optional_input("mask_index", "T4")
      .optional_input("input_zero_point", "T1")
      .optional_input("weight_zero_point", "T2")
      .optional_input("past", "T3")
      .output("output", "T3")
      .optional_output("present", "T3")
      .required_int("num_heads")
      .int_or("unidirectional", 0)
      .optional_int("do_rotary")
      .optional_int("past_present_share_buffer")
      .optional_float("mask_filter_value")
      .optional_float("scale")
      .types("T1", byte_types())
      .types("T2", byte_types())
      .types("T3", {"float", "float16"})
      .types("T4", {"int32"})
      .done();
}

FunctionOperator dynamic_quantize_lstm() {
  return OperatorDraft("DynamicQuantizeLSTM", write_dynamic_quantize_lstm)
      .input("X")
      .input("W", "T2")
      .input("R", "T2")
      .optional_input("B")
      .optional_input("sequence_lens", "T1")
      .optional_input("initial_h")
      .optional_input("initial_c")
      .optional_input("P")
      .input("W_scale")
      .input("W_zero_point", "T2")
      .input("R_scale")
      .input("R_zero_point", "T2")
      .optional_output("Y")
      .optional_output("Y_h")
      .optional_output("Y_c")
      .floats("activation_alpha")
      .floats("activation_beta")
      .strings("activations")
      .optional_float("clip")
      .string_or("direction", "forward")
      .optional_int("hidden_size")
      .int_or("input_forget", 0)
      .types("T", {"float"})
      .types("T1", {"int32"})
      .types("T2", byte_types())
      .done();
}

FunctionOperator qembed_layer_normalization() {
  constexpr float kEmbedEpsilon = 1e-12F;
  OperatorDraft draft("QEmbedLayerNormalization", write_qembed_layer_normalization);
  draft.input("input_ids", "T1").optional_input("segment_ids", "T1");
  draft.input("word_embedding_quant", "T2").input("position_embedding_quant", "T2");
  draft.optional_input("segment_embedding", "T2").input("gamma_quant", "T2");
  draft.input("beta_quant", "T2").optional_input("mask", "T1");
  draft.input("word_embedding_scale").input("position_embedding_scale");
  draft.optional_input("segment_embedding_scale").input("gamma_scale").input("beta_scale");
  draft.input("word_embedding_zero_point", "T2").input("position_embedding_zero_point", "T2");
  draft.optional_input("segment_embedding_zero_point", "T2").input("gamma_zero_point", "T2");
  draft.input("beta_zero_point", "T2").output("layernorm_out").output("mask_index_out", "T1");
  return draft.float_or("epsilon", kEmbedEpsilon)
      .types("T", {"float"})
      .types("T1", {"int32"})
      .types("T2", byte_types())
      .done();
}

}  // namespace

OperatorList quantized_products_operators() {
  OperatorList list;
  list.push_back(qgemm());
  list.push_back(qlinear_conv());
  list.push_back(OperatorDraft("DynamicQuantizeMatMul", write_dynamic_quantize_matmul)
                     .input("A", "T1")
                     .input("B", "T2")
                     .input("b_scale", "T1")
                     .optional_input("b_zero_point", "T2")
                     .optional_input("bias", "T1")
                     .output("Y", "T1")
                     .types("T1", {"float"})
                     .types("T2", byte_types())
                     .done());
  list.push_back(OperatorDraft("MatMulIntegerToFloat", write_matmul_integer_to_float)
                     .input("A", "T1")
                     .input("B", "T2")
                     .input("a_scale", "T3")
                     .input("b_scale", "T3")
                     .optional_input("a_zero_point", "T1")
                     .optional_input("b_zero_point", "T2")
                     .optional_input("bias", "T3")
                     .output("Y", "T3")
                     .types("T1", byte_types())
                     .types("T2", byte_types())
                     .types("T3", {"float", "float16"})
                     .done());
  list.push_back(qattention());
  list.push_back(dynamic_quantize_lstm());
  list.push_back(qembed_layer_normalization());
  return list;
}

}  // namespace backplane::core
