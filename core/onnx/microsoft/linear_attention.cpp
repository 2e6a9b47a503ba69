// LinearAttention and what stands around it: CausalConvWithState, LinearAttentionGate, GatedRMSNorm, GatedAdd, ScaledSiLU:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>

#include "core/base/error.hpp"
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

/// Its state goes on from token to token.
void write_linear_attention(BodyWriter&) {
  throw Error(
      Code::Unsupported,
      "LinearAttention has no body in ONNX's operators; a provider with a kernel of it must "
      "be among the session's");
}

void infer_linear_attention(::onnx::InferenceContext& context) {
  ::onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  const bool has_past = context.getNumInputs() > 3 && context.getInputType(3) != nullptr;
  ::onnx::propagateElemTypeFromInputToOutput(context, has_past ? 3 : 0, 1);
  const auto number = [&](const char* name) {
    const auto* attribute = context.getAttribute(name);
    return attribute == nullptr ? std::int64_t{0} : attribute->i();
  };
  const std::int64_t heads = number("q_num_heads"), kv_heads = number("kv_num_heads");
  if (heads < 1 || kv_heads < 1) return;
  if (!::onnx::hasInputShape(context, 0) || !::onnx::hasInputShape(context, 2)) return;
  const auto& query = ::onnx::getInputShape(context, 0);
  const auto& value = ::onnx::getInputShape(context, 2);
  if (query.dim_size() != 3 || value.dim_size() != 3) return;
  auto* shape = ::onnx::getOutputShape(context, 0);
  for (int axis = 0; axis < 2; ++axis) *shape->add_dim() = query.dim(axis);
  auto* last = shape->add_dim();
  if (value.dim(2).has_dim_value())
    last->set_dim_value(value.dim(2).dim_value() / kv_heads * std::max(heads, kv_heads));
  if (number("state_window") != 0 || context.getNumOutputs() < 2) return;
  auto* state = ::onnx::getOutputShape(context, 1);
  *state->add_dim() = query.dim(0);
  state->add_dim()->set_dim_value(kv_heads);
  auto* rows = state->add_dim();
  if (query.dim(2).has_dim_value()) rows->set_dim_value(query.dim(2).dim_value() / heads);
  auto* columns = state->add_dim();
  if (value.dim(2).has_dim_value()) columns->set_dim_value(value.dim(2).dim_value() / kv_heads);
}

/// The state, zeros where there is none, stands before the input; the end of both is the next state.
void write_causal_conv_with_state(BodyWriter& body) {
  if (body.int_of("ndim", 1) != 1) body.refuse("ndim is ", body.int_of("ndim"), "; 1 is supported");
  if (body.int_of("state_window") != 0) body.refuse("state_window is not 0");
  if (body.int_of("channels_last") != 0)
    body.refuse("channels_last is 1; write Transposes around it instead");
  const std::int64_t dilation = body.int_of("dilation", 1);
  if (dilation < 1) invalid("dilation is ", dilation);
  const std::int64_t channels = body.needed_dim(1, 0, "how many channels there are");
  const std::int64_t before = (body.needed_dim(1, 2, "how long the state is") - 1) * dilation;
  Name past = body.in(3);
  if (past.empty())
    past =
        body.op("Expand", {body.scalar(body.type(0), 0),
                           body.concat({body.input_size(0, 0), body.ints({channels, before})}, 0)});
  const Name whole = body.concat({past, body.in(0)}, 2);
  const Name made =
      body.op("Conv", {whole, body.in(1), body.in(2)},
              {{"group", channels},
               {"dilations", BodyWriter::Attr::Value(std::vector<std::int64_t>{dilation})}});
  const std::string activation = body.string_of("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    body.refuse("its activation ", activation, " is not known; none, silu and swish are");
  body.output(0, activation == "none" ? made : body.mul(made, body.op("Sigmoid", {made})));
  if (!body.has_output(1)) return;
  const Name end = body.size_of(whole, 2);
  body.output(1, body.slice(whole, 2, body.op("Sub", {end, body.ints({before})}), end));
}

Name as(BodyWriter& body, const Name& value, DataType from, DataType to) {
  return from == to ? value : body.cast(value, to);
}

void write_linear_attention_gate(BodyWriter& body) {
  const DataType type = body.type(0);
  const Name a = as(body, body.in(0), type, DataType::Float);
  const Name decay = body.mul(body.op("Softplus", {body.add(a, body.in(1))}), body.in(2));
  body.output(0, as(body, decay, DataType::Float, type));
  if (!body.has_output(1)) return;
  if (!body.has_input(3)) invalid("its output beta is read, but its input b is left out");
  const Name b = as(body, body.in(3), type, DataType::Float);
  body.output(1, as(body, body.op("Sigmoid", {b}), DataType::Float, type));
}

/// Each run of as many elements as the scale has is normalized by itself.
void write_gated_rms_norm(BodyWriter& body) {
  const DataType type = body.type(0);
  const std::int64_t width = body.needed_dim(1, 0, "how many elements are normalized together");
  const std::string activation = body.string_of("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    body.refuse("its activation ", activation, " is not known; silu, swish and sigmoid are");
  const auto real = [&](std::size_t index) {
    return as(body, body.in(index), type, DataType::Float);
  };
  const Name normal = body.op("RMSNormalization", {body.reshape(real(0), {-1, width}), real(1)},
                              {{"axis", -1}, {"epsilon", body.float_of("epsilon")}});
  const Name gate = body.reshape(real(2), {-1, width});
  Name open = body.op("Sigmoid", {gate});
  if (activation != "sigmoid") open = body.mul(gate, open);
  const Name shaped = body.reshape_as(body.mul(normal, open), 0);
  body.output(0, as(body, shaped, DataType::Float, type));
}

void write_gated_add(BodyWriter& body) {
  body.output(0, body.add(body.in(0), body.mul(body.in(1), body.in(2))));
}

void write_scaled_silu(BodyWriter& body) {
  Name scaled = body.in(0);
  if (body.has_input(1)) {
    const Name scale = as(body, body.reshape(body.in(1), {}), body.type(1), DataType::Float);
    const Name real = as(body, body.in(0), body.type(0), DataType::Float);
    scaled = as(body, body.mul(real, scale), DataType::Float, body.type(0));
  } else if (body.float_of("alpha", 1) != 1) {
    scaled = body.mul(scaled, body.scalar(body.type(0), body.float_of("alpha")));
  }
  body.output(0, body.mul(scaled, body.op("Sigmoid", {scaled})));
}

const std::vector<std::string> kReals{"float", "float16", "bfloat16"};

void add_recurrences(OperatorList& list) {
  list.push_back(OperatorDraft("LinearAttention", write_linear_attention)
                     .input("query")
                     .input("key")
                     .input("value")
                     .optional_input("past_state", "S")
                     .optional_input("decay")
                     .optional_input("beta")
                     .output("output")
                     .output("present_state", "S")
                     .required_int("q_num_heads")
                     .required_int("kv_num_heads")
                     .string_or("update_rule", "gated_delta")
                     .float_or("scale", 0)
                     .int_or("chunk_size", 64)
                     .int_or("state_window", 0)
                     .types("T", kReals)
                     .types("S", kReals)
                     .infers(infer_linear_attention)
                     .done());
  list.push_back(OperatorDraft("CausalConvWithState", write_causal_conv_with_state)
                     .input("input")
                     .input("weight")
                     .optional_input("bias")
                     .optional_input("past_state")
                     .output("output")
                     .output("present_state")
                     .string_or("activation", "none")
                     .int_or("ndim", 1)
                     .int_or("dilation", 1)
                     .int_or("channels_last", 0)
                     .int_or("state_window", 0)
                     .types("T", kReals)
                     .done());
}

void add_gates(OperatorList& list) {
  constexpr float kEpsilon = 1e-5F;
  list.push_back(OperatorDraft("LinearAttentionGate", write_linear_attention_gate)
                     .input("a")
                     .input("dt_bias", "TF")
                     .input("decay_scale", "TF")
                     .optional_input("b")
                     .output("decay")
                     .optional_output("beta")
                     .types("T", kReals)
                     .types("TF", {"float"})
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("GatedRMSNorm", write_gated_rms_norm)
                     .input("X")
                     .input("scale")
                     .input("gate")
                     .output("Y")
                     .string_or("activation", "silu")
                     .float_or("epsilon", kEpsilon)
                     .types("T", kReals)
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("GatedAdd", write_gated_add)
                     .input("X")
                     .input("Y")
                     .input("gate")
                     .output("output")
                     .types("T", kReals)
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("ScaledSiLU", write_scaled_silu)
                     .input("X")
                     .optional_input("scale", "M")
                     .output("Y")
                     .float_or("alpha", 1)
                     .types("T", kReals)
                     .types("M", kReals)
                     .keeps_shape()
                     .done());
}

}  // namespace

OperatorList linear_attention_operators() {
  OperatorList list;
  add_recurrences(list);
  add_gates(list);
  return list;
}

}  // namespace backplane::core
