#include "plugins/cuda/rewrite/convolutions.hpp"

#include <cmath>
#include <vector>

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using device_ops::only_consumer;
using sdk::DataType;

/// A convolution and what it takes over.
struct FusedConvolution {
  std::vector<sdk::Node> replaced;
  sdk::ValueInfo result;
  std::string weights, bias, addend;
  bool has_relu = false;

  void take(const sdk::Node& next) {
    replaced.push_back(next);
    result = next.output(0);
  }
};

bool is_float_constant(const sdk::ValueInfo& value) {
  return value && value.is_constant() && value.type() == DataType::Float;
}

/// What a normalisation by constants does to a filter: a factor, and what is added. Sources: weights, scale, bias,
/// mean, variance and, where it has one, the convolution's bias.
struct Normalization {
  float epsilon;
  std::int64_t filters, taps;
  bool has_bias;

  static const float* source(const sdk::PackContext& ctx, std::size_t index) {
    return ctx.source(index).data<float>();
  }
  float factor(const sdk::PackContext& ctx, std::int64_t filter) const {
    return source(ctx, 1)[filter] / std::sqrt(source(ctx, 4)[filter] + epsilon);
  }
  void make_weights(const sdk::PackContext& ctx) const {
    auto* const to = ctx.target().mutable_data<float>();
    for (std::int64_t filter = 0; filter < filters; ++filter) {
      const float scale = factor(ctx, filter);
      for (std::int64_t tap = filter * taps; tap < (filter + 1) * taps; ++tap)
        to[tap] = source(ctx, 0)[tap] * scale;
    }
  }
  void make_bias(const sdk::PackContext& ctx) const {
    auto* const to = ctx.target().mutable_data<float>();
    for (std::int64_t filter = 0; filter < filters; ++filter) {
      const float before = has_bias ? source(ctx, 5)[filter] : 0;
      to[filter] = (before - source(ctx, 3)[filter]) * factor(ctx, filter) + source(ctx, 2)[filter];
    }
  }
};

/// BatchNormalization by constants becomes part of the weights and the bias.
void take_normalization(const sdk::Node& conv, const NodeSet& taken, sdk::Rewrite& edit,
                        FusedConvolution& fusion) {
  const sdk::Node next = only_consumer(fusion.result, taken);
  if (!next || !next.is("BatchNormalization") || next.output_count() != 1) return;
  if (next.get_int("training_mode", 0) != 0 || next.get_int("spatial", 1) == 0) return;
  if (!is_float_constant(conv.input(1)) || !conv.input(1).is_static()) return;
  std::vector<std::string> sources{conv.input(1).name()};
  for (std::size_t i = 1; i < 5; ++i) {
    if (!is_float_constant(next.input(i))) return;
    sources.emplace_back(next.input(i).name());
  }
  const bool has_bias = static_cast<bool>(conv.input(2));
  if (has_bias && !is_float_constant(conv.input(2))) return;
  if (has_bias) sources.emplace_back(conv.input(2).name());
  const sdk::DimsView dims = conv.input(1).dims();
  const Normalization normalization{next.get_float("epsilon", 1e-5f), dims[0],
                                    sdk::element_count(dims) / std::max<std::int64_t>(1, dims[0]),
                                    has_bias};
  const std::string key =
      sdk::message("normalised ", std::hexfloat, normalization.epsilon, has_bias ? " b" : "");
  fusion.weights = sdk::message(conv.name(), "/cuda_weights");
  fusion.bias = sdk::message(conv.name(), "/cuda_bias");
  edit.lazy_constant(
      fusion.weights, DataType::Float, dims, sources, key + " weights",
      [normalization](const sdk::PackContext& ctx) { normalization.make_weights(ctx); });
  edit.lazy_constant(
      fusion.bias, DataType::Float, sdk::Dims{dims[0]}, sources, key + " bias",
      [normalization](const sdk::PackContext& ctx) { normalization.make_bias(ctx); });
  fusion.take(next);
}

void take_addend(const NodeSet& taken, FusedConvolution& fusion) {
  const sdk::Node next = only_consumer(fusion.result, taken);
  if (!next || !(next.is("Add") || next.is("Sum")) || next.input_count() != 2) return;
  const sdk::ValueInfo other = next.input(next.input(0) == fusion.result ? 1 : 0);
  if (other == fusion.result || other.is_constant() || other.type() != fusion.result.type() ||
      !device_ops::same_dims(other, fusion.result))
    return;
  fusion.addend = other.name();
  fusion.take(next);
}

void add_node(const sdk::Node& node, const FusedConvolution& fusion, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(), "FusedConv");
  draft.input(node.input(0).name()).input(fusion.weights).input(fusion.bias);
  if (!fusion.addend.empty()) draft.input(fusion.addend);
  draft.output(fusion.result.name()).attribute("origin", std::string(node.name()));
  for (const char* const name : {"strides", "pads", "dilations", "kernel_shape"}) {
    if (node.has(name)) draft.attribute(name, node.get_ints(name));
  }
  if (node.has("group")) draft.attribute("group", node.get_int("group", 1));
  if (node.has("auto_pad")) draft.attribute("auto_pad", node.get_string("auto_pad", ""));
  if (fusion.has_relu) draft.attribute("activation", std::string("Relu"));
  for (const sdk::Node& replaced : fusion.replaced) draft.replaces(replaced);
  draft.add();
}

}  // namespace

void fuse_convolutions(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!node.is("Conv") || taken.count(node.raw()) > 0) continue;
    const DataType type = node.output(0).type();
    if (type != DataType::Float && type != DataType::Float16 && type != DataType::BFloat16)
      continue;
    FusedConvolution fusion;
    fusion.replaced.push_back(node);
    fusion.result = node.output(0);
    fusion.weights = node.input(1).name();
    if (node.input(2)) fusion.bias = node.input(2).name();
    take_normalization(node, taken, edit, fusion);
    take_addend(taken, fusion);
    const sdk::Node next = only_consumer(fusion.result, taken);
    if (next && next.is("Relu")) {
      fusion.has_relu = true;
      fusion.take(next);
    }
    if (fusion.replaced.size() == 1) continue;
    for (const sdk::Node& each : fusion.replaced) taken.insert(each.raw());
    add_node(node, fusion, edit);
  }
}

}  // namespace backplane::cuda
