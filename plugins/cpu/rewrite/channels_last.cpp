#include "plugins/cpu/rewrite/channels_last.hpp"

#include <algorithm>

#include "plugins/cpu/dense/sliding.hpp"
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/channel_affine.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {

void lay_out_channels_last(WorkingGraph& graph) { ChannelsLast(graph).run(); }

void ChannelsLast::run() {
  for (std::size_t i = 0; i < graph_.size(); ++i) {
    if (WorkNode* node = graph_.at(i)) convert(node);
  }
  drop_unread();
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
  std::string name = own_form(value);
  if (name.empty()) {
    name = graph_.fresh(value + "_last");
    graph_.add(kPrivateDomain, "ToChannelsLast", {value}, {name});
  } else {
    renamed_.insert(name);
    adopted_.push_back(value);
  }
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
    if (!value.empty() && !graph_.is_constant(value)) graph_.set_input(node, i, to_last(value));
  }
  make_last(node);
}

std::string ChannelsLast::numbers(const std::string& base, const std::vector<int64_t>& values) {
  std::string name = graph_.fresh(base + "_numbers");
  const auto count = static_cast<int64_t>(values.size());
  graph_.edit().constant(name, sdk::DataType::Int64, sdk::DimsView(&count, 1), values.data(),
                         values.size() * sizeof(int64_t));
  return name;
}

/// What made the plain form of a value that is read channels last alone.
void ChannelsLast::drop_unread() {
  for (std::string value : adopted_) {
    const std::vector<WorkNode*> readers = graph_.consumers(last_.at(value));
    const auto reader = std::find_if(readers.begin(), readers.end(),
                                     [](const WorkNode* node) { return node->changed; });
    while (reader != readers.end() && graph_.consumers(value).empty() && !graph_.is_output(value)) {
      WorkNode* maker = graph_.producer(value);
      if (maker == nullptr || maker->changed) break;
      value = maker->input(0);
      graph_.remove(maker, *reader);
    }
  }
}

/// Where the model itself reads a value in the plain form, a node makes it.
void ChannelsLast::restore_plain() {
  for (const auto& [value, name] : last_) {
    if (plain_exists_.count(value) != 0) continue;
    if (graph_.consumers(value).empty() && !graph_.is_output(value)) continue;
    if (!makes_plain(value, name)) graph_.add(kPrivateDomain, "ToChannelsFirst", {name}, {value});
  }
}

std::string ChannelsLast::plain_input(const std::string& value) const {
  const WorkNode* maker = graph_.producer(value);
  const bool reordered = maker != nullptr && maker->is("ToChannelsLast", kPrivateDomain);
  return reordered ? maker->input(0) : "";
}

/// A node between plain values that nobody reads in the other form: a convolution of few channels, and what does the same in both forms.
bool ChannelsLast::makes_plain(const std::string& value, const std::string& name) {
  WorkNode* node = graph_.producer(name);
  if (node == nullptr || !graph_.consumers(name).empty() || graph_.is_output(name)) return false;
  if (node->is("ScaleShift", kPrivateDomain)) {
    const std::string plain = plain_input(node->input(0));
    if (plain.empty()) return false;
    graph_.set_input(node, 0, plain);
    graph_.set_output(node, 0, value);
    node->attributes["channels_first"] = int64_t{1};
    return true;
  }
  if (!node->is("Conv", kPrivateDomain) || !has_few_channels(*node)) return false;
  const bool is_first = node->attributes.count("x_channels_first") != 0;
  const std::string x = is_first ? node->input(0) : plain_input(node->input(0));
  const std::string residual = plain_input(node->input(3));
  if (x.empty() || residual.empty() != node->input(3).empty()) return false;
  graph_.set_input(node, 0, x);
  if (!residual.empty()) graph_.set_input(node, 3, residual);
  graph_.set_output(node, 0, value);
  node->attributes["x_channels_first"] = node->attributes["y_channels_first"] = int64_t{1};
  return true;
}

bool ChannelsLast::convert(WorkNode* node) {
  if (node->is("Conv", kPrivateDomain)) return convert_conv(node);
  if (node->is("QuantizedConv", kPrivateDomain)) return convert_conv(node);
  if (node->is("DynamicConv", kPrivateDomain)) return convert_conv(node);
  if (node->is("ConvTranspose", kPrivateDomain)) return convert_simple(node);
  if (node->is("ScaleShift", kPrivateDomain)) return convert_simple(node);
  if (node->is("Activate", kPrivateDomain) && is_last(node->input(0))) return convert_simple(node);
  if (node->is("Add", kPrivateDomain) || node->is("QuantizedAdd", kPrivateDomain))
    return any_last(*node) && (move_over(node), true);
  if (convert_quantized(node)) return true;
  if (node->changed || node->domain != "") return false;
  if (convert_deinterleave(node) || adopt(node)) return true;
  if (!any_last(*node)) return false;
  return convert_normalization(node) || convert_pool(node) || convert_elementwise(node) ||
         convert_axis(node) || convert_transpose(node) || convert_shuffle(node) ||
         convert_flatten(node) || convert_split(node) || convert_slice(node) || convert_pad(node) ||
         convert_resize(node) || convert_mean(node) || convert_reduction(node);
}

bool ChannelsLast::has_few_channels(const WorkNode& conv) const {
  return graph_.info(conv.input(1)).dims()[1] <= 8;
}

bool ChannelsLast::convert_conv(WorkNode* node) {
  const std::string x = node->input(0);
  const bool is_wide = graph_.info(node->input(1)).dims().back() > 1;
  if (!is_last(x) && has_few_channels(*node) && is_wide) {
    node->attributes["x_channels_first"] = int64_t{1};
  } else {
    graph_.set_input(node, 0, to_last(x));
  }
  const std::size_t residual = node->op == "DynamicConv" ? 7 : 3;
  if (node->op != "QuantizedConv" && !node->input(residual).empty())
    graph_.set_input(node, residual, to_last(node->input(residual)));
  make_last(node);
  return true;
}

/// Bytes: max pooling, and their way to and from floats with one scale, which is known or found.
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
  if (node->is("DynamicQuantizeLinear") && !node->changed && is_image(x)) {
    graph_.change(node);
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
  for (uint32_t i = 0; kernel != nullptr && i < kernel->count; ++i) {
    if (kernel->ints[i] > Pooling::kMaxTaps) return false;
    taps = std::min(taps * kernel->ints[i], Pooling::kMaxTaps + 1);
  }
  if (!global && taps > Pooling::kMaxTaps) return false;
  graph_.change(node);
  node->domain = kPrivateDomain;
  node->outputs.resize(1);
  return convert_simple(node);
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
  std::vector<int64_t> axes;
  if (node->op != "ReduceMean" || node->original.get_int("keepdims", 1) == 0 ||
      !graph_.reduced_axes(*node, axes))
    return false;
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
