// Nodes that only move elements, on images that are channels last.
#include <algorithm>
#include <array>

#include "plugins/cpu/rewrite/channels_last.hpp"

namespace backplane::cpu {
namespace {

/// An axis of [batch, channels, spatial ...] in [batch, spatial ..., channels].
int64_t axis_to_last(int64_t axis, int rank) {
  if (axis == 0) return 0;
  return axis == 1 ? rank - 1 : axis - 1;
}

/// The permutation of axes that moves the channels to the end.
std::vector<int64_t> order_to_last(int rank) {
  std::vector<int64_t> perm{0};
  for (int axis = 2; axis < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  return perm;
}

/// The permutation that brings them back.
std::vector<int64_t> order_to_first(int rank) {
  std::vector<int64_t> perm{0, rank - 1};
  for (int axis = 1; axis + 1 < rank; ++axis) perm.push_back(axis);
  return perm;
}

/// Axes, counted from the end where negative, as they are channels last. False: one is out of range.
bool move_axes(std::vector<int64_t>& axes, int rank) {
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) return false;
    axis = axis_to_last(axis < 0 ? axis + rank : axis, rank);
  }
  return true;
}

/// Whether a node of the model's exchanges the channels and the pixels of [batch, channels, pixels].
bool exchanges_pixels(const WorkNode* node) {
  return node != nullptr && node->is("Transpose") && !node->changed &&
         node->original.get_ints("perm") == order_to_last(3);
}

}  // namespace

/// Operators along the channels.
bool ChannelsLast::convert_axis(WorkNode* node) {
  const bool softmax = node->op == "Softmax" && node->original.since_version() >= 13;
  if (node->op != "Concat" && !softmax) return false;
  const int r = rank(node->outputs[0]);
  for (const std::string& value : node->inputs) {
    if (!is_image(value) || rank(value) != r || graph_.is_constant(value)) return false;
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

bool ChannelsLast::convert_split(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Split" || !is_last(x) || node->original.since_version() < 2) return false;
  std::vector<int64_t> axis{node->original.get_int("axis", 0)};
  if (!move_axes(axis, rank(x))) return false;
  graph_.change(node);
  node->attributes["axis"] = axis[0];
  graph_.set_input(node, 0, last_.at(x));
  for (std::size_t i = 0; i < node->outputs.size(); ++i) {
    if (!node->outputs[i].empty()) make_last(node, i);
  }
  return true;
}

bool ChannelsLast::convert_slice(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Slice" || !is_last(x)) return false;
  const bool from_inputs = node->original.since_version() >= 10;
  std::vector<int64_t> axes = node->original.get_ints("axes");
  if (from_inputs && !graph_.integers(node->input(3), axes)) return false;
  if (axes.empty()) {  // the first ones, as many as there are starts
    const sdk::ValueInfo starts = graph_.info(node->input(1));
    const int64_t count = from_inputs
                              ? (starts.is_static() && starts.rank() == 1 ? starts.dims()[0] : -1)
                              : static_cast<int64_t>(node->original.get_ints("starts").size());
    if (count < 0) return false;
    for (int64_t axis = 0; axis < count; ++axis) axes.push_back(axis);
  }
  if (!move_axes(axes, rank(x))) return false;
  graph_.change(node);
  if (from_inputs) {
    graph_.set_input(node, 3, numbers(x, axes));
  } else {
    node->attributes["axes"] = axes;
  }
  return convert_simple(node);
}

/// Reductions over constant axes. What is left is channels last, too, or has no axes that changed places.
bool ChannelsLast::convert_reduction(WorkNode* node) {
  const std::string x = node->input(0);
  std::vector<int64_t> axes;
  if (node->op.rfind("Reduce", 0) != 0 || !is_last(x) || !graph_.reduced_axes(*node, axes) ||
      axes.empty() || !move_axes(axes, rank(x)))
    return false;
  const int64_t channels = rank(x) - 1;
  const auto reduces = [&](int64_t axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  bool some_pixels = false;
  for (int64_t axis = 1; axis < channels; ++axis) some_pixels = some_pixels || !reduces(axis);
  const bool keeps = node->original.get_int("keepdims", 1) != 0;
  const bool makes_image = keeps || (!reduces(channels) && some_pixels);
  if (makes_image && ((!keeps && reduces(0)) || !is_image(node->outputs[0]))) return false;
  graph_.change(node);
  if (node->input(1).empty()) {
    node->attributes["axes"] = axes;
  } else {
    graph_.set_input(node, 1, numbers(x, axes));
  }
  graph_.set_input(node, 0, last_.at(x));
  if (makes_image) make_last(node);
  return true;
}

/// Pad, with pads that are constant.
bool ChannelsLast::convert_pad(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Pad" || !is_last(x) || node->original.since_version() < 11) return false;
  const int r = rank(x);
  std::vector<int64_t> pads, axes;
  if (!graph_.integers(node->input(3), axes)) return false;
  if (node->input(3).empty()) {
    if (!graph_.integers(node->input(1), pads) || pads.size() != 2 * static_cast<std::size_t>(r))
      return false;
    for (int64_t axis = 0; axis < r; ++axis) axes.push_back(axis);
  }
  if (!move_axes(axes, r)) return false;
  graph_.change(node);
  graph_.set_input(node, 3, numbers(x, axes));
  return convert_simple(node);
}

/// Pixels in a row with the channels last, as Transformers read images: Reshape [batch, channels, pixels], Transpose of
/// axes 1 and 2.
bool ChannelsLast::convert_flatten(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Reshape" || !is_last(x) || rank(node->outputs[0]) != 3) return false;
  WorkNode* transpose = graph_.only_consumer(node->outputs[0]);
  if (!exchanges_pixels(transpose)) return false;
  // With as many channels and pixels as there were, it has the same batch, which may be unknown.
  const sdk::DimsView from = graph_.info(x).dims();
  const sdk::DimsView to = graph_.info(node->outputs[0]).dims();
  const bool is_known = std::all_of(from.begin() + 1, from.end(), [](int64_t d) { return d > 0; });
  const int64_t pixels = sdk::element_count(sdk::DimsView(from.data() + 2, from.size() - 2));
  if (!is_known || to[1] != from[1] || to[2] != pixels) return false;
  const std::string result = transpose->outputs[0];
  graph_.absorb(node, transpose);
  node->domain = kPrivateDomain;
  node->attributes = {{"shape", std::vector<int64_t>{0, pixels, from[1]}}};
  graph_.set_inputs(node, {last_.at(x)});
  graph_.set_output(node, 0, result);
  return true;
}

/// A model's own move of the channels to their place: what it moves is the channels-last form. Of rank 3 it is as
/// likely a matrix that is transposed for a product.
bool ChannelsLast::adopt(WorkNode* node) {
  if (!node->is("Transpose") || !is_image(node->outputs[0]) || rank(node->outputs[0]) < 4 ||
      is_last(node->input(0)) || own_form(node->outputs[0]).empty())
    return false;
  to_last(node->outputs[0]);
  return true;
}

std::string ChannelsLast::own_form(const std::string& value) {
  WorkNode* maker = graph_.producer(value);
  if (maker == nullptr || maker->changed) return "";
  const int r = rank(value);
  if (maker->is("Transpose") && maker->original.get_ints("perm") == order_to_first(r))
    return maker->input(0);
  // As convert_flatten, the other way around.
  if (!maker->is("Reshape") || r < 4 || !graph_.info(value).is_static()) return "";
  WorkNode* transpose = graph_.producer(maker->input(0));
  if (!exchanges_pixels(transpose)) return "";
  const sdk::DimsView from = graph_.info(transpose->outputs[0]).dims();
  const sdk::DimsView to = graph_.info(value).dims();
  if (from.size() != 3 || from[0] != to[0] || from[1] != to[1]) return "";
  std::vector<int64_t> shape{to[0]};
  shape.insert(shape.end(), to.begin() + 2, to.end());
  shape.push_back(to[1]);
  std::string name = graph_.fresh(value + "_last");
  WorkNode* added = graph_.add(kPrivateDomain, "Reshape", {transpose->input(0)}, {name});
  added->attributes = {{"shape", shape}};
  return name;
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

/// A model's own move of the channels to the end: the channels-last form is its result. Any other Transpose
/// moves the axes on from where they are.
bool ChannelsLast::convert_transpose(WorkNode* node) {
  const std::string x = node->input(0);
  if (node->op != "Transpose" || !is_last(x)) return false;
  const int r = rank(x);
  const std::string name = last_.at(x);
  WorkNode* maker = graph_.producer(name);
  const bool own = plain_exists_.count(x) != 0 || maker == nullptr || renamed_.count(name) != 0;
  std::vector<int64_t> perm = node->original.get_ints("perm");
  if (own || perm != order_to_last(r)) {
    if (perm.size() != static_cast<std::size_t>(r)) return false;
    for (int64_t& axis : perm) axis = axis_to_last(axis, r);
    graph_.change(node);
    node->attributes = {{"perm", perm}};
    graph_.set_inputs(node, {name});
    return true;
  }
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

}  // namespace backplane::cpu
