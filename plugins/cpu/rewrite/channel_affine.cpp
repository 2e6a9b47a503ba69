#include "plugins/cpu/rewrite/channel_affine.hpp"

#include <cmath>

#include "plugins/cpu/kernels/subnormals.hpp"

namespace backplane::cpu {
namespace {

/// Whether a constant is one number, or one number per channel where the channels are axis 1 of `rank`.
bool is_channel_vector(const bp_tensor* tensor, int64_t channels, int rank) {
  if (tensor == nullptr || tensor->dtype != BP_FLOAT) return false;
  const sdk::DimsView dims = sdk::Tensor(tensor).dims();
  if (sdk::element_count(dims) == 1) return static_cast<int>(dims.size()) <= rank;
  if (sdk::element_count(dims) != channels || static_cast<int>(dims.size()) > rank) return false;
  const int axis =
      static_cast<int>(dims.size()) - (rank - 1);  // where the channels lie in its dims
  return axis >= 0 && dims[static_cast<std::size_t>(axis)] == channels;
}

}  // namespace

void ChannelAffine::start_with_bias(const std::string& constant) {
  steps_.push_back({kBias, sources_.size(), 0.0f});
  sources_.push_back(constant);
}

bool ChannelAffine::take_normalization(const WorkingGraph& graph, const WorkNode& node) {
  if (node.original.get_int("training_mode", 0) != 0 || node.original.get_int("spatial", 1) != 1)
    return false;
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty()) return false;
  }
  for (std::size_t i = 1; i < 5; ++i) {
    const bp_tensor* tensor = graph.constant(node.input(i));
    if (tensor == nullptr || tensor->dtype != BP_FLOAT || tensor->rank != 1 ||
        tensor->dims[0] != channels_)
      return false;
  }
  steps_.push_back({kNormalize, sources_.size(), node.original.get_float("epsilon", 1e-5f)});
  for (std::size_t i = 1; i < 5; ++i) sources_.push_back(node.input(i));
  scales_ = true;
  return true;
}

bool ChannelAffine::take(const WorkingGraph& graph, const WorkNode& node,
                         const std::string& value) {
  if (node.domain != "" || node.changed) return false;
  if (node.op == "BatchNormalization")
    return node.input(0) == value && take_normalization(graph, node);
  const bool first = node.input(0) == value;
  if (node.inputs.size() != 2 || node.input(0) == node.input(1)) return false;
  const std::string& other = node.input(first ? 1 : 0);
  if (!is_channel_vector(graph.constant(other), channels_, graph.info(value).rank())) return false;
  Kind kind = kAdd;
  if (node.op == "Mul") {
    kind = kMultiply;
  } else if (node.op == "Div" && first) {
    kind = kDivide;
  } else if (node.op == "Sub") {
    kind = first ? kSubtract : kSubtractFrom;
  } else if (node.op != "Add") {
    return false;
  }
  // Before opset 7 an attribute says how the second operand is laid against the first.
  if (node.original.has("broadcast") || node.original.has("axis")) return false;
  steps_.push_back({kind, sources_.size(), 0.0f});
  sources_.push_back(other);
  scales_ = scales_ || kind == kMultiply || kind == kDivide || kind == kSubtractFrom;
  return true;
}

void ChannelAffine::take_steps(WorkingGraph& graph, WorkNode* node) {
  for (;;) {
    WorkNode* next = graph.only_consumer(node->outputs[0]);
    if (next == nullptr || !take(graph, *next, node->outputs[0])) return;
    const std::string result = next->outputs[0];
    graph.absorb(node, next);
    graph.set_output(node, 0, result);
  }
}

void ChannelAffine::compute(const std::vector<Step>& steps, int64_t channels, bool want_scale,
                            const sdk::PackContext& ctx) {
  auto* out = ctx.target().mutable_data<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const auto source = [&](std::size_t index) {
      const sdk::Tensor tensor = ctx.source(index);
      return static_cast<double>(tensor.data<float>()[tensor.size() == 1 ? 0 : c]);
    };
    double scale = 1;
    double shift = 0;
    for (const Step& step : steps) {
      const double value = source(step.source);
      switch (step.kind) {
        case kBias:
        case kAdd:
          shift += value;
          break;
        case kSubtract:
          shift -= value;
          break;
        case kSubtractFrom:
          scale = -scale;
          shift = value - shift;
          break;
        case kMultiply:
          scale *= value;
          shift *= value;
          break;
        case kDivide:
          scale /= value;
          shift /= value;
          break;
        case kNormalize: {
          const double factor =
              value / std::sqrt(source(step.source + 3) + static_cast<double>(step.epsilon));
          scale *= factor;
          shift = (shift - source(step.source + 2)) * factor + source(step.source + 1);
          break;
        }
      }
    }
    out[c] = static_cast<float>(want_scale ? scale : shift);
  }
  flush_idle_subnormals(out, channels);
}

std::string ChannelAffine::add(WorkingGraph& graph, const std::string& base, bool scale) const {
  std::string name = graph.fresh(base + (scale ? "_scale" : "_shift"));
  std::string key =
      sdk::message("channel affine ", scale ? "scale" : "shift", " of ", channels_, ":");
  for (const Step& step : steps_)
    key += sdk::message(" ", static_cast<int>(step.kind), "@", step.source, " ", step.epsilon);
  const sdk::Dims dims{channels_};
  graph.edit().lazy_constant(
      name, sdk::DataType::Float, dims, sources_, key,
      [steps = steps_, channels = channels_, scale](const sdk::PackContext& ctx) {
        compute(steps, channels, scale, ctx);
      });
  return name;
}

std::string ChannelAffine::add_scale(WorkingGraph& graph, const std::string& base) const {
  return add(graph, base, true);
}
std::string ChannelAffine::add_shift(WorkingGraph& graph, const std::string& base) const {
  return add(graph, base, false);
}

}  // namespace backplane::cpu
