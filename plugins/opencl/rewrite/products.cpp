// A product or convolution takes over the nodes after it: normalisation, residual, bias, activation.
#include <cmath>

#include "plugins/opencl/kernels/activation.hpp"
#include "plugins/opencl/rewrite/passes.hpp"

namespace backplane::opencl {
namespace {

bool is_float_constant(const sdk::ValueInfo& value) {
  return value && value.is_constant() && value.type() == DataType::Float;
}

const float* floats_of(const sdk::PackContext& ctx, std::size_t index) {
  return ctx.source(index).data<float>();
}

/// A product or convolution and the nodes after it whose work it takes over.
struct Fusion {
  std::vector<sdk::Node> replaced;
  sdk::ValueInfo result;
  std::string weights, bias, residual, activation;
  std::vector<float> parameters;

  const NodeSet& taken;  ///< by other fusions

  Fusion(const sdk::Node& node, const NodeSet& taken_nodes)
      : replaced{node}, result(node.output(0)), taken(taken_nodes) {
    weights = node.input(1).name();
    if (node.input(2)) bias = node.input(2).name();
  }
  bool is_fused() const { return replaced.size() > 1; }
  void take(const sdk::Node& next) {
    replaced.push_back(next);
    result = next.output(0);
  }
};

/// BatchNormalization of constants becomes part of the weights and the bias.
void take_batch_normalization(const sdk::Node& conv, sdk::Rewrite& edit, Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, fusion.taken);
  if (!next || !next.is("BatchNormalization") || next.output_count() != 1) return;
  if (next.get_int("training_mode", 0) != 0 || next.get_int("spatial", 1) == 0) return;
  std::vector<std::string> sources{conv.input(1).name()};
  for (std::size_t i = 1; i < 5; ++i) {
    if (!is_float_constant(next.input(i))) return;
    sources.emplace_back(next.input(i).name());
  }
  const bool has_bias = static_cast<bool>(conv.input(2));
  if (has_bias) sources.emplace_back(conv.input(2).name());
  const DimsView dims = conv.input(1).dims();
  const std::int64_t filters = dims[0],
                     taps = sdk::element_count(dims) / std::max<std::int64_t>(1, filters);
  const float epsilon = next.get_float("epsilon", 1e-5f);
  const auto factor = [epsilon](const sdk::PackContext& ctx, std::int64_t m) {
    return floats_of(ctx, 1)[m] / std::sqrt(floats_of(ctx, 4)[m] + epsilon);
  };
  const std::string key = sdk::message("normalised ", std::hexfloat, epsilon, has_bias ? " b" : "");
  fusion.weights = sdk::message(conv.name(), "/opencl_weights");
  fusion.bias = sdk::message(conv.name(), "/opencl_bias");
  edit.lazy_constant(fusion.weights, DataType::Float, dims, sources, key + " weights",
                     [=](const sdk::PackContext& ctx) {
                       auto* const to = ctx.target().mutable_data<float>();
                       for (std::int64_t m = 0; m < filters; ++m) {
                         const float scale = factor(ctx, m);
                         for (std::int64_t k = 0; k < taps; ++k)
                           to[m * taps + k] = floats_of(ctx, 0)[m * taps + k] * scale;
                       }
                     });
  edit.lazy_constant(fusion.bias, DataType::Float, Dims{filters}, sources, key + " bias",
                     [=](const sdk::PackContext& ctx) {
                       auto* const to = ctx.target().mutable_data<float>();
                       for (std::int64_t m = 0; m < filters; ++m) {
                         const float before = has_bias ? floats_of(ctx, 5)[m] : 0;
                         to[m] = (before - floats_of(ctx, 3)[m]) * factor(ctx, m) +
                                 floats_of(ctx, 2)[m];
                       }
                     });
  fusion.take(next);
}

/// An addition of another value of the same dims. A product's may turn out to be others in a run, which its kernel then adds
/// by a step of its own.
void take_residual(bool is_conv, Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, fusion.taken);
  if (!next || !(next.is("Add") || next.is("Sum")) || next.input_count() != 2) return;
  const sdk::ValueInfo other = next.input(next.input(0) == fusion.result ? 1 : 0);
  if (other == fusion.result || other.is_constant() || other.type() != DataType::Float) return;
  const DimsMatch match = match_dims(other, fusion.result);
  if (match != DimsMatch::kSame && (is_conv || match != DimsMatch::kPerhaps)) return;
  fusion.residual = other.name();
  fusion.take(next);
}

void take_activation(Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, fusion.taken);
  if (!next || next.output_count() != 1) return;
  std::string name;
  std::vector<float> parameters;
  if (!read_activation(next, name, parameters)) return;
  fusion.activation = name;
  fusion.parameters = parameters;
  fusion.take(next);
}

/// x * sigmoid(x), where the product has no other reader.
void take_gate(Fusion& fusion) {
  const sdk::ValueInfo value = fusion.result;
  if (value.is_output() || value.consumer_count() != 2 || !fusion.activation.empty()) return;
  for (std::size_t i = 0; i < 2; ++i) {
    const sdk::Node gate = value.consumer(i), product = value.consumer(1 - i);
    if (!gate.is("Sigmoid") || !product.is("Mul")) continue;
    if (fusion.taken.count(gate.raw()) > 0) continue;
    const sdk::ValueInfo gated = gate.output(0);
    if (only_consumer(gated, fusion.taken) != product) continue;
    fusion.activation = "Swish";
    fusion.replaced.push_back(gate);
    fusion.take(product);
    return;
  }
}

/// A constant row that is added to each row of the product.
void take_row_bias(const sdk::Node& product, Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, fusion.taken);
  if (!next || !next.is("Add") || !fusion.bias.empty()) return;
  const sdk::ValueInfo other = next.input(next.input(0) == fusion.result ? 1 : 0);
  const DimsView weights = product.input(1).dims();
  if (!is_float_constant(other) || other.rank() != 1 || weights.size() != 2 ||
      other.dims()[0] != weights[1])
    return;
  fusion.bias = other.name();
  fusion.take(next);
}

void add_node(const sdk::Node& node, const char* op_type, const Fusion& fusion,
              sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), op_type);
  draft.name(std::string(node.name()));
  draft.input(node.input(0).name()).input(fusion.weights).input(fusion.bias);
  if (!fusion.residual.empty()) draft.input(fusion.residual);
  draft.output(fusion.result.name());
  for (const char* const name : {"strides", "pads", "dilations", "kernel_shape"}) {
    if (node.has(name)) draft.attribute(name, node.get_ints(name));
  }
  for (const char* const name : {"group", "transA", "transB"}) {
    if (node.has(name)) draft.attribute(name, node.get_int(name, 0));
  }
  for (const char* const name : {"alpha", "beta"}) {
    if (node.has(name)) draft.attribute(name, node.get_float(name, 1));
  }
  if (node.has("auto_pad")) draft.attribute("auto_pad", node.get_string("auto_pad", ""));
  if (!fusion.activation.empty()) {
    draft.attribute("activation", fusion.activation);
    if (!fusion.parameters.empty()) draft.attribute("activation_parameters", fusion.parameters);
  }
  for (const sdk::Node& replaced : fusion.replaced) draft.replaces(replaced);
  draft.add();
}

/// Lets a product or convolution take over what it can of the nodes after it.
void fuse(const sdk::Node& node, const char* op_type, NodeSet& taken, sdk::Rewrite& edit) {
  const bool is_conv = node.is("Conv"), is_gemm = node.is("Gemm"), is_matmul = node.is("MatMul");
  Fusion fusion(node, taken);
  if (is_conv) take_batch_normalization(node, edit, fusion);
  if (is_matmul) take_row_bias(node, fusion);
  if (!is_gemm) take_residual(is_conv, fusion);
  const bool plain_gemm = !is_gemm || !node.input(2) || node.get_float("beta", 1) == 1;
  if (plain_gemm) take_activation(fusion);
  if (plain_gemm) take_gate(fusion);
  if (!fusion.is_fused()) return;
  for (const sdk::Node& each : fusion.replaced) taken.insert(each.raw());
  add_node(node, op_type, fusion, edit);
}

/// What the node becomes with what it takes over; null for others than products and convolutions.
const char* fused_op_type(const sdk::Node& node) {
  if (node.is("Conv")) return "FusedConv";
  if (node.is("Gemm")) return "FusedGemm";
  return node.is("MatMul") ? "FusedMatMul" : nullptr;
}

}  // namespace

void fuse_products(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    const char* const op_type = fused_op_type(node);
    if (op_type == nullptr) continue;
    if (node.input(0).type() != DataType::Float || !is_float_constant(node.input(1))) continue;
    fuse(node, op_type, taken, edit);
  }
}

}  // namespace backplane::opencl
