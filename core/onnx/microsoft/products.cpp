// FusedMatMul, TransposeMatMul, FusedGemm, FusedConv, NhwcConv, ConvTransposeWithDynamicPads:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>
#include <numeric>

#include "core/onnx/function_operator.hpp"
#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

/// An operand with its axes in the order that MatMul wants.
BodyWriter::Name operand(BodyWriter& body, std::size_t index, bool is_swapped, bool is_rotated) {
  if (!is_swapped && !is_rotated) return body.in(index);
  const std::int64_t rank = body.rank(index);
  if (rank < 2) return body.in(index);
  std::vector<std::int64_t> perm(static_cast<std::size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  // The rows' axis stands first, before those of the batch.
  if (is_rotated) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (is_swapped) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  if (std::is_sorted(perm.begin(), perm.end())) return body.in(index);
  return body.transpose(body.in(index), perm);
}

void write_fused_matmul(BodyWriter& body) {
  const auto a = operand(body, 0, body.int_of("transA") != 0, body.int_of("transBatchA") != 0);
  auto b = operand(body, 1, body.int_of("transB") != 0, body.int_of("transBatchB") != 0);
  const float alpha = body.float_of("alpha");
  if (alpha == 1) {
    body.output(0, body.op("MatMul", {a, b}));
    return;
  }
  const auto factor = body.scalar(body.type(0), alpha);
  if (body.constant(1) != nullptr) {  // weights are scaled once
    body.output(0, body.op("MatMul", {a, body.mul(b, factor)}));
  } else {
    body.output(0, body.mul(body.op("MatMul", {a, b}), factor));
  }
}

/// What the fused operators may do at their end. `parameters` are in the order of ONNX's attributes.
BodyWriter::Name activate(BodyWriter& body, const BodyWriter::Name& value, const std::string& name,
                          const std::vector<float>& parameters) {
  const auto parameter = [&](std::size_t index, float otherwise) {
    return index < parameters.size() ? parameters[index] : otherwise;
  };
  constexpr float kLeakyAlpha = 0.01F, kHardAlpha = 0.2F, kHardBeta = 0.5F;
  if (name.empty()) return value;
  for (const char* plain : {"Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish"}) {
    if (name == plain) return body.op(name, {value});
  }
  if (name == "LeakyRelu") return body.op(name, {value}, {{"alpha", parameter(0, kLeakyAlpha)}});
  if (name == "HardSigmoid")
    return body.op(name, {value},
                   {{"alpha", parameter(0, kHardAlpha)}, {"beta", parameter(1, kHardBeta)}});
  if (name == "Elu" || name == "ThresholdedRelu")
    return body.op(name, {value}, {{"alpha", parameter(0, 1)}});
  if (name == "Clip" && parameters.size() == 2) {
    return body.op(name, {value, body.scalar(body.type(0), parameters[0]),
                          body.scalar(body.type(0), parameters[1])});
  }
  body.refuse("its activation ", name, " with ", parameters.size(),
              " parameters is not known; Relu, Tanh, Sigmoid, Softplus, Softsign, HardSwish, "
              "LeakyRelu, HardSigmoid, Elu, ThresholdedRelu and Clip (min, max) are");
}

void write_fused_gemm(BodyWriter& body) {
  const auto product = body.op("Gemm", {body.in(0), body.in(1), body.in(2)},
                               body.attributes({"alpha", "beta", "transA", "transB"}));
  std::vector<float> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    if (body.has_attribute(name)) parameters.push_back(body.float_of(name));
  }
  body.output(0, activate(body, product, body.string_of("activation"), parameters));
}

void write_fused_conv(BodyWriter& body) {
  auto y = body.op(
      "Conv", {body.in(0), body.in(1), body.in(2)},
      body.attributes({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  y = body.add_if(y, body.in(3));
  body.output(0,
              activate(body, y, body.string_of("activation"), body.floats_of("activation_params")));
}

/// A convolution whose images, weights and results all are channels last.
void write_nhwc_conv(BodyWriter& body) {
  const auto inwards = channels_second(body.rank(0));
  const auto y = body.op(
      "Conv",
      {body.transpose(body.in(0), inwards), body.transpose(body.in(1), inwards), body.in(2)},
      body.attributes({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  body.output(0, body.transpose(y, channels_last(body.rank(0))));
}

/// Without pads, and what they take off at both ends is cut.
void write_conv_transpose_with_dynamic_pads(BodyWriter& body) {
  const std::string automatic = body.string_of("auto_pad", "NOTSET");
  const bool has_pads = body.has_input(2) && automatic == "NOTSET";
  BodyWriter::Attrs attributes =
      body.attributes({"dilations", "group", "kernel_shape", "output_padding", "strides"});
  if (!has_pads) attributes.push_back({"auto_pad", automatic.c_str()});
  const auto whole = body.op("ConvTranspose", {body.in(0), body.in(1), body.in(3)}, attributes);
  if (!has_pads) {
    body.output(0, whole);
    return;
  }
  const std::int64_t axes = body.rank(0) - 2;
  const auto pads = body.reshape(body.in(2), {-1});
  const auto sizes = body.op("Shape", {whole}, {{"start", 2}});
  const auto ends = body.op("Sub", {sizes, body.slice(pads, 0, axes, 2 * axes)});
  std::vector<std::int64_t> cut(static_cast<std::size_t>(axes));
  std::iota(cut.begin(), cut.end(), 2);
  body.output(0, body.op("Slice", {whole, body.slice(pads, 0, 0, axes), ends, body.ints(cut)}));
}

OperatorDraft& windowed(OperatorDraft& draft) {
  return draft.string_or("auto_pad", "NOTSET")
      .ints("kernel_shape")
      .ints("dilations")
      .ints("strides")
      .ints("pads")
      .int_or("group", 1);
}

OperatorDraft& product(OperatorDraft& draft) {
  return draft.input("A").input("B").output("Y").types("T", float_types());
}

}  // namespace

OperatorList products_operators() {
  OperatorList list;
  OperatorDraft fused("FusedMatMul", write_fused_matmul);
  list.push_back(product(fused)
                     .float_or("alpha", 1)
                     .int_or("transA", 0)
                     .int_or("transB", 0)
                     .int_or("transBatchA", 0)
                     .int_or("transBatchB", 0)
                     .done());
  OperatorDraft transposed("TransposeMatMul", write_fused_matmul);
  list.push_back(
      product(transposed).float_or("alpha", 1).int_or("transA", 0).int_or("transB", 0).done());
  list.push_back(
      OperatorDraft("FusedGemm", write_fused_gemm)
          .input("A")
          .input("B")
          .optional_input("C")
          .output("Y")
          .types("T", {"float", "float16", "double", "uint32", "uint64", "int32", "int64"})
          .float_or("alpha", 1)
          .float_or("beta", 1)
          .int_or("transA", 0)
          .int_or("transB", 0)
          .optional_string("activation")
          .optional_float("activation_alpha")
          .optional_float("activation_beta")
          .optional_float("activation_gamma")
          .done());
  OperatorDraft conv("FusedConv", write_fused_conv);
  conv.input("X").input("W").optional_input("B").optional_input("Z").output("Y");
  list.push_back(windowed(conv)
                     .types("T", float_types())
                     .optional_string("activation")
                     .floats("activation_params")
                     .done());
  OperatorDraft last("NhwcConv", write_nhwc_conv);
  last.input("X").input("W").optional_input("B").output("Y");
  list.push_back(windowed(last).types("T", float_types()).done());
  list.push_back(
      OperatorDraft("ConvTransposeWithDynamicPads", write_conv_transpose_with_dynamic_pads)
          .input("X")
          .input("W")
          .optional_input("Pads", "int64")
          .optional_input("B")
          .output("Y")
          .string_or("auto_pad", "NOTSET")
          .ints("kernel_shape")
          .ints("output_padding")
          .ints("dilations")
          .ints("strides")
          .int_or("group", 1)
          .types("T", {"float16", "float", "double"})
          .done());
  return list;
}

}  // namespace backplane::core
