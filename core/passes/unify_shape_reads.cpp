// Which value the size of a dimension is read from. Exporters read it from whatever is at hand, in every layer anew.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/passes/dim_sizes.hpp"
#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

using Axes = std::vector<std::size_t>;

/// Whether the kernel may find other sizes than inference: of scales that are rounded.
bool makes_other_sizes(const Node& node) {
  return node.domain.empty() && (node.op_type == "Resize" || node.op_type == "Upsample");
}

bool has_sure_sizes(const Graph& graph) {
  bool sure = true;
  for (const NodeId id : graph.node_ids()) {
    sure = sure && !makes_other_sizes(graph.node(id));
    for_each_body(graph.node(id), [&](const Graph& body) { sure = sure && has_sure_sizes(body); });
  }
  return sure;
}

bool is_onnx(const Node& node, const char* op_type) {
  return node.domain.empty() && node.op_type == op_type && !node.is_ordered() &&
         node.outputs.size() == 1 && node.outputs[0] != kNone && !node.inputs.empty() &&
         node.inputs[0] != kNone;
}

std::int64_t int_of(const Node& node, const char* name, std::int64_t otherwise) {
  const auto found = node.attributes.find(name);
  return found != node.attributes.end() && found->second.ints.size() == 1 ? found->second.ints[0]
                                                                          : otherwise;
}

/// The elements of a constant of indices; nullopt for what is none.
std::optional<std::vector<std::int64_t>> indices_of(const Value& value) {
  constexpr std::int64_t kMostIndices = 64;
  if (value.constant == nullptr || value.overridable) return std::nullopt;
  const Constant& constant = *value.constant;
  if (constant.element_count() > kMostIndices) return std::nullopt;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(constant.element_count()));
  const std::byte* bytes = constant.bytes().data();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (constant.type() == DataType::Int64) {
      std::memcpy(&indices[i], bytes + i * sizeof(std::int64_t), sizeof(std::int64_t));
    } else if (constant.type() == DataType::Int32) {
      std::int32_t index = 0;
      std::memcpy(&index, bytes + i * sizeof index, sizeof index);
      indices[i] = index;
    } else {
      return std::nullopt;
    }
  }
  return indices;
}

/// What a node reads: of a value's axes, through a Shape.
struct DimRead {
  NodeId shape;  ///< the Shape
  ValueId value;
  Axes axes;
};

class ShapeReads {
 public:
  ShapeReads(Graph& graph, PassRun& run) : graph_(graph), sizes_(graph, run.options) {}

  bool run() {
    bool changed = false;
    const Graph::NodeIds before = graph_.node_ids();
    using Unify = bool (ShapeReads::*)(NodeId);
    // What reads a Shape goes first: the Shape may be gone then.
    for (const auto& [op_type, unify] :
         {std::pair<const char*, Unify>{"Gather", &ShapeReads::unify_gather},
          {"Slice", &ShapeReads::unify_slice},
          {"Shape", &ShapeReads::unify_shape}}) {
      for (const NodeId id : before) {
        if (is_onnx(graph_.node(id), op_type)) changed = (this->*unify)(id) || changed;
      }
    }
    return changed;
  }

 private:
  /// All that a Shape reads; nullopt where the rank is not known.
  std::optional<DimRead> read_of_shape(NodeId id) const {
    const Node& node = graph_.node(id);
    const std::vector<DimSize>* sizes = sizes_.of(node.inputs[0]);
    if (sizes == nullptr) return std::nullopt;
    const auto rank = static_cast<std::int64_t>(sizes->size());
    const auto within = [rank](std::int64_t axis) {
      return std::clamp(axis < 0 ? axis + rank : axis, std::int64_t{0}, rank);
    };
    DimRead read{id, node.inputs[0], {}};
    const std::int64_t end = within(int_of(node, "end", rank));
    for (std::int64_t axis = within(int_of(node, "start", 0)); axis < end; ++axis)
      read.axes.push_back(static_cast<std::size_t>(axis));
    return read;
  }

  /// Of the Shape whose result is a node's first input.
  std::optional<DimRead> read_through(NodeId id) const {
    const NodeId producer = graph_.value(graph_.node(id).inputs[0]).producer;
    if (producer == kNone || !is_onnx(graph_.node(producer), "Shape")) return std::nullopt;
    return read_of_shape(producer);
  }

  bool is_whole(const DimRead& read) const {
    return read.axes.size() == sizes_.of(read.value)->size();
  }

  /// The elements that the node makes; kUnknownSize is among them where one is not known at all.
  std::vector<DimSize> sizes_at(ValueId value, const Axes& axes) const {
    const std::vector<DimSize>& sizes = *sizes_.of(value);
    std::vector<DimSize> result;
    for (const std::size_t axis : axes) result.push_back(sizes[axis]);
    return result;
  }

  /// A feed, or what is read for its shape already: one more reader of another value would keep providers from making one
  /// node of its maker and its reader.
  bool may_be_read(ValueId id) const {
    const Value& value = graph_.value(id);
    return value.producer == kNone ||
           std::any_of(value.uses.begin(), value.uses.end(), [this](const Use& use) {
             return use.input == 0 && graph_.node(use.node).op_type == "Shape";
           });
  }

  /// The first place that has the size; the one given, if there is no other.
  DimPlace first_place(const DimPlace& given) {
    const DimSize named = (*sizes_.of(given.value))[given.axis];
    const auto [entry, added] = first_places_.emplace(named, given);
    if (!added) return entry->second;
    const std::vector<DimPlace>& places = sizes_.places(named);
    const auto first = std::find_if(places.begin(), places.end(), [this](const DimPlace& place) {
      return may_be_read(place.value);
    });
    if (first != places.end()) entry->second = *first;
    return entry->second;
  }

  /// The first value that has the same sizes at the same axes; of the same rank, where the node counts axes from the end.
  ValueId first_alike(const DimRead& read, bool same_rank) const {
    const std::vector<DimSize> wanted = sizes_at(read.value, read.axes);
    const auto named = std::find_if(wanted.begin(), wanted.end(), is_named);
    const std::size_t rank = sizes_.of(read.value)->size();
    const std::size_t last = *std::max_element(read.axes.begin(), read.axes.end());
    for (const DimPlace& place : sizes_.places(*named)) {
      const std::size_t other = sizes_.of(place.value)->size();
      if (other <= last || (same_rank && other != rank)) continue;
      if (sizes_at(place.value, read.axes) == wanted && may_be_read(place.value))
        return place.value;
    }
    return read.value;
  }

  /// Puts numbers in the node's place, where all sizes are; true when it did. `is_settled` unless there is more to be
  /// done: not where a size is unknown.
  bool settle(NodeId id, const DimRead& read, const std::vector<std::int64_t>& dims,
              bool& is_settled) {
    const std::vector<DimSize> sizes = sizes_at(read.value, read.axes);
    const bool is_unknown = std::find(sizes.begin(), sizes.end(), kUnknownSize) != sizes.end();
    const bool is_known = std::none_of(sizes.begin(), sizes.end(), is_named);
    is_settled = is_unknown || is_known;
    const ValueId output = graph_.node(id).outputs[0];
    if (is_unknown || !is_known || graph_.value(output).is_output) return false;
    graph_.remove_node(id);
    make_constant(output, sizes, dims);
    return true;
  }

  void make_constant(ValueId id, const std::vector<std::int64_t>& elements,
                     const std::vector<std::int64_t>& dims) {
    Value& value = graph_.value(id);
    value.type = Type::tensor(DataType::Int64, dims);
    value.constant = Constant::copy_of(DataType::Int64, dims,
                                       std::as_bytes(std::span<const std::int64_t>(elements)));
  }

  // https://onnx.ai/onnx/operators/onnx__Gather.html
  bool unify_gather(NodeId id) {
    const Node& node = graph_.node(id);
    const std::int64_t axis = int_of(node, "axis", 0);
    if (node.inputs.size() != 2 || node.inputs[1] == kNone || (axis != 0 && axis != -1))
      return false;
    std::optional<DimRead> read = read_through(id);
    const Value& index = graph_.value(node.inputs[1]);
    const auto indices = indices_of(index);
    if (!read || !indices || indices->empty()) return false;
    const auto count = static_cast<std::int64_t>(read->axes.size());
    bool counts_from_end = false;
    Axes axes;
    for (const std::int64_t i : *indices) {
      if (i < -count || i >= count) return false;  // the run will tell
      counts_from_end = counts_from_end || i < 0;
      axes.push_back(read->axes[static_cast<std::size_t>(i < 0 ? i + count : i)]);
    }
    const std::vector<std::int64_t> dims = index.constant->dims();
    read->axes = std::move(axes);
    bool is_settled = false;
    const bool changed = settle(id, *read, dims, is_settled);
    if (is_settled) return changed;
    DimPlace from{kNone, 0};
    if (read->axes.size() == 1) {
      from = first_place({read->value, read->axes[0]});
      if (from.value == read->value && from.axis == read->axes[0] && !counts_from_end) return false;
      read->axes = {from.axis};
    } else {
      from.value = first_alike(*read, false);
      if (from.value == read->value && !counts_from_end) return false;
    }
    graph_.set_input(id, 0, whole_shape(from.value, read->shape));
    graph_.set_input(id, 1, index_of(read->axes, dims));
    return true;
  }

  // https://onnx.ai/onnx/operators/onnx__Slice.html, from version 10 on
  bool unify_slice(NodeId id) {
    const Node& node = graph_.node(id);
    std::optional<DimRead> read = read_through(id);
    if (!read || !is_whole(*read) || node.inputs.size() < 3) return false;
    std::array<std::int64_t, 4> numbers{0, 0, 0, 1};  // start, end, axis, step
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const auto given = indices_of(graph_.value(node.inputs[i]));
      if (!given || given->size() != 1 || i > numbers.size()) return false;
      numbers[i - 1] = given->front();
    }
    const auto& [start, end, axis, step] = numbers;
    if (step != 1 || (axis != 0 && axis != -1)) return false;
    const auto rank = static_cast<std::int64_t>(read->axes.size());
    const auto within = [rank](std::int64_t i) {
      return std::clamp(i < 0 ? i + rank : i, std::int64_t{0}, rank);
    };
    const auto first = read->axes.begin();
    if (within(start) >= within(end)) return false;
    read->axes = Axes(first + within(start), first + within(end));
    bool is_settled = false;
    const auto count = static_cast<std::int64_t>(read->axes.size());
    const bool changed = settle(id, *read, {count}, is_settled);
    if (is_settled) return changed;
    const ValueId from = first_alike(*read, true);
    if (from == read->value) return false;
    graph_.set_input(id, 0, whole_shape(from, read->shape));
    return true;
  }

  // https://onnx.ai/onnx/operators/onnx__Shape.html
  bool unify_shape(NodeId id) {
    const Value& output = graph_.value(graph_.node(id).outputs[0]);
    const std::optional<DimRead> read = read_of_shape(id);
    if (!read || read->axes.empty() || (output.uses.empty() && !output.is_output)) return false;
    bool is_settled = false;
    const auto count = static_cast<std::int64_t>(read->axes.size());
    const bool changed = settle(id, *read, {count}, is_settled);
    if (is_settled) return changed;
    constexpr int kFirstWithRange = 15;
    if (count == 1 && graph_.node(id).since_version >= kFirstWithRange) return read_one(id, *read);
    const ValueId from = first_alike(*read, true);
    if (from == read->value) return false;
    graph_.set_input(id, 0, from);
    return true;
  }

  bool read_one(NodeId id, const DimRead& read) {
    const DimPlace from = first_place({read.value, read.axes[0]});
    const auto axis = static_cast<std::int64_t>(from.axis);
    Node& node = graph_.node(id);
    const bool is_there = from.value == read.value && from.axis == read.axes[0];
    if (is_there && int_of(node, "start", -1) == axis && int_of(node, "end", -1) == axis + 1)
      return false;
    node.attributes["start"] = int_attribute(axis);
    node.attributes["end"] = int_attribute(axis + 1);
    if (!is_there) graph_.set_input(id, 0, from.value);
    return true;
  }

  static Attribute int_attribute(std::int64_t number) {
    Attribute attribute;
    attribute.ints = {number};
    return attribute;
  }

  /// The whole shape of a value, in the words of another Shape, whose work it takes over.
  ValueId whole_shape(ValueId of, NodeId like) {
    NodeId& shape = shapes_.emplace(of, kNone).first->second;
    for (const Use& use : graph_.value(of).uses) {
      if (shape != kNone) break;
      if (!is_onnx(graph_.node(use.node), "Shape")) continue;
      if (const auto read = read_of_shape(use.node); read && is_whole(*read)) shape = use.node;
    }
    if (shape == kNone) {
      Node node;
      node.op_type = "Shape";
      node.since_version = graph_.node(like).since_version;
      node.inputs = {of};
      node.outputs = {graph_.new_value(graph_.value(of).name + "/shape")};
      const auto rank = static_cast<std::int64_t>(sizes_.of(of)->size());
      graph_.value(node.outputs[0]).type = Type::tensor(DataType::Int64, {rank});
      shape = graph_.add_node(std::move(node));
    }
    std::vector<std::int32_t>& origins = graph_.node(shape).origins;
    for (const std::int32_t origin : graph_.node(like).origins) {
      const auto place = std::lower_bound(origins.begin(), origins.end(), origin);
      if (place == origins.end() || *place != origin) origins.insert(place, origin);
    }
    return graph_.node(shape).outputs[0];
  }

  ValueId index_of(const Axes& axes, const std::vector<std::int64_t>& dims) {
    ValueId& index = indices_.emplace(std::pair(axes, dims), kNone).first->second;
    if (index == kNone) {
      index = graph_.new_value("axis");
      make_constant(index, {axes.begin(), axes.end()}, dims);
    }
    return index;
  }

  Graph& graph_;
  const DimSizes sizes_;
  std::map<DimSize, DimPlace> first_places_;
  std::map<ValueId, NodeId> shapes_;
  std::map<std::pair<Axes, std::vector<std::int64_t>>, ValueId> indices_;
};

}  // namespace

bool unify_shape_reads(Graph& graph, PassRun& run) {
  // Which value is the first may change with every edit, so this does not go on until nothing changes.
  constexpr int kMostRounds = 4;
  if (run.main != &graph || run.options.feeds.empty() || run.unify_rounds == kMostRounds)
    return false;
  if (!has_sure_sizes(graph)) return false;
  ++run.unify_rounds;
  return ShapeReads(graph, run).run();
}

}  // namespace backplane::core
