// QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearWhere, QLinearConcat, QLinearSoftmax,
// QLinearAveragePool, QLinearGlobalAveragePool, QLinearReduceMean, NhwcMaxPool, MulInteger, ReduceSumInteger,
// QuantizeLinear, DequantizeLinear: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Most mean: real values, a float operator, bytes. Providers compute such a chain with the bytes where they can.
#include "core/onnx/function_operator.hpp"
#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

/// A, its scale and zero point, B with its own, and those of C.
void write_qlinear_binary(BodyWriter& body, const char* op) {
  const Name a = real_of(body, 0, 1, 2), b = real_of(body, 3, 4, 5);
  body.output(0, bytes_of(body, body.op(op, {a, b}), 6, 7, body.type(0)));
}
void write_qlinear_add(BodyWriter& body) { write_qlinear_binary(body, "Add"); }
void write_qlinear_mul(BodyWriter& body) { write_qlinear_binary(body, "Mul"); }

/// X, its scale and zero point, and those of Y.
void write_qlinear_unary(BodyWriter& body, const char* op, const BodyWriter::Attrs& attributes) {
  const Name y = body.op(op, {real_of(body, 0, 1, 2)}, attributes);
  body.output(0, bytes_of(body, y, 3, 4, body.type(0)));
}
void write_qlinear_sigmoid(BodyWriter& body) { write_qlinear_unary(body, "Sigmoid", {}); }
void write_qlinear_leaky_relu(BodyWriter& body) {
  write_qlinear_unary(body, "LeakyRelu", body.attributes({"alpha"}));
}

void write_qlinear_softmax(BodyWriter& body) {
  constexpr std::int64_t kByAxis = 13;  // opset; before it, Softmax was over all later axes as one
  const std::int64_t rank = body.rank(0);
  const std::int64_t axis = counted_axis(body.int_of("axis"), rank);
  Name x = real_of(body, 0, 1, 2);
  if (body.int_of("opset") >= kByAxis || axis == rank - 1) {
    x = body.op("Softmax", {x}, {{"axis", axis}});
  } else {
    const Name flat = body.op("Flatten", {x}, {{"axis", axis}});
    const Name soft = body.op("Softmax", {flat}, {{"axis", -1}});
    x = body.reshape_to(soft, body.op("Shape", {body.in(0)}));
  }
  body.output(0, bytes_of(body, x, 3, 4, body.type(0)));
}

void write_qlinear_where(BodyWriter& body) {
  const Name chosen =
      body.op("Where", {body.in(0), real_of(body, 1, 2, 3), real_of(body, 4, 5, 6)});
  body.output(0, bytes_of(body, chosen, 7, 8, body.type(1)));
}

void write_qlinear_concat(BodyWriter& body) {
  if (body.input_count() < 5 || (body.input_count() - 2) % 3 != 0)
    invalid("it has ", body.input_count(),
            " inputs; two and then three for each tensor are needed");
  BodyWriter::Names parts;
  for (std::size_t i = 2; i < body.input_count(); i += 3)
    parts.push_back(real_of(body, i, i + 1, i + 2));
  body.output(0, bytes_of(body, body.concat(parts, body.int_of("axis")), 0, 1, body.type(2)));
}

/// Channels last, or as ONNX has them: `write` does the work on the latter.
template <class Write>
Name on_images(BodyWriter& body, const Name& x, bool is_last, const Write& write) {
  if (!is_last) return write(x);
  const std::int64_t rank = body.rank(0);
  return body.transpose(write(body.transpose(x, channels_second(rank))), channels_last(rank));
}

void write_qlinear_average_pool(BodyWriter& body) {
  const auto attributes = body.attributes(
      {"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"});
  const Name y = on_images(body, real_of(body, 0, 1, 2), body.int_of("channels_last") != 0,
                           [&](const Name& x) { return body.op("AveragePool", {x}, attributes); });
  body.output(0, bytes_of(body, y, 3, 4, body.type(0)));
}

void write_qlinear_global_average_pool(BodyWriter& body) {
  const Name y = on_images(body, real_of(body, 0, 1, 2), body.int_of("channels_last") != 0,
                           [&](const Name& x) { return body.op("GlobalAveragePool", {x}); });
  body.output(0, bytes_of(body, y, 3, 4, body.type(0)));
}

void write_qlinear_reduce_mean(BodyWriter& body) {
  const Name y = body.op("ReduceMean", {real_of(body, 0, 1, 2), body.ints(body.ints_of("axes"))},
                         {{"keepdims", body.int_of("keepdims", 1)}});
  body.output(0, bytes_of(body, y, 3, 4, body.type(0)));
}

void write_nhwc_max_pool(BodyWriter& body) {
  const auto attributes =
      body.attributes({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"});
  body.output(0, on_images(body, body.in(0), true,
                           [&](const Name& x) { return body.op("MaxPool", {x}, attributes); }));
}

void write_mul_integer(BodyWriter& body) {
  const auto whole = [&](std::size_t value, std::size_t zero) {
    Name numbers = body.cast(body.in(value), DataType::Int32);
    if (!body.has_input(zero)) return numbers;
    return body.op("Sub", {numbers, body.cast(body.in(zero), DataType::Int32)});
  };
  body.output(0, body.mul(whole(0, 1), whole(2, 3)));
}

void write_reduce_sum_integer(BodyWriter& body) {
  const DataType type = body.type(0) == DataType::UInt8 ? DataType::UInt32 : DataType::Int32;
  body.output(0,
              body.op("ReduceSum", {body.cast(body.in(0), type), body.ints(body.ints_of("axes"))},
                      {{"keepdims", body.int_of("keepdims", 1)}}));
}

/// With an axis, one scale for each of it.
void write_quantize_linear(BodyWriter& body) {
  if (body.has_attribute("axis")) {
    body.output(0, body.op("QuantizeLinear", {body.in(0), body.in(1), body.in(2)},
                           body.attributes({"axis"})));
    return;
  }
  body.output(0, body.op("QuantizeLinear", {body.in(0), one_number(body, 1), one_number(body, 2)}));
}

void write_dequantize_linear(BodyWriter& body) {
  if (body.has_attribute("axis")) {
    body.output(0, body.op("DequantizeLinear", {body.in(0), body.in(1), body.in(2)},
                           body.attributes({"axis"})));
    return;
  }
  body.output(0, real_of(body, 0, 1, 2));
}

OperatorDraft& binary(OperatorDraft& draft) {
  return draft.input("A")
      .input("A_scale", "float")
      .optional_input("A_zero_point")
      .input("B")
      .input("B_scale", "float")
      .optional_input("B_zero_point")
      .input("C_scale", "float")
      .optional_input("C_zero_point")
      .output("C")
      .types("T", byte_types());
}

/// X and Y with their scales and zero points.
OperatorDraft& unary(OperatorDraft& draft) {
  return draft.input("X")
      .input("X_scale", "float")
      .optional_input("X_zero_point")
      .input("Y_scale", "float")
      .optional_input("Y_zero_point")
      .output("Y")
      .types("T", byte_types());
}

void add_pointwise(OperatorList& list) {
  OperatorDraft sum("QLinearAdd", write_qlinear_add), product("QLinearMul", write_qlinear_mul);
  list.push_back(binary(sum).done());
  list.push_back(binary(product).done());
  OperatorDraft sigmoid("QLinearSigmoid", write_qlinear_sigmoid);
  list.push_back(unary(sigmoid).keeps_shape().done());
  OperatorDraft leaky("QLinearLeakyRelu", write_qlinear_leaky_relu);
  constexpr float kLeakyAlpha = 0.01F;
  list.push_back(unary(leaky).float_or("alpha", kLeakyAlpha).keeps_shape().done());
  OperatorDraft softmax("QLinearSoftmax", write_qlinear_softmax);
  list.push_back(unary(softmax).int_or("axis", -1).required_int("opset").keeps_shape().done());
  list.push_back(OperatorDraft("QLinearWhere", write_qlinear_where)
                     .input("condition", "B")
                     .input("X")
                     .input("x_scale", "TF")
                     .input("x_zero_point")
                     .input("Y")
                     .input("y_scale", "TF")
                     .input("y_zero_point")
                     .input("z_scale", "TF")
                     .input("z_zero_point")
                     .output("Z")
                     .types("B", {"bool"})
                     .types("TF", {"float"})
                     .types("T", byte_types())
                     .done());
  list.push_back(OperatorDraft("QLinearConcat", write_qlinear_concat)
                     .input("Y_scale", "TF")
                     .input("Y_zero_point", "T8")
                     .variadic_input("inputs", "TV")
                     .output("Y", "T8")
                     .required_int("axis")
                     .types("T8", byte_types())
                     .types("TF", {"float"})
                     .types("TV", {"int8", "uint8", "float"})
                     .done());
}

void add_reductions(OperatorList& list) {
  OperatorDraft average("QLinearAveragePool", write_qlinear_average_pool);
  list.push_back(unary(average)
                     .required_ints("kernel_shape")
                     .ints("pads")
                     .ints("strides")
                     .string_or("auto_pad", "NOTSET")
                     .int_or("ceil_mode", 0)
                     .int_or("count_include_pad", 0)
                     .int_or("channels_last", 0)
                     .done());
  OperatorDraft whole("QLinearGlobalAveragePool", write_qlinear_global_average_pool);
  list.push_back(unary(whole).int_or("channels_last", 0).done());
  OperatorDraft mean("QLinearReduceMean", write_qlinear_reduce_mean);
  list.push_back(unary(mean).required_ints("axes").required_int("keepdims").done());
  list.push_back(OperatorDraft("NhwcMaxPool", write_nhwc_max_pool)
                     .input("x")
                     .output("y")
                     .required_ints("kernel_shape")
                     .ints("dilations")
                     .ints("pads")
                     .ints("strides")
                     .string_or("auto_pad", "NOTSET")
                     .int_or("ceil_mode", 0)
                     .types("T", byte_types())
                     .done());
  list.push_back(OperatorDraft("ReduceSumInteger", write_reduce_sum_integer)
                     .input("data", "T1")
                     .output("reduced", "T2")
                     .required_ints("axes")
                     .required_int("keepdims")
                     .types("T1", byte_types())
                     .types("T2", {"int32", "uint32"})
                     .done());
}

}  // namespace

OperatorList quantized_elements_operators() {
  const std::vector<std::string> whole{"int8",  "uint8", "int16", "uint16",
                                       "int32", "int4",  "uint4"};
  OperatorList list;
  add_pointwise(list);
  add_reductions(list);
  list.push_back(OperatorDraft("MulInteger", write_mul_integer)
                     .input("A")
                     .optional_input("A_zero_point")
                     .input("B")
                     .optional_input("B_zero_point")
                     .output("C", "T1")
                     .types("T", byte_types())
                     .types("T1", {"int32"})
                     .done());
  list.push_back(OperatorDraft("QuantizeLinear", write_quantize_linear)
                     .input("x", "T1")
                     .input("y_scale", "T1")
                     .optional_input("y_zero_point", "T2")
                     .output("y", "T2")
                     .optional_int("axis")
                     .types("T1", {"float", "float16"})
                     .types("T2", whole)
                     .done());
  list.push_back(OperatorDraft("DequantizeLinear", write_dequantize_linear)
                     .input("x", "T1")
                     .input("x_scale", "T2")
                     .optional_input("x_zero_point", "T1")
                     .output("y", "T2")
                     .optional_int("axis")
                     .types("T1", whole)
                     .types("T2", {"float", "float16"})
                     .done());
  return list;
}

}  // namespace backplane::core
