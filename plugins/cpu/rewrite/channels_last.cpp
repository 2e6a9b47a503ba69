#include "plugins/cpu/rewrite/channels_last.hpp"

#include <algorithm>
#include <array>

#include "plugins/cpu/dense/sliding.hpp"
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/channel_affine.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// An axis of [batch, channels, spatial ...] in [batch, spatial ..., channels].
int64_t axis_to_last(int64_t axis, int rank) {
  if (axis == 0) return 0;
  return axis == 1 ? rank - 1 : axis - 1;
}

}  // namespace

void lay_out_channels_last(WorkingGraph& graph) { ChannelsLast(graph).run(); }

void ChannelsLast::run() {
  for (std::size_t i = 0; i < graph_.size(); ++i) {
    if (WorkNode* node = graph_.at(i)) convert(node);
  }
  restore_plain();
}

int ChannelsLast::rank(const std::string& value) const {
  const sdk::ValueInfo info = graph_.info(value);
  return info ? info.rank() : -1;
}

bool ChannelsLast::is_image(const std::string& value) const {
  const int r = rank(value);
  return r >= 3 && r <= 5 && graph_.is_float(value);
}

bool ChannelsLast::is_byte_image(const std::string& value) const {
  const int r = rank(value);
  if (r < 3 || r > 5) return false;
  const sdk::DataType type = graph_.info(value).type();
  return type == sdk::DataType::UInt8 || type == sdk::DataType::Int8;
}

bool ChannelsLast::any_last(const WorkNode& node) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [this](const std::string& v) { return is_last(v); });
}

std::string ChannelsLast::to_last(const std::string& value) {
  const auto found = last_.find(value);
  if (found != last_.end()) return found->second;
  std::string name = graph_.fresh(value + "_last");
  graph_.add(kPrivateDomain, "ToChannelsLast", {value}, {name});
  last_[value] = name;
  plain_exists_.insert(value);
  return name;
}

void ChannelsLast::make_last(WorkNode* node, std::size_t index) {
  const std::string value = node->outputs[index];
  const std::string name = graph_.fresh(value + "_last");
  graph_.set_output(node, index, name);
  last_[value] = name;
}

void ChannelsLast::make_private(WorkNode* node, const std::string& op,
                                std::vector<std::string> inputs) {
  graph_.change(node);
  node->domain = kPrivateDomain;
  node->op = op;
  node->attributes.clear();
  graph_.set_inputs(node, std::move(inputs));
  node->outputs.resize(1);
  make_last(node);
}

void ChannelsLast::move_over(WorkNode* node) {
  graph_.change(node);
  for (std::size_t i = 0; i < node->inputs.size(); ++i) {
    const std::string value = node->inputs[i];
    if (!value.empty() && graph_.constant(value) == nullptr)
      graph_.set_input(node, i, to_last(value));
  }
  make_last(node);
}

/// Where the model itself reads a value in the plain form, a node makes it.
void ChannelsLast::restore_plain() {
  for (const auto& [value, name] : last_) {
    if (plain_exists_.count(value) != 0) continue;
    if (graph_.consumers(value).empty() && !graph_.is_output(value)) continue;
    graph_.add(kPrivateDomain, "ToChannelsFirst", {name}, {value});
  }
}

bool ChannelsLast::convert(WorkNode* node) {
  if (node->is("Conv", kPrivateDomain)) return convert_conv(node);
  if (node->is("QuantizedConv", kPrivateDomain)) return convert_conv(node);
  if (node->is("ScaleShift", kPrivateDomain)) return convert_simple(node);
  if (node->is("Activate", kPrivateDomain) && is_last(node->input(0))) return convert_simple(node);
  if (node->is("Add", kPrivateDomain) || node->is("QuantizedAdd", kPrivateDomain))
    return any_last(*node) && (move_over(node), true);
  if (convert_quantized(node)) return true;
  if (node->changed || node->domain != "") return false;
  if (convert_deinterleave(node)) return true;
  if (!any_last(*node)) return false;
  return convert_pool(node) || convert_elementwise(node) || convert_axis(node) ||
         convert_transpose(node) || convert_shuffle(node) || convert_resize(node) ||
         convert_mean(node);
}

bool ChannelsLast::convert_conv(WorkNode* node) {
  const std::string x = node->input(0);
  const bp_tensor* w = graph_.constant(node->input(1));
  const bool few_channels = w->dims[1] <= 8 && w->dims[w->rank - 1] > 1;
  if (!is_last(x) && few_channels) {
    node->attributes["x_channels_first"] = int64_t{1};
  } else {
    graph_.set_input(node, 0, to_last(x));
  }
  const bool residual = node->op == "Conv" && !node->input(3).empty();
  if (residual) graph_.set_input(node, 3, to_last(node->input(3)));
  make_last(node);
  return true;
}

/// Bytes: max pooling, and their way to and from floats with one scale.
bool ChannelsLast::convert_quantized(WorkNode* node) {
  const std::string x = node->input(0);
  if (!is_last(x)) return false;
  if (node->is("MaxPool") && is_byte_image(x)) {
    graph_.change(node);
    node->domain = kPrivateDomain;
    node->op = "QuantizedMaxPool";
    node->outputs.resize(1);
    return convert_simple(node);
  }
  const bool quantize = node->is("QuantizeLinear") && is_image(x);
  const bool dequantize = node->is("DequantizeLinear") && is_byte_image(x);
  float scale = 0;
  if (node->changed || (!quantize && !dequantize) || !graph_.scalar(node->input(1), scale))
    return false;
  graph_.change(node);
  return convert_simple(node);
}

bool ChannelsLast::convert_simple(WorkNode* node) {
  graph_.set_input(node, 0, to_last(node->input(0)));
  make_last(node);
  return true;
}

bool ChannelsLast::convert_pool(WorkNode* node) {
  const std::string x = node->input(0);
  const bool global = node->op == "GlobalAveragePool";
  if (!is_image(x)) return false;
  if (node->op == "LRN") {
    graph_.change(node);
    node->domain = kPrivateDomain;
    return convert_simple(node);
  }
  if (!global && node->op != "MaxPool" && node->op != "AveragePool") return false;
  if (node->outputs.size() > 1 && !node->outputs[1].empty()) return false;
  int64_t taps = 1;
  const bp_attribute* kernel = node->original.attribute("kernel_shape");
  for (uint32_t i = 0; kernel != nullptr && i < kernel->count; ++i) taps *= kernel->ints[i];
  if (!global && taps > Pooling::kMaxTaps) return false;
  graph_.change(node);
  node->domain = kPrivateDomain;
  node->outputs.resize(1);
  return convert_simple(node);
}

/// Activations that nothing took over, additions of equals, and per-channel arithmetic with constants.
bool ChannelsLast::convert_elementwise(WorkNode* node) {
  if (!is_image(node->outputs[0])) return false;
  const std::string x = is_last(node->input(0)) ? node->input(0) : node->input(1);
  Activation activation;
  if (is_activation(graph_, *node, x, activation)) {
    make_private(node, "Activate", {last_.at(x)});
    node->set_activation(activation);
    return true;
  }
  const bool two = node->inputs.size() == 2;
  if (two && (node->is("Add") || node->is("Sum")) &&
      graph_.same_dims(node->input(0), node->input(1)) &&
      graph_.constant(node->input(0)) == nullptr && graph_.constant(node->input(1)) == nullptr) {
    make_private(node, "Add", {to_last(node->input(0)), to_last(node->input(1))});
    return true;
  }
  const int64_t channels = graph_.info(x).dims()[1];
  if (!is_last(x) || channels < 0) return false;
  ChannelAffine affine(channels);
  if (!affine.take(graph_, *node, x)) return false;
  const std::string base = node->original.name();
  make_private(node, "ScaleShift",
               {last_.at(x), affine.add_scale(graph_, base), affine.add_shift(graph_, base)});
  return true;
}

/// Operators along the channels.
bool ChannelsLast::convert_axis(WorkNode* node) {
  const bool softmax = node->op == "Softmax" && node->original.since_version() >= 13;
  if (node->op != "Concat" && !softmax) return false;
  const int r = rank(node->outputs[0]);
  for (const std::string& value : node->inputs) {
    if (!is_image(value) || rank(value) != r || graph_.constant(value) != nullptr) return false;
  }
  int64_t axis = node->original.get_int("axis", softmax ? -1 : 1);
  if (axis < 0) axis += r;
  if (axis < 0 || axis >= r || (softmax && axis != 1)) return false;
  std::vector<std::string> inputs;
  for (const std::string& value : node->inputs) inputs.push_back(to_last(value));
  make_private(node, node->op, std::move(inputs));
  if (!softmax) node->attributes = {{"axis", axis_to_last(axis, r)}};
  return true;
}

/// Resize to whole multiples by repeating pixels.
bool ChannelsLast::convert_resize(WorkNode* node) {
  if (node->op != "Resize" || node->original.since_version() < 11 || node->original.has("axes"))
    return false;
  const std::string x = node->input(0);
  if (!is_last(x) || !is_image(x) || node->original.get_string("mode", "nearest") != "nearest")
    return false;
  const std::string coordinates =
      node->original.get_string("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = node->original.get_string("nearest_mode", "round_prefer_floor");
  const bool floor = coordinates == "asymmetric" && rounding == "floor";
  const bool half = coordinates == "half_pixel" &&
                    (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
  if (!floor && !half) return false;
  // Of output dims that are known, or of constant scales.
  const sdk::DimsView in = graph_.info(x).dims();
  const sdk::DimsView out = graph_.info(node->outputs[0]).dims();
  std::vector<int64_t> factors;
  for (std::size_t axis = 0; axis < in.size(); ++axis) {
    if (axis >= out.size() || in[axis] < 1 || out[axis] < 1 || out[axis] % in[axis] != 0)
      return false;
    factors.push_back(out[axis] / in[axis]);
  }
  if (factors[0] != 1 || factors[1] != 1) return false;
  make_private(node, "Repeat", {last_.at(x)});
  node->attributes = {{"factors", std::vector<int64_t>(factors.begin() + 2, factors.end())}};
  return true;
}

/// A model's own move of the channels to the end: the channels-last form is its result.
bool ChannelsLast::convert_transpose(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Transpose" || !is_last(x) || plain_exists_.count(x) != 0) return false;
  const int r = rank(x);
  std::vector<int64_t> perm{0};
  for (int axis = 2; axis < r; ++axis) perm.push_back(axis);
  perm.push_back(1);
  const std::string name = last_.at(x);
  WorkNode* maker = graph_.producer(name);
  if (node->original.get_ints("perm") != perm || maker == nullptr || renamed_.count(name) != 0)
    return false;
  const std::string result = node->outputs[0];
  graph_.remove(node, maker);
  for (std::size_t i = 0; i < maker->outputs.size(); ++i) {
    if (maker->outputs[i] == name) graph_.set_output(maker, i, result);
  }
  for (WorkNode* reader : graph_.consumers(name)) {
    for (std::size_t i = 0; i < reader->inputs.size(); ++i) {
      if (reader->inputs[i] == name) graph_.set_input(reader, i, result);
    }
  }
  last_[x] = result;
  renamed_.insert(result);
  return true;
}

/// A channel shuffle: Reshape [n, g, c / g, spatial ...], Transpose of axes 1 and 2, Reshape back.
bool ChannelsLast::convert_shuffle(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Reshape" || !is_last(x)) return false;
  WorkNode* transpose = graph_.only_consumer(node->outputs[0]);
  if (transpose == nullptr || !transpose->is("Transpose")) return false;
  WorkNode* back = graph_.only_consumer(transpose->outputs[0]);
  if (back == nullptr || !back->is("Reshape") || back->input(0) != transpose->outputs[0])
    return false;
  const int r = rank(x);
  const sdk::ValueInfo split = graph_.info(node->outputs[0]);
  if (split.rank() != r + 1 || !graph_.same_dims(x, back->outputs[0])) return false;
  std::vector<int64_t> perm{0, 2, 1};
  for (int axis = 3; axis <= r; ++axis) perm.push_back(axis);
  if (transpose->original.get_ints("perm") != perm) return false;
  const sdk::DimsView dims = graph_.info(x).dims();
  const sdk::DimsView parts = split.dims();
  if (parts[1] < 1 || parts[2] < 1 || parts[1] * parts[2] != dims[1] || parts[0] != dims[0])
    return false;
  for (int axis = 2; axis < r; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    if (parts[index + 1] != dims[index] || dims[index] < 0) return false;
  }
  const int64_t groups = parts[1];
  const std::string result = back->outputs[0];
  graph_.absorb(node, transpose);
  graph_.absorb(node, back);
  node->domain = kPrivateDomain;
  node->op = "ChannelShuffle";
  node->attributes = {{"groups", groups}};
  graph_.set_inputs(node, {last_.at(x)});
  graph_.set_output(node, 0, result);
  make_last(node);
  return true;
}

/// Even and odd channels taken apart, for one image: Reshape [c / 2, 2, pixels], Transpose of axes 0 and 1,
/// Reshape [2, 1, c / 2, spatial ...], Gather of either half.
bool ChannelsLast::convert_deinterleave(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Reshape" || !is_last(x)) return false;
  const sdk::ValueInfo image = graph_.info(x);
  WorkNode* transpose = graph_.only_consumer(node->outputs[0]);
  if (!image.is_static() || image.rank() != 4 || image.dims()[0] != 1) return false;
  if (transpose == nullptr || !transpose->is("Transpose")) return false;
  WorkNode* back = graph_.only_consumer(transpose->outputs[0]);
  if (back == nullptr || !back->is("Reshape") || back->input(0) != transpose->outputs[0])
    return false;
  const int64_t half = image.dims()[1] / 2;
  const int64_t pixels = image.dims()[2] * image.dims()[3];
  const std::vector<int64_t> split{half, 2, pixels};
  const std::vector<int64_t> merged{2, 1, half, image.dims()[2], image.dims()[3]};
  const auto has_dims = [this](const std::string& value, const std::vector<int64_t>& dims) {
    const sdk::DimsView found = graph_.info(value).dims();
    return std::vector<int64_t>(found.begin(), found.end()) == dims;
  };
  if (half * 2 != image.dims()[1] || !has_dims(node->outputs[0], split) ||
      !has_dims(back->outputs[0], merged))
    return false;
  if (transpose->original.get_ints("perm") != std::vector<int64_t>{1, 0, 2} ||
      graph_.is_output(back->outputs[0]))
    return false;
  std::array<WorkNode*, 2> halves{};
  for (WorkNode* gather : graph_.consumers(back->outputs[0])) {
    const bp_tensor* index = gather->is("Gather") ? graph_.constant(gather->input(1)) : nullptr;
    if (index == nullptr || index->rank != 0 || index->dtype != BP_INT64 ||
        gather->original.get_int("axis", 0) != 0)
      return false;
    const int64_t which = *static_cast<const int64_t*>(index->host_ptr);
    if (which < 0 || which > 1 || halves[static_cast<std::size_t>(which)] != nullptr) return false;
    halves[static_cast<std::size_t>(which)] = gather;
  }
  if (halves[0] == nullptr || halves[1] == nullptr) return false;
  std::array<std::string, 2> results{halves[0]->outputs[0], halves[1]->outputs[0]};
  graph_.absorb(node, transpose);
  graph_.absorb(node, back);
  for (WorkNode* gather : halves) graph_.remove(gather, node);
  node->domain = kPrivateDomain;
  node->op = "Deinterleave";
  node->attributes.clear();
  graph_.set_inputs(node, {last_.at(x)});
  for (std::size_t i = 0; i < 2; ++i) {
    graph_.set_output(node, i, results[i]);
    make_last(node, i);
  }
  return true;
}

/// ReduceMean over all spatial axes that keeps them.
bool ChannelsLast::convert_mean(WorkNode* node) {
  const std::string x = node->input(0);
  if (!is_last(x) || !is_image(x)) return false;
  const int r = rank(x);
  if (node->op == "DepthToSpace" && r == 4) {
    graph_.change(node);
    node->domain = kPrivateDomain;
    return convert_simple(node);
  }
  if (node->op != "ReduceMean" || node->original.get_int("keepdims", 1) == 0) return false;
  std::vector<int64_t> axes = node->original.get_ints("axes");
  if (!node->input(1).empty()) {
    const bp_tensor* tensor = graph_.constant(node->input(1));
    if (tensor == nullptr || tensor->host_ptr == nullptr) return false;
    axes = sdk::Tensor(tensor).to_ints();
  }
  for (int64_t& axis : axes) axis += axis < 0 ? r : 0;
  std::sort(axes.begin(), axes.end());
  std::vector<int64_t> spatial;
  for (int axis = 2; axis < r; ++axis) spatial.push_back(axis);
  if (axes != spatial) return false;
  graph_.change(node);
  node->domain = kPrivateDomain;
  node->op = "GlobalAveragePool";
  node->attributes.clear();
  graph_.set_inputs(node, {x});
  return convert_simple(node);
}

}  // namespace backplane::cpu
