#include "core/onnx/normal_form.hpp"

#include <string>
#include <unordered_set>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/attribute_check.hpp"
#include "core/onnx/opsets.hpp"

namespace backplane::core {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::TypeProto;

/// The type of an attribute by the field that is filled: files of IR version 1 do not say it.
AttributeProto::AttributeType type_by_contents(const AttributeProto& attribute) {
  if (attribute.has_f()) return AttributeProto::FLOAT;
  if (attribute.has_i()) return AttributeProto::INT;
  if (attribute.has_s()) return AttributeProto::STRING;
  if (attribute.has_t()) return AttributeProto::TENSOR;
  if (attribute.has_g()) return AttributeProto::GRAPH;
  if (attribute.floats_size() > 0) return AttributeProto::FLOATS;
  if (attribute.strings_size() > 0) return AttributeProto::STRINGS;
  if (attribute.tensors_size() > 0) return AttributeProto::TENSORS;
  if (attribute.graphs_size() > 0) return AttributeProto::GRAPHS;
  return AttributeProto::INTS;
}

/// Some exporters write "?" or -1 where they know no size. The one is no name, or two sizes that differ would be one; of
/// the other inference would not know that it is the same everywhere.
void forget_placeholders(TypeProto& type) {
  if (type.has_sequence_type())
    return forget_placeholders(*type.mutable_sequence_type()->mutable_elem_type());
  if (type.has_optional_type())
    return forget_placeholders(*type.mutable_optional_type()->mutable_elem_type());
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return;
  for (auto& dim : *type.mutable_tensor_type()->mutable_shape()->mutable_dim()) {
    if (dim.has_dim_param() && dim.dim_param() == "?") dim.clear_dim_param();
    if (dim.has_dim_value() && dim.dim_value() < 0) dim.clear_dim_value();
  }
}

void normalize_node(NodeProto& node);

void normalize_graph(GraphProto& graph) {
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (auto& info : *list) {
      if (info.has_type()) forget_placeholders(*info.mutable_type());
    }
  }
  std::unordered_set<std::string> names;
  std::vector<int> unnamed;
  for (int i = 0; i < graph.node_size(); ++i) {
    NodeProto& node = *graph.mutable_node(i);
    if (node.name().empty() || !names.insert(node.name()).second) unnamed.push_back(i);
    normalize_node(node);
  }
  for (const int i : unnamed) {
    NodeProto& node = *graph.mutable_node(i);
    const std::string stem = text(node.op_type(), "_", i);
    std::string name = stem;
    for (int number = 1; !names.insert(name).second; ++number) name = text(stem, "_", number);
    node.set_name(name);
  }
}

void normalize_node(NodeProto& node) {
  if (node.domain() == "ai.onnx") node.clear_domain();
  Opsets::remove_marks(node);
  remove_equation_spaces(node);
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.type() == AttributeProto::UNDEFINED)
      attribute.set_type(type_by_contents(attribute));
  }
  for_each_graph(node, [](GraphProto& body) { normalize_graph(body); });
}

void set_scalar(TensorProto& tensor, const AttributeProto& attribute) {
  switch (attribute.type()) {
    case AttributeProto::FLOAT:
      tensor.set_data_type(TensorProto::FLOAT);
      tensor.add_float_data(attribute.f());
      break;
    case AttributeProto::INT:
      tensor.set_data_type(TensorProto::INT64);
      tensor.add_int64_data(attribute.i());
      break;
    default:
      tensor.set_data_type(TensorProto::STRING);
      tensor.add_string_data(attribute.s());
      break;
  }
}

void set_list(TensorProto& tensor, AttributeProto& attribute) {
  switch (attribute.type()) {
    case AttributeProto::FLOATS:
      tensor.set_data_type(TensorProto::FLOAT);
      tensor.add_dims(attribute.floats_size());
      tensor.mutable_float_data()->Swap(attribute.mutable_floats());
      break;
    case AttributeProto::INTS:
      tensor.set_data_type(TensorProto::INT64);
      tensor.add_dims(attribute.ints_size());
      tensor.mutable_int64_data()->Swap(attribute.mutable_ints());
      break;
    default:
      tensor.set_data_type(TensorProto::STRING);
      tensor.add_dims(attribute.strings_size());
      tensor.mutable_string_data()->Swap(attribute.mutable_strings());
      break;
  }
}

void lift(NodeProto& node, GraphProto& graph) {
  const std::string& output = node.output(0);
  if (node.attribute_size() != 1) {
    invalid(described(node), ": a Constant has exactly one attribute, this one has ",
            node.attribute_size());
  }
  AttributeProto& attribute = *node.mutable_attribute(0);
  if (attribute.type() == AttributeProto::SPARSE_TENSOR) {
    auto& sparse = *graph.add_sparse_initializer();
    sparse.Swap(attribute.mutable_sparse_tensor());
    sparse.mutable_values()->set_name(output);
    return;
  }
  TensorProto& tensor = *graph.add_initializer();
  switch (attribute.type()) {
    case AttributeProto::TENSOR:
      tensor.Swap(attribute.mutable_t());
      break;
    case AttributeProto::FLOAT:
    case AttributeProto::INT:
    case AttributeProto::STRING:
      set_scalar(tensor, attribute);
      break;
    case AttributeProto::FLOATS:
    case AttributeProto::INTS:
    case AttributeProto::STRINGS:
      set_list(tensor, attribute);
      break;
    default:
      invalid(described(node), ": attribute ", quoted(attribute.name()), " has no constant");
  }
  tensor.set_name(output);
}

}  // namespace

void normalize(::onnx::ModelProto& model) {
  normalize_graph(*model.mutable_graph());
  for (auto& function : *model.mutable_functions()) {
    for (NodeProto& node : *function.mutable_node()) normalize_node(node);
  }
}

std::vector<OriginalNode> original_nodes(const GraphProto& graph) {
  std::vector<OriginalNode> result;
  result.reserve(static_cast<std::size_t>(graph.node_size()));
  for (const NodeProto& node : graph.node())
    result.push_back({node.name(), node.op_type(), node.domain()});
  return result;
}

void lift_constants(GraphProto& graph, std::vector<std::int32_t>* origins) {
  int kept = 0;
  for (int i = 0; i < graph.node_size(); ++i) {
    NodeProto& node = *graph.mutable_node(i);
    for_each_graph(node, [](GraphProto& body) { lift_constants(body, nullptr); });
    if (node.op_type() == "Constant" && node.domain().empty()) {
      if (!node.output(0).empty()) lift(node, graph);
      continue;
    }
    if (origins != nullptr)
      (*origins)[static_cast<std::size_t>(kept)] = (*origins)[static_cast<std::size_t>(i)];
    if (kept != i) graph.mutable_node()->SwapElements(kept, i);
    ++kept;
  }
  graph.mutable_node()->DeleteSubrange(kept, graph.node_size() - kept);
  if (origins != nullptr) origins->resize(static_cast<std::size_t>(kept));
}

}  // namespace backplane::core
