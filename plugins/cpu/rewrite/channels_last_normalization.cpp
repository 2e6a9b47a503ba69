// InstanceNormalization and GroupNormalization, the latter as exporters write it too, on images that are channels last.
#include <algorithm>

#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/channel_affine.hpp"
#include "plugins/cpu/rewrite/channels_last.hpp"

namespace backplane::cpu {
namespace {

bool is_filled_with(const bp_tensor* tensor, float value) {
  if (tensor == nullptr || tensor->dtype != BP_FLOAT || tensor->host_ptr == nullptr) return false;
  const auto* elements = static_cast<const float*>(tensor->host_ptr);
  return std::all_of(elements, elements + sdk::Tensor(tensor).size(),
                     [value](float element) { return element == value; });
}

}  // namespace

bool ChannelsLast::convert_normalization(WorkNode* node) {
  const std::string x = node->input(0);
  // ONNX infers no shape for some versions.
  if (!is_last(x) || !is_image(x) || !is_image(node->outputs[0])) return false;
  if (node->op == "Reshape") return convert_group_normalization(node);
  const bool by_instance = node->op == "InstanceNormalization";
  // Before version 21 the parameters of a group's channels were one number.
  const bool by_group = node->op == "GroupNormalization" && node->original.since_version() >= 21;
  const int64_t channels = graph_.info(x).dims()[1];
  if ((!by_instance && !by_group) || channels < 1) return false;
  const float epsilon = node->original.get_float("epsilon", 1e-5f);
  const int64_t groups = by_instance ? channels : node->original.get_int("num_groups", 1);
  graph_.change(node);
  node->domain = kPrivateDomain;
  node->op = "GroupNormalization";
  node->attributes = {{"groups", groups}, {"epsilon", epsilon}};
  graph_.set_input(node, 0, last_.at(x));
  absorb_activation(graph_, node);
  make_last(node);
  return true;
}

/// Reshape [batch, groups, rest], InstanceNormalization without parameters, Reshape back, and the parameters per
/// channel.
bool ChannelsLast::convert_group_normalization(WorkNode* node) {
  const std::string x = node->input(0);
  WorkNode* instance = graph_.only_consumer(node->outputs[0]);
  if (instance == nullptr || !instance->is("InstanceNormalization") ||
      !is_filled_with(graph_.constant(instance->input(1)), 1.0f) ||
      !is_filled_with(graph_.constant(instance->input(2)), 0.0f))
    return false;
  WorkNode* back = graph_.only_consumer(instance->outputs[0]);
  if (back == nullptr || !back->is("Reshape") || back->input(0) != instance->outputs[0] ||
      !graph_.same_dims(x, back->outputs[0]))
    return false;
  const sdk::DimsView dims = graph_.info(x).dims();
  const sdk::DimsView parts = graph_.info(node->outputs[0]).dims();
  const bool same_batch = parts.size() >= 3 && parts[0] == dims[0] && dims[0] >= 0;
  if (!same_batch || dims[1] < 1 || parts[1] < 1 || dims[1] % parts[1] != 0) return false;
  const int64_t groups = parts[1];
  const float epsilon = instance->original.get_float("epsilon", 1e-5f);
  const std::string result = back->outputs[0];
  graph_.absorb(node, instance);
  graph_.absorb(node, back);
  graph_.set_output(node, 0, result);
  node->domain = kPrivateDomain;
  node->op = "GroupNormalization";
  node->attributes = {{"groups", groups}, {"epsilon", epsilon}};
  ChannelAffine affine(dims[1]);
  affine.take_steps(graph_, node);
  std::vector<std::string> inputs{last_.at(x)};
  if (!affine.empty()) {
    const std::string base = node->original.name();
    inputs.push_back(affine.add_scale(graph_, base));
    inputs.push_back(affine.add_shift(graph_, base));
  }
  graph_.set_inputs(node, inputs);
  absorb_activation(graph_, node);
  make_last(node);
  return true;
}

}  // namespace backplane::cpu
