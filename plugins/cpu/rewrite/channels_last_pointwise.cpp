// Element-wise arithmetic on images that are channels last.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/channel_affine.hpp"
#include "plugins/cpu/rewrite/channels_last.hpp"

namespace backplane::cpu {
namespace {

/// Whether each element of the output is made of the elements at its place in the inputs, broadcast.
bool is_pointwise(std::string_view op) {
  static constexpr std::array<std::string_view, 40> kOps = {
      "Abs",        "Add",  "Ceil",        "Celu",      "Clip",
      "Cos",        "Div",  "Elu",         "Erf",       "Exp",
      "Floor",      "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
      "Log",        "Max",  "Mean",        "Min",       "Mish",
      "Mod",        "Mul",  "Neg",         "PRelu",     "Pow",
      "Reciprocal", "Relu", "Round",       "Selu",      "Sigmoid",
      "Sign",       "Sin",  "Softplus",    "Softsign",  "Sqrt",
      "Sub",        "Sum",  "Swish",       "Tanh",      "ThresholdedRelu"};
  return std::binary_search(kOps.begin(), kOps.end(), op);
}

}  // namespace

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
      graph_.same_dims(node->input(0), node->input(1)) && !graph_.is_constant(node->input(0)) &&
      !graph_.is_constant(node->input(1))) {
    make_private(node, "Add", {to_last(node->input(0)), to_last(node->input(1))});
    return true;
  }
  const int64_t channels = is_last(x) && is_image(x) ? graph_.info(x).dims()[1] : -1;
  ChannelAffine affine(channels);
  if (channels < 0 || !affine.take(graph_, *node, x)) return convert_pointwise(node);
  const std::string base = node->original.name();
  make_private(node, "ScaleShift",
               {last_.at(x), affine.add_scale(graph_, base), affine.add_shift(graph_, base)});
  return true;
}

/// What broadcasts in the plain form does in the other: the gates of squeeze and excitation, say, [batch, channels, 1, 1].
bool ChannelsLast::convert_pointwise(WorkNode* node) {
  const std::string& y = node->outputs[0];
  const int r = rank(y);
  // Before opset 7 attributes say how operands are laid against each other.
  if (!is_pointwise(node->op) || node->original.has("broadcast") || node->original.has("axis"))
    return false;
  const auto is_there = [&](const std::string& v) { return is_last(v) && has_known_dims_of(v, y); };
  if (std::none_of(node->inputs.begin(), node->inputs.end(), is_there)) return false;
  for (const std::string& value : node->inputs) {
    if (!value.empty() && !is_operand(value, r)) return false;
  }
  graph_.change(node);
  for (std::size_t i = 0; i < node->inputs.size(); ++i) {
    if (!node->inputs[i].empty()) graph_.set_input(node, i, operand(node->inputs[i], r));
  }
  make_last(node);
  return true;
}

/// Whether the dims of two values are equal as far as they are known: those behind a window of symbolic extents are not.
bool ChannelsLast::has_known_dims_of(const std::string& a, const std::string& b) const {
  const sdk::ValueInfo left = graph_.info(a), right = graph_.info(b);
  if (!left || !right || left.rank() < 0 || left.rank() != right.rank()) return false;
  for (std::size_t axis = 0; axis < left.dims().size(); ++axis) {
    if (left.dims()[axis] != right.dims()[axis]) return false;
  }
  return true;
}

/// Whether a value can be an operand beside images of rank `r`: one of them, a constant, or one number.
bool ChannelsLast::is_operand(const std::string& value, int r) const {
  if (const sdk::ValueInfo constant = graph_.constant_info(value)) {
    return constant.rank() <= r &&
           (sdk::element_count(constant.dims()) == 1 || sdk::element_bytes(constant.type()) > 0);
  }
  return (rank(value) == r && is_image(value)) || is_number(value, r);
}

bool ChannelsLast::is_number(const std::string& value, int r) const {
  const sdk::ValueInfo info = graph_.info(value);
  if (!info || !info.is_static() || info.rank() > r) return false;
  return sdk::element_count(info.dims()) == 1;
}

std::string ChannelsLast::operand(const std::string& value, int r) {
  if (is_number(value, r)) return value;
  return graph_.is_constant(value) ? constant_last(value, r) : to_last(value);
}

/// A constant as an operand of rank `r`: dims of 1 before its own, then the channels last.
std::string ChannelsLast::constant_last(const std::string& value, int r) {
  const sdk::Tensor tensor(graph_.constant(value));
  sdk::Dims plain(static_cast<std::size_t>(r - tensor.rank()), 1);
  plain.insert(plain.end(), tensor.dims().begin(), tensor.dims().end());
  sdk::Dims dims{plain[0]};
  dims.insert(dims.end(), plain.begin() + 2, plain.end());
  dims.push_back(plain[1]);
  const int64_t channels = plain[1];
  const int64_t pixels = sdk::element_count(sdk::DimsView(plain.data() + 2, plain.size() - 2));
  const auto bytes = static_cast<std::size_t>(sdk::element_bytes(tensor.type()));
  std::string name = graph_.fresh(value + "_last");
  graph_.edit().lazy_constant(
      name, tensor.type(), dims, {value}, sdk::message("channels last of rank ", r),
      [batch = plain[0], channels, pixels, bytes](const sdk::PackContext& ctx) {
        const char* from = ctx.source(0).data<char>();
        char* to = ctx.target().mutable_data<char>();
        for (int64_t n = 0; n < batch; ++n) {
          for (int64_t p = 0; p < pixels; ++p) {
            for (int64_t c = 0; c < channels; ++c, to += bytes) {
              const int64_t element = (n * channels + c) * pixels + p;
              std::memcpy(to, from + static_cast<std::size_t>(element) * bytes, bytes);
            }
          }
        }
      });
  return name;
}

}  // namespace backplane::cpu
