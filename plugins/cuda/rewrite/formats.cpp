#include "plugins/cuda/rewrite/formats.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <variant>

#include "plugins/common/axes.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/einsum_node.hpp"

namespace backplane::cuda {
namespace {

using device_ops::private_domain;
using sdk::DataType;
using sdk::Dims;

bool is_ours(const DraftNode& node) {
  return node.domain.empty() || node.domain == private_domain();
}

/// Element-wise nodes, and perhaps the rows after them, or a rotation, as one: see device_ops/rewrite.
bool is_chain(const DraftNode& node) {
  if (node.domain != private_domain()) return false;
  return node.op_type == "FusedPointwise" || node.op_type == "FusedRotation" ||
         node.op_type == "FusedSoftmax" || node.op_type == "FusedNormalization" ||
         node.op_type == "FusedReduce";
}

/// An axis of [batch, channels, spatial ...] in [batch, spatial ..., channels].
std::int64_t axis_to_last(std::int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  if (axis == 0) return 0;
  return axis == 1 ? rank - 1 : axis - 1;
}

Dims spatial_axes(int rank, bool is_last) {
  Dims axes(static_cast<std::size_t>(rank - 2));
  std::iota(axes.begin(), axes.end(), is_last ? 1 : 2);
  return axes;
}

/// Several products as one, whose result is a value that the graph does not have.
bool is_joined(const DraftNode& node) {
  return node.is("JoinedMatMul", private_domain()) || node.is("JoinedGemm", private_domain());
}

const char* type_text(DataType type) {
  return type == DataType::Float16 ? "fp16" : type == DataType::BFloat16 ? "bf16" : "float32";
}

/// Keys of before have the model's type: to round all of them in every run would take longer than to read them.
bool reads_cache(const DraftNode& node) {
  constexpr std::size_t kPastKey = 4;
  return node.op_type == "Attention" && !node.input(kPastKey).empty();
}

/// Of an Einsum it depends on the equation: what sums one operand's elements may leave the range of fp16 on its way.
const FormatRule& rule_of(const DraftNode& node) {
  if (!is_ours(node)) return format_rule("");
  const auto equation = node.attributes.find("equation");
  if (!node.is("Einsum") || equation == node.attributes.end()) return format_rule(node.op_type);
  const auto* const text = std::get_if<std::string>(&equation->second);
  const bool is_product =
      text != nullptr && common::EinsumEquation(*text, node.inputs.size()).is_product_of_two();
  return format_rule(is_product ? "Einsum" : "");
}

}  // namespace

void FormatPass::run(std::vector<DraftNode>& nodes) {
  for (DraftNode& node : nodes) convert(node);
}

void FormatPass::convert(DraftNode& node) {
  if (node.is("JoinedPart", private_domain())) return move_part(node);
  if (is_joined(node)) forms_.add(node.outputs[0], forms_.plain(node.inputs[0]).type);
  const FormatRule& rule = rule_of(node);
  if (node.is_fixed || rule.storage == Storage::kFloat || reads_cache(node)) return leave(node);
  if (rule.storage == Storage::kRead) return read(node);
  const Form form = wanted_form(rule, node);
  if (form.type == DataType::None) return leave(node);
  if (node.is("Transpose") && move_transpose(node)) return;
  if (is_chain(node)) return move_chain(node, form);
  if (form == forms_.plain(node.outputs[0])) return leave(node);
  move(rule, node, form);
}

/// Floats, of whatever precision the model has.
bool FormatPass::is_value(const FormatRule& rule, const DraftNode& node, std::size_t index) const {
  return index < rule.values && !node.input(index).empty() &&
         device_ops::is_float(forms_.plain(node.inputs[index]).type);
}

/// The 16-bit type of a node, where all that it does may be in it.
DataType FormatPass::half_of(const DraftNode& node) const {
  if (node.replaces.empty()) return DataType::None;
  // A product or a convolution decides for what it took over; in a chain, who wants more has it.
  const bool is_first = node.replaces.size() > 1 && !is_chain(node);
  Precision least = precision_.of(node.replaces.front());
  for (const sdk::Node& each : node.replaces) {
    if (!is_first && precision_.of(each) != least) least = Precision::kFp32;
  }
  return least == Precision::kFp16   ? DataType::Float16
         : least == Precision::kBf16 ? DataType::BFloat16
                                     : DataType::None;
}

bool FormatPass::any_input(const FormatRule& rule, const DraftNode& node, const Form& form) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_value(rule, node, i) && !forms_.is_constant(node.inputs[i]) &&
        forms_.has(node.inputs[i], form))
      return true;
  }
  return false;
}

bool FormatPass::any_input_last(const FormatRule& rule, const DraftNode& node) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_value(rule, node, i) && forms_.made(node.inputs[i]).is_last) return true;
  }
  return false;
}

DataType FormatPass::wanted_type(const FormatRule& rule, const DraftNode& node) const {
  const DataType own = forms_.plain(node.outputs[0]).type;
  const DataType half = half_of(node);
  if (own != DataType::Float || half == DataType::None) return own;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_value(rule, node, i) && forms_.plain(node.inputs[i]).type != own) return own;
  }
  if (rule.storage == Storage::kAsked || rule.storage == Storage::kMakes) return half;
  // What a chain makes at its end is what its last node makes. Rows are what they were apart from the chain: of float32 where
  // that would have made it, as variances of squares, or what is done to folds after them.
  const bool is_pointwise = node.op_type == "FusedPointwise" || node.op_type == "FusedRotation";
  const std::size_t last = !is_chain(node) ? 0
                           : is_pointwise  ? 1
                                           : 2 + static_cast<std::size_t>(node.get_int("after", 0));
  for (std::size_t i = 1; i <= last; ++i) {
    const sdk::Node& maker = node.replaces[node.replaces.size() - i];
    if (format_rule(maker.op_type()).storage == Storage::kFloat) return own;
  }
  return any_input(rule, node, {half, false}) || any_input(rule, node, {half, true}) ? half : own;
}

/// Of type None where the node stays as it is.
Form FormatPass::wanted_form(const FormatRule& rule, const DraftNode& node) const {
  if (node.outputs.empty() || node.outputs[0].empty() || node.inputs.empty() ||
      (rule.storage != Storage::kMakes && !is_value(rule, node, node.is("Where") ? 1 : 0)))
    return {};
  const Form own = forms_.plain(node.outputs[0]);
  if (!device_ops::is_float(own.type)) return {};
  // Second outputs are of their own types: places, masks, means.
  const bool has_alike = node.is("Split") || is_chain(node);
  for (std::size_t i = 1; i < node.outputs.size() && !has_alike; ++i) {
    if (!node.outputs[i].empty()) return {};
  }
  Form form{wanted_type(rule, node), false};
  form.is_last = wants_last(rule, node, form.type) && may_be_last(rule, node);
  return form;
}

bool FormatPass::wants_last(const FormatRule& rule, const DraftNode& node, DataType type) const {
  const int rank = forms_.rank(node.inputs[0]);
  if (rule.layout == Layout::kPlain || layout_ == ImageLayout::kChannelsFirst) return false;
  if (rule.layout != Layout::kConvolution) return any_input_last(rule, node);
  if (rank < 3 || rank > 5) return false;
  return type != DataType::Double && (device_ops::is_half(type) || is_wanted(node));
}

/// Whether convolutions of this node's precision want channels last.
bool FormatPass::is_wanted(const DraftNode& node) const {
  return layout_ == ImageLayout::kChannelsLast ||
         (layout_ == ImageLayout::kAuto && !node.replaces.empty() &&
          precision_.of(node.replaces.front()) != Precision::kFp32);
}

/// Pad, Resize and Upsample whose numbers for the axes are constants.
bool FormatPass::has_axes_last(const DraftNode& node) const {
  const int rank = forms_.rank(node.inputs[0]);
  const auto mode = node.attributes.find("coordinate_transformation_mode");
  if (forms_.rank(node.outputs[0]) != rank || node.attributes.count("axes") > 0 ||
      (mode != node.attributes.end() &&
       mode->second == AttributeValue(std::string("tf_crop_and_resize"))))
    return false;
  if (node.is("Pad"))
    return node.input(3).empty() && forms_.constant_size(node.input(1)) == 2 * rank;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    const std::int64_t size = forms_.constant_size(node.inputs[i]);
    if (!node.inputs[i].empty() && size != rank && size != 0) return false;
  }
  return node.inputs.size() > 1;
}

/// A mean or a maximum of all spatial axes that keeps them.
bool FormatPass::folds_space(const DraftNode& node) const {
  const int rank = forms_.rank(node.inputs[0]);
  if (node.op_type.rfind("Global", 0) == 0) return true;
  if (node.get_int("keepdims", 1) == 0) return false;
  Dims axes = node.get_ints("axes");
  if (!node.input(1).empty()) axes = forms_.ints(node.input(1));
  for (std::int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  return axes == spatial_axes(rank, false);
}

/// Whether cuDNN has it for certain, by its attributes: for channels last there is no other kernel.
bool FormatPass::is_gradient(const DraftNode& node) {
  if (!node.is("ConvTranspose")) return true;
  const auto padding = node.attributes.find("auto_pad");
  if (node.attributes.count("output_shape") > 0 ||
      (padding != node.attributes.end() &&
       padding->second != AttributeValue(std::string("NOTSET"))))
    return false;
  const Dims more = node.get_ints("output_padding"), strides = node.get_ints("strides");
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (more[i] >= (i < strides.size() ? strides[i] : 1)) return false;
  }
  return true;
}

/// Operands in a walk over an image: images of its rank, numbers, and constants that broadcast.
bool FormatPass::broadcasts_last(const FormatRule& rule, const DraftNode& node) const {
  const int rank = forms_.rank(node.outputs[0]);
  if (rank < 3) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_value(rule, node, i) || forms_.is_scalar(node.inputs[i])) continue;
    const int own = forms_.rank(node.inputs[i]);
    if (own != rank && !(own >= 0 && own < rank && forms_.is_constant(node.inputs[i])))
      return false;
  }
  return true;
}

bool FormatPass::may_be_last(const FormatRule& rule, const DraftNode& node) const {
  const int rank = forms_.rank(node.inputs[0]);
  switch (rule.layout) {
    case Layout::kConvolution:
      return is_gradient(node) && (node.input(3).empty() || forms_.rank(node.input(3)) == rank);
    case Layout::kWindow:
      return true;
    case Layout::kElements:
      return broadcasts_last(rule, node);
    case Layout::kAxis:
      return forms_.rank(node.outputs[0]) == rank &&
             std::all_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& value) {
               return forms_.rank(value) == rank || value == node.input(rule.values);
             });
    case Layout::kMean:
      return folds_space(node);
    case Layout::kAxes:
      return has_axes_last(node);
    default:
      return false;
  }
}

/// The node stays as it is, and reads values as the graph has them.
void FormatPass::leave(DraftNode& node) {
  const FormatRule& rule = rule_of(node);
  bool reads_half = false;
  for (const std::string& value : node.inputs) {
    if (value.empty() || forms_.is_constant(value)) continue;
    reads_half = reads_half || forms_.made(value).type != forms_.plain(value).type;
    forms_.get(value, forms_.plain(value));
  }
  if (reads_half && rule.why != nullptr && !node.replaces.empty())
    recorded_.edit().note(node.replaces.back(), sdk::message("stays float32: ", rule.why));
}

/// Values of 16 bits are read as they are, where they lie as the graph has them.
void FormatPass::read(DraftNode& node) {
  const std::string value = node.input(0);
  const bool is_other = !value.empty() && node.inputs.size() == 1 && !forms_.is_constant(value) &&
                        !node.is_fixed && !(forms_.made(value) == forms_.plain(value)) &&
                        !forms_.has(value, forms_.plain(value));
  if (!is_other || forms_.made(value).is_last) return leave(node);
  node.inputs[0] = forms_.get(value, forms_.made(value));
  node.is_added = true;
}

/// cuDNN's kernels for the first layer of a network read pixels of four channels, others those of 16 bytes: an image of fewer, which
/// has to be brought into another form anyway, is filled up with zeros, and so are the weights. 0: it is not.
std::int64_t FormatPass::wanted_channels(const FormatRule& rule, const DraftNode& node,
                                         const Form& form) const {
  if (rule.layout != Layout::kConvolution || !form.is_last || node.is("ConvTranspose") ||
      node.get_int("group", 1) != 1)
    return 0;
  constexpr std::int64_t kFirstLayer = 4, kPixelBytes = 16;
  const std::string &x = node.inputs[0], &w = node.inputs[1];
  const std::int64_t wanted =
      forms_.dim(w, 1) <= kFirstLayer ? kFirstLayer : kPixelBytes / sdk::element_bytes(form.type);
  const int rank = forms_.rank(w);
  std::int64_t taps = 1;
  for (int axis = 2; axis < rank; ++axis) taps *= forms_.dim(w, static_cast<std::size_t>(axis));
  const bool is_few = forms_.is_constant(w) && forms_.dim(w, 1) > 0 && forms_.dim(w, 1) < wanted;
  const bool has_cores =
      device_ops::is_half(form.type) || (form.type == DataType::Float && !node.replaces.empty() &&
                                         precision_.of(node.replaces.front()) == Precision::kTf32);
  const bool is_to_move = !forms_.is_constant(x) && !forms_.made(x).is_last;
  return is_few && taps > 1 && has_cores && is_to_move ? wanted : 0;
}

void FormatPass::move(const FormatRule& rule, DraftNode& node, const Form& form) {
  const int rank = forms_.rank(node.outputs[0]);
  const std::int64_t channels = wanted_channels(rule, node, form);
  const std::int64_t own_channels = channels > 0 ? forms_.dim(node.inputs[1], 1) : 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    std::string& value = node.inputs[i];
    if (value.empty()) continue;
    if (!is_value(rule, node, i)) {
      value = forms_.get(value, forms_.plain(value));
      continue;
    }
    const bool is_row = rule.layout == Layout::kConvolution && i == 2;
    const bool is_last = form.is_last && !is_row && !forms_.is_scalar(value);
    const DataType own = forms_.plain(value).type;
    Form wanted{own == DataType::Float ? form.type : own, is_last};
    if (channels > 0 && i < 2) {
      wanted.channels = channels;
      wanted.own = own_channels;
    }
    value = forms_.is_constant(value) && rule.layout == Layout::kElements && is_last
                ? forms_.get_constant(value, wanted, rank)
                : forms_.get(value, wanted);
  }
  if (form.is_last) lay_out_last(rule, node);
  if (rule.storage == Storage::kMakes)
    node.attributes["type"] = static_cast<std::int64_t>(form.type);
  explain(node, form);
  for (std::string& value : node.outputs) {
    if (!value.empty()) value = forms_.make(value, form);
  }
  node.is_added = true;
}

/// A model's own move of the channels is none where the value lies so already, or may.
bool FormatPass::move_transpose(DraftNode& node) {
  const std::string value = node.inputs[0];
  const int rank = forms_.rank(value);
  if (rank < 3 || rank > 5 || layout_ == ImageLayout::kChannelsFirst) return false;
  const Dims perm = node.get_ints("perm");
  const Form made = forms_.made(value);
  const bool is_to_last = perm == order_to(true, rank) && made.is_last;
  const bool is_from_last = perm == order_to(false, rank) && !made.is_last && is_wanted(node);
  if (!is_to_last && !is_from_last) return false;
  const Form form{made.type, is_from_last};
  node.domain = private_domain();
  node.op_type = "Reformat";
  node.attributes.clear();
  node.inputs[0] = forms_.get(value, made);
  node.is_added = true;
  explain(node, form);
  node.outputs[0] = forms_.make(node.outputs[0], form);
  return true;
}

/// A result lies as the products made it.
void FormatPass::move_part(DraftNode& node) {
  const Form form = forms_.made(node.inputs[0]);
  node.inputs[0] = forms_.get(node.inputs[0], form);
  node.outputs[0] = forms_.make(node.outputs[0], form);
}

/// It reads operands of any type, so that only their layout has to be that of the output. What follows them, as the scale of
/// rows, has the output's type.
void FormatPass::move_chain(DraftNode& node, const Form& form) {
  const int rank = forms_.rank(node.outputs[0]);
  const auto inputs = static_cast<std::int64_t>(node.inputs.size());
  const auto operands = static_cast<std::size_t>(node.get_int("operands", inputs));
  bool is_changed = !(form == forms_.plain(node.outputs[0]));
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    std::string& value = node.inputs[i];
    const bool is_last = form.is_last && !forms_.is_scalar(value);
    const std::string before = value;
    if (i >= operands) {
      value = forms_.get(value, form);
    } else if (forms_.is_constant(value)) {
      if (is_last) value = forms_.get_constant(value, {forms_.plain(value).type, true}, rank);
    } else {
      const bool has_type = forms_.has(value, {form.type, is_last});
      value = forms_.get(value, {has_type ? form.type : forms_.made(value).type, is_last});
    }
    is_changed = is_changed || value != before;
  }
  if (!is_changed) return;
  if (form.type != DataType::Float) node.attributes["type"] = static_cast<std::int64_t>(form.type);
  Dims dims = node.get_ints("dims");
  if (form.is_last && !dims.empty()) {
    std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    node.attributes["dims"] = dims;
  }
  explain(node, form);
  for (std::string& value : node.outputs) value = forms_.make(value, form);
}

/// The node as it works on images that lie channels last.
void FormatPass::lay_out_last(const FormatRule& rule, DraftNode& node) {
  const int rank = forms_.rank(node.outputs[0]);
  switch (rule.layout) {
    case Layout::kWindow:
    case Layout::kConvolution:
      node.domain = private_domain();
      node.attributes["channels_last"] = std::int64_t{1};
      break;
    case Layout::kAxis:
      node.attributes["axis"] = axis_to_last(node.get_int("axis", node.is("Split") ? 0 : 1), rank);
      break;
    case Layout::kMean: {
      const bool is_max = node.op_type == "GlobalMaxPool" || node.op_type == "ReduceMax";
      // The provider's own: as the model's operator it has its axes as an attribute in some opsets, as an input in others.
      node.domain = private_domain();
      node.op_type = is_max ? "ReduceMax" : "ReduceMean";
      node.inputs.resize(1);
      node.attributes = {{"axes", spatial_axes(rank, true)}, {"keepdims", std::int64_t{1}}};
      break;
    }
    case Layout::kAxes:
      for (std::size_t i = 1; i < node.inputs.size(); ++i) {
        const std::int64_t size = forms_.constant_size(node.inputs[i]);
        if (size == rank || size == 2 * rank)
          node.inputs[i] = forms_.get_axes(node.inputs[i], rank);
      }
      break;
    default:
      break;
  }
  if (node.op_type != "Conv") return;
  node.op_type = "FusedConv";
  node.attributes["origin"] = std::string(node.replaces.front().name());
}

void FormatPass::explain(const DraftNode& node, const Form& form) {
  for (const sdk::Node& each : node.replaces)
    recorded_.edit().note(
        each, sdk::message("makes ", type_text(form.type), form.is_last ? ", channels last" : ""));
}

}  // namespace backplane::cuda
