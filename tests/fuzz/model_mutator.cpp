#include "tests/fuzz/model_mutator.hpp"

#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace backplane::fuzz {
namespace {

/// Operators whose outputs, bodies or memory depend on what a mutation changes easily.
constexpr const char* kOperators[] = {"Add",
                                      "Cast",
                                      "Concat",
                                      "ConstantOfShape",
                                      "Conv",
                                      "Einsum",
                                      "Expand",
                                      "Flatten",
                                      "Gather",
                                      "GatherND",
                                      "If",
                                      "Identity",
                                      "Loop",
                                      "MatMul",
                                      "NonZero",
                                      "OneHot",
                                      "Pad",
                                      "Range",
                                      "ReduceSum",
                                      "Reshape",
                                      "Resize",
                                      "Scan",
                                      "Shape",
                                      "Slice",
                                      "Softmax",
                                      "Split",
                                      "Squeeze",
                                      "SequenceAt",
                                      "Tile",
                                      "TopK",
                                      "Transpose",
                                      "Unsqueeze",
                                      "Where",
                                      "LSTM",
                                      "ScatterElements"};

constexpr std::int64_t kNumbers[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     -2,
                                     7,
                                     16,
                                     255,
                                     1 << 20,
                                     std::numeric_limits<std::int32_t>::max(),
                                     std::numeric_limits<std::int32_t>::min(),
                                     std::int64_t{1} << 32,
                                     std::int64_t{1} << 40,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::int64_t>::min()};

void graphs_below(onnx::GraphProto& graph, std::vector<onnx::GraphProto*>& found) {
  found.push_back(&graph);
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) graphs_below(*attribute.mutable_g(), found);
    }
  }
}

}  // namespace

std::int64_t ModelMutator::number() { return kNumbers[below(std::size(kNumbers))]; }

onnx::GraphProto& ModelMutator::any_graph() {
  std::vector<onnx::GraphProto*> graphs;
  graphs_below(*model_.mutable_graph(), graphs);
  return *graphs[below(graphs.size())];
}

/// A value of the graph's own, one of the graph around it, or none.
std::string ModelMutator::name_in(const onnx::GraphProto& graph) {
  std::vector<std::string> names{""};
  for (const onnx::GraphProto* each : {&graph, &std::as_const(model_).graph()}) {
    for (const auto& input : each->input()) names.push_back(input.name());
    for (const auto& tensor : each->initializer()) names.push_back(tensor.name());
    for (const auto& node : each->node())
      names.insert(names.end(), node.output().begin(), node.output().end());
  }
  return names[below(names.size())];
}

void ModelMutator::change() {
  if (one_in(12)) return change_model();
  onnx::GraphProto& graph = any_graph();
  switch (below(8)) {
    case 0:
      if (graph.initializer_size() > 0)
        change_tensor(
            *graph.mutable_initializer(static_cast<int>(below(graph.initializer_size()))));
      return;
    case 1: {
      auto& infos = one_in(2)   ? *graph.mutable_input()
                    : one_in(2) ? *graph.mutable_output()
                                : *graph.mutable_value_info();
      if (infos.empty()) return;
      onnx::ValueInfoProto& info = infos[static_cast<int>(below(infos.size()))];
      if (one_in(8)) info.set_name(name_in(graph));
      return change_type(*info.mutable_type());
    }
    default:
      return change_node(graph);
  }
}

void ModelMutator::change_model() {
  if (one_in(4)) return model_.set_ir_version(static_cast<std::int64_t>(below(14)));
  if (one_in(4)) {
    onnx::OperatorSetIdProto& opset = *model_.add_opset_import();
    opset.set_domain(one_in(2) ? "com.microsoft" : "ai.onnx.ml");
    return opset.set_version(static_cast<std::int64_t>(below(6)));
  }
  if (model_.opset_import_size() > 0)
    model_.mutable_opset_import(0)->set_version(static_cast<std::int64_t>(below(30)));
}

void ModelMutator::change_node(onnx::GraphProto& graph) {
  if (graph.node_size() == 0) return;
  const int at = static_cast<int>(below(graph.node_size()));
  onnx::NodeProto& node = *graph.mutable_node(at);
  switch (below(8)) {
    case 0:
      node.set_op_type(kOperators[below(std::size(kOperators))]);
      return;
    case 1:
      graph.mutable_node()->SwapElements(at, static_cast<int>(below(graph.node_size())));
      return;
    case 2: {
      const onnx::NodeProto copy = node;
      onnx::NodeProto& added = *graph.add_node();
      added = copy;
      for (std::string& output : *added.mutable_output()) output += "_again";
      return;
    }
    case 3:
      graph.mutable_node()->DeleteSubrange(at, 1);
      return;
    case 4:
    case 5:
      change_values(graph, node);
      return;
    default:
      change_attribute(node);
      return;
  }
}

void ModelMutator::change_values(const onnx::GraphProto& graph, onnx::NodeProto& node) {
  const bool is_input = !one_in(4);
  auto& names = is_input ? *node.mutable_input() : *node.mutable_output();
  switch (below(3)) {
    case 0:
      names.Add(name_in(graph));
      return;
    case 1:
      if (!names.empty()) names.RemoveLast();
      return;
    default:
      if (!names.empty()) names[static_cast<int>(below(names.size()))] = name_in(graph);
  }
}

void ModelMutator::change_attribute(onnx::NodeProto& node) {
  if (node.attribute_size() == 0) return;
  const int at = static_cast<int>(below(node.attribute_size()));
  onnx::AttributeProto& attribute = *node.mutable_attribute(at);
  if (one_in(6)) return node.mutable_attribute()->DeleteSubrange(at, 1);
  if (one_in(10))
    return attribute.set_type(static_cast<onnx::AttributeProto::AttributeType>(below(15)));
  if (attribute.has_t()) return change_tensor(*attribute.mutable_t());
  if (attribute.has_s()) return attribute.set_s(one_in(2) ? "" : attribute.s() + attribute.s());
  if (attribute.has_f()) {
    constexpr float kFloats[] = {0,
                                 -1,
                                 1e-30f,
                                 1e30f,
                                 std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
    return attribute.set_f(kFloats[below(std::size(kFloats))]);
  }
  if (attribute.ints_size() > 0) {
    if (one_in(3)) return attribute.mutable_ints()->Add(number());
    if (one_in(3)) return attribute.mutable_ints()->RemoveLast();
    return attribute.set_ints(static_cast<int>(below(attribute.ints_size())), number());
  }
  attribute.set_i(number());
}

void ModelMutator::change_tensor(onnx::TensorProto& tensor) {
  switch (below(6)) {
    case 0:
      tensor.set_data_type(static_cast<int>(below(27)));
      return;
    case 1:
      tensor.add_dims(number());
      return;
    case 2:
      if (tensor.dims_size() > 0) tensor.mutable_dims()->RemoveLast();
      return;
    case 3:
      if (tensor.dims_size() > 0)
        tensor.set_dims(static_cast<int>(below(tensor.dims_size())), number());
      return;
    default:
      break;
  }
  std::string& bytes = *tensor.mutable_raw_data();
  if (bytes.empty()) return;
  if (one_in(6)) return bytes.resize(below(bytes.size()));
  if (bytes.size() >= sizeof(std::int64_t) &&
      one_in(2)) {  // what indices, shapes and trip counts are
    const std::int64_t value = number();
    const std::size_t place = below(bytes.size() / sizeof value) * sizeof value;
    bytes.replace(place, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    return;
  }
  bytes[below(bytes.size())] = static_cast<char>(random_());
}

void ModelMutator::change_type(onnx::TypeProto& type) {
  if (one_in(8)) {
    const onnx::TypeProto element = type;
    *(one_in(2) ? type.mutable_sequence_type()->mutable_elem_type()
                : type.mutable_optional_type()->mutable_elem_type()) = element;
    return;
  }
  onnx::TypeProto::Tensor& tensor = *type.mutable_tensor_type();
  if (one_in(4)) return tensor.set_elem_type(static_cast<int>(below(27)));
  if (one_in(6)) return tensor.clear_shape();
  auto& dims = *tensor.mutable_shape()->mutable_dim();
  if (dims.empty() || one_in(6)) dims.Add();
  onnx::TensorShapeProto::Dimension& dim = dims[static_cast<int>(below(dims.size()))];
  if (one_in(2))
    dim.set_dim_value(number());
  else
    dim.set_dim_param(one_in(2) ? "n" : "");
}

}  // namespace backplane::fuzz
